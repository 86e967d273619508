"""What weight-only n-bit linears share: GPTQ's words, groups, double quantisation, the product, files.

Source: docs/spec/weight-only.md.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie.errors import ShapeError
from bie.nn.state.arguments import bit_width
from bie.nn.state.seen import Seen
from bie.nn.state.weight_state import StagedState
from bie.nn.state.whole_load import load_layer
from bie.weights.gptq import Coded, coded, round_to_nearest, words_of
from bie.weights.parameters import WeightOnlyParameter

_WIDTHS = (1, 2, 3, 4, 5, 6, 8)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_ACTIVATIONS = ("exact", "int8")
_DOUBLE_QUANTISED_BELOW = 256  # a larger group stores its scales and zeros as they are

# Of files alone: prepare_params undoes the double quantisation that they hold.
_OF_FILES = ("qscales_zeros", "qscales_scales", "qscales", "qstatistic", "qzeros_zeros", "qzeros_scales", "wf")


class WeightOnlyLinear(nn.Module):
    """Base of the weight-only linears: k inputs, n outputs, a weight of codes that stays packed, float activations.

    ``y = x . W (+ bias)`` in float32, in an order of the sum that k and the groups alone decide: the same bits for
    every batch, number of threads and instruction set; y is rounded once to x's dtype.

    Backward: ``grad_x = g . W^T``; the weight's gradient ``x^T . g`` [k, n] is ``qweight.grad`` (which is
    ``privileged_grad``), in training and while ``qweight.requires_grad_`` has not been switched off; ``zero_grad``
    clears it. ``bie.optim.DiodeMix`` steps the codes by it.

    A state dict loads in either form, that of files or that after ``prepare_params``, and the layer takes that form.

    Keys before ``prepare_params``, G = ceil(k / group_size), Q = ceil(n / dq_group_size):

    ==============================  ==============================================================================
    qweight                         [ceil(k * w_bit / 32), n] int32
    g_idx                           [k] int32, the group of each row
    bias                            [n]
    wf                              [1, 32 / w_bit] int32, the shifts of a word's values
    qzeros, scales                  GPTQ: [G, ceil(n * w_bit / 32)] int32, [G, n]
    scales, zeros                   GBA: [G, n]
    qscales_zeros, qscales_scales   GBA: [1, n, 1] in dq_mode 1, [G, Q, 1] in 2
    qstatistic                      GBA symmetric: [G, Q, dq_group_size] uint8, scale in the high nibble, zero below
    qzeros_zeros, qzeros_scales     GBA symmetric: [G, Q, 1]
    qzeros, qscales                 GBA asymmetric: as GPTQ; uint8 [G, Q, dq_group_size] for 4 bits, else [G, n]
    ==============================  ==============================================================================

    Args:
        in_channels: k, any positive number.
        out_channels: n.
        w_bit: 1, 2, 3, 4, 5, 6 or 8.
        dtype: of scales, zeros and bias: float16, bfloat16 or float32; x may have any of them.
        group_size: rows that share a scale, -1 for all of them.
        use_gba_quant: GBA's files, else GPTQ's (always asymmetric).
        dq_group_size: columns that share a scale of scales, -1 for all of them.
        disable_bias: whether ``bias`` is only there for files that hold it.
        requires_grad: whether training gives the weight a ``privileged_grad``, which is None until a backward pass
            makes it (BITorch Engine allocates [k, n] at once).
        master: keep in ``rest`` [k, n] bfloat16 what the codes cannot hold, so that ``DiodeMix`` rounds them to the
            nearest and loses nothing; without it they are rounded at random.
        device: where the tensors are made.
        activation: ``"exact"``. ``"int8"``, products of 8-bit activations, is refused: it has no kernels yet.

    Raises:
        ValueError: a size that is not positive, an unknown width, dq_mode or activation.
        ValueError (``forward``): x of another number of features; a group index or order out of range.

    Source: BITorch Engine 0.2.6 ``MPQLinearBase``; Frantar et al. 2022 (GPTQ).
    """

    _parameter: ClassVar[type[WeightOnlyParameter]] = WeightOnlyParameter
    _layer_type: ClassVar[int] = 1  # what its parameter says of it
    _checks_parameters: ClassVar[bool] = False  # when it is made

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        a_bit: int = 16,
        w_bit: int = 4,
        dtype: torch.dtype = torch.half,
        group_size: int = -1,
        use_gba_quant: bool = True,
        dq_group_size: int = -1,
        dq_mode: int = 2,
        disable_bias: bool = True,
        asym: bool = False,
        requires_grad: bool = True,
        *,
        master: bool = False,
        activation: str = "exact",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise ValueError(f"{type(self).__name__}: activation is {activation!r}, 'exact' or 'int8' is wanted")
        if activation == "int8":
            raise NotImplementedError(f"{type(self).__name__}: activation='int8' has no kernels, 'exact' has")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.a_bit, self.w_bit = bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)
        self.dtype = dtype
        self.group_size = group_size if group_size > -1 else in_channels
        self.use_gba_quant = use_gba_quant
        self.dq_group_size = dq_group_size if dq_group_size > -1 else out_channels
        self.dq_mode = dq_mode
        self.disable_bias = disable_bias
        self.asym = asym or not use_gba_quant
        self.requires_grad = requires_grad
        self.master = master
        self._prepared = False
        self._panels: tuple[tuple[Seen | None, ...], Tensor] | None = None
        self._row_options: dict[str, Any] | None = None
        self._check_sizes()
        self.maxq = 2**self.w_bit - 1
        self.initialize()
        if self._checks_parameters:
            self.check_parameters()
        if device is not None:
            self.to(device)

    def _check_sizes(self) -> None:
        name = type(self).__name__
        if self.w_bit not in _WIDTHS:
            raise ShapeError(f"{name}: w_bit is {self.w_bit}, 1, 2, 3, 4, 5, 6 or 8 is wanted")
        for size in ("in_channels", "out_channels"):
            if getattr(self, size) < 1:
                raise ShapeError(f"{name}: {size} is {getattr(self, size)}, a positive number is wanted")
        if self.group_size < 1 or self.dq_group_size < 1:
            raise ShapeError(
                f"{name}: group_size is {self.group_size} and dq_group_size {self.dq_group_size}, "
                "-1 or a positive number is wanted"
            )
        if self.dq_mode not in (1, 2):
            raise ValueError(f"{name}: dq_mode is {self.dq_mode}, 1 or 2 is wanted")

    def check_parameters(self) -> None:
        """``ShapeError`` unless the bits and the dtype are ones that a weight-only linear computes with."""
        name = type(self).__name__
        if self.a_bit != 16:
            raise ShapeError(f"{name}: a_bit is {self.a_bit}, 16 is wanted")
        if self.dtype not in _DTYPES:
            raise ShapeError(f"{name}: dtype is {self.dtype}, float16, bfloat16 or float32 is wanted")
        self._check_sizes()

    @property
    def privileged_grad(self) -> Tensor | None:
        """The gradient of the weight as floats, [k, n] float32, or None."""
        return self.qweight.privileged_grad

    @privileged_grad.setter
    def privileged_grad(self, grad: Tensor | None) -> None:
        self.qweight.privileged_grad = grad

    @property
    def _groups(self) -> int:
        return math.ceil(self.in_channels / self.group_size)

    @property
    def _dq_groups(self) -> int:
        return math.ceil(self.out_channels / self.dq_group_size)

    def initialize(self) -> None:
        """Makes the parameters and buffers of an unprepared layer: all-zero weight, scales 1, zeros 0."""
        self._prepared = False
        self.qweight = self._parameter(
            torch.zeros(self._words_shape(), dtype=torch.int32),
            requires_grad=self.requires_grad,
            w_bit=self.w_bit,
            asym=self.asym,
            group_size=self.group_size,
            layer_type=self._layer_type,
        )
        self._register_rows()
        self._register_of_files()
        if self.master:
            rest = torch.zeros(self.in_channels, self.out_channels, dtype=torch.bfloat16)
            self.register_buffer("rest", rest)

    def _words_shape(self) -> tuple[int, int]:
        return words_of(self.in_channels, self.w_bit), self.out_channels

    def _register_rows(self) -> None:
        """What says which group a packed row is in, and which feature."""
        self.register_buffer("g_idx", torch.arange(self.in_channels, dtype=torch.int32) // self.group_size)

    def _register_of_files(self) -> None:
        self.register_buffer("bias", torch.zeros(self.out_channels, dtype=self.dtype))
        self.register_buffer("wf", torch.arange(0, 32, self.w_bit, dtype=torch.int32).unsqueeze(0))
        if self.use_gba_quant:
            self.init_gba()
        else:
            self.init_gptq()

    def _register_packed_zeros(self) -> None:
        shape = (self._groups, words_of(self.out_channels, self.w_bit))
        self.register_buffer("qzeros", torch.zeros(shape, dtype=torch.int32))

    def init_gptq(self) -> None:
        """Makes the buffers of GPTQ's files; sets ``asym``."""
        self.asym = True
        self._register_packed_zeros()
        self.register_buffer("scales", torch.ones(self._groups, self.out_channels, dtype=self.dtype))

    def init_gba(self) -> None:
        """Makes the buffers of GBA's files."""
        per_group = (self._groups, self._dq_groups, 1)
        statistic = (self._groups, self._dq_groups, self.dq_group_size)
        plain = (self._groups, self.out_channels)
        if self.asym:
            self._register_packed_zeros()
            shape = statistic if self.w_bit == 4 else plain
            self.register_buffer("qscales", torch.ones(shape, dtype=torch.uint8))
        else:
            self.register_buffer("qstatistic", torch.ones(statistic, dtype=torch.uint8))
            self.register_buffer("qzeros_zeros", torch.zeros(per_group, dtype=self.dtype))
            self.register_buffer("qzeros_scales", torch.ones(per_group, dtype=self.dtype))
        shape = (1, self.out_channels, 1) if self.dq_mode == 1 else per_group
        self.register_buffer("qscales_zeros", torch.zeros(shape, dtype=self.dtype))
        self.register_buffer("qscales_scales", torch.ones(shape, dtype=self.dtype))
        self.register_buffer("scales", torch.ones(plain, dtype=self.dtype))
        self.register_buffer("zeros", torch.zeros(plain, dtype=self.dtype))

    def set_qweight_data(self, data: Tensor) -> None:
        """Replaces the packed weight; ``ShapeError`` unless it has the same shape and is int32."""
        if data.dtype != torch.int32 or data.shape != self.qweight.shape:
            wanted = f"{list(self.qweight.shape)} of torch.int32 is wanted"
            raise ShapeError(f"{type(self).__name__}: qweight is {list(data.shape)} of {data.dtype}, {wanted}")
        self.qweight.data = data.detach().to(self.qweight.device)

    def set_weight_data(self, weight: Tensor) -> None:
        """Codes of a float weight [n, k], as ``nn.Linear`` has it, by round to nearest; the layer is prepared then.

        A group spans its least and its greatest weight (GPTQ's zeros are whole numbers in 1...2^w_bit); see
        ``round_to_nearest`` for 1 bit.

        Raises:
            ShapeError: another shape. ValueError: NaN or infinity.
        """
        shape = (self.out_channels, self.in_channels)
        if tuple(weight.shape) != shape:
            raise ShapeError(f"{type(self).__name__}: the weight is {list(weight.shape)}, {list(shape)} is wanted")
        device = self.qweight.device
        _, scales, zeros = round_to_nearest(weight, self.w_bit, self.group_size)
        scales = scales.t().to(device=device, dtype=self.dtype).contiguous()
        zeros = zeros.t().to(device)
        order = torch.arange(self.in_channels, dtype=torch.int32, device=device) // self.group_size
        if self.asym:
            whole = torch.where(scales == 0, 1, zeros / scales.float()).round_().clamp_(1, 2**self.w_bit)
            zeros = self.qzeros.copy_(ops.pack_words((whole - 1).int(), self.w_bit, 1))
        else:
            zeros = zeros.to(self.dtype).contiguous()
        self.g_idx.copy_(order)
        self._become_prepared(scales, zeros)
        values = weight.detach().t().to(device=device, dtype=torch.float32).contiguous()
        with torch.no_grad():
            self.qweight.copy_(ops.weight_only_pack(values, scales, zeros, **self._coded().options))
            if self.master:
                now, k = self._coded(), self.in_channels
                opened = ops.weight_only_open(*now.tensors, in_features=k, dtype=torch.float32, **now.options)
                self.rest.copy_(values - opened)

    def generate_quantized_weight(self, qweight_only: bool = False) -> None:
        """``NotImplementedError``: the weight is packed from the start."""
        raise NotImplementedError(
            f"{type(self).__name__}: the weight is always packed, there is none to generate it from"
        )

    def packed_state(self) -> dict[str, Tensor]:
        """The layer's tensors by their keys: the weight is packed as it is."""
        return {name: tensor.detach() for name, tensor in self.state_dict(keep_vars=True).items()}

    def prepare_params(self) -> None:
        """Undoes the double quantisation and deletes what was needed for it, ``wf`` and an unused ``bias``; acts once.

        ``scales = (qscale - qscales_zeros) * qscales_scales``, ``zeros = (qzero - qzeros_zeros) * qzeros_scales`` in
        ``dtype``, for GBA with ``group_size`` < 256; a larger group has them as they are. ``qweight`` is told them.

        Raises:
            RuntimeError: the scales or zeros are not finite, or a buffer has not the layer's shape.
        """
        if self._prepared:
            return
        try:
            zeros, scales = self._zeros_and_scales()
        except (RuntimeError, ValueError) as error:
            raise RuntimeError(f"{type(self).__name__}: prepare_params failed: {error}") from error
        self._become_prepared(scales, zeros)

    def _become_prepared(self, scales: Tensor, zeros: Tensor) -> None:
        self.scales, self.zeros = scales, zeros
        for name in (*_OF_FILES, *(("bias",) if self.disable_bias else ())):
            if name in self._buffers:
                delattr(self, name)
        self._tell_weight()
        self._prepared = True
        self._panels = None

    @property
    def _double_quantised(self) -> bool:
        return self.use_gba_quant and self.group_size < _DOUBLE_QUANTISED_BELOW

    def _zeros_and_scales(self) -> tuple[Tensor, Tensor]:
        double = self._double_quantised
        scales = self._double_quantised_scales() if double else self.scales
        if self.asym:
            zeros = self.qzeros
        elif double:
            low = self._by_column(self.qstatistic & 0x0F).to(self.dtype)
            zeros = (low - self._by_column(self.qzeros_zeros)) * self._by_column(self.qzeros_scales)
        else:
            zeros = self.zeros
        for name, tensor in (("scales", scales), ("zeros", zeros)):
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise ValueError(f"the {name} hold NaN or infinity")
        return zeros, scales

    def _double_quantised_scales(self) -> Tensor:
        codes = self._by_column(self.qscales if self.asym else self.qstatistic >> 4).to(self.dtype)
        return (codes - self._by_column(self.qscales_zeros)) * self._by_column(self.qscales_scales)

    def _by_column(self, table: Tensor) -> Tensor:
        """[G, n] (or [1, n]) from any shape of the table above: one entry for each column of the weight."""
        if (
            table.dim() == 3
            and table.size(2) == 1
            and table.size(1) == self._dq_groups
            and table.size(0) == self._groups
        ):
            table = table.expand(-1, -1, self.dq_group_size)
        return table.reshape(table.size(0), -1)[:, : self.out_channels]

    def _tell_weight(self) -> None:
        self._row_options = None
        self.qweight.rest = self._buffers.get("rest")
        for name in ("scales", "zeros", "g_idx", "w_bit", "asym", "group_size"):
            setattr(self.qweight, name, getattr(self, name))

    def _coded(self) -> Coded:
        """The weight as the operators take it; what is known of its rows is kept from call to call."""
        told = ("scales", "zeros", *(name for name in ("g_idx", "q_perm") if name in self._buffers))
        if any(getattr(self.qweight, name) is not getattr(self, name) for name in told):  # one was assigned
            self._tell_weight()
        if self._row_options is None:
            self._row_options = coded(type(self).__name__, self.qweight).options
        return Coded(self.qweight.detach(), self.scales, self.zeros, self._row_options, self.in_channels)

    # The forward pass.

    def forward(self, x: Tensor) -> Tensor:
        if not self._prepared:
            self.prepare_params()
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: x is a {type(x).__name__}, a tensor is wanted")
        if x.dim() < 1 or x.shape[-1] != self.in_channels:
            raise ShapeError(f"{type(self).__name__}: x is {list(x.shape)}, the layer has {self.in_channels} features")
        weight, bias = self._coded(), self._buffers.get("bias")
        options = weight.options | self._input_options()
        if self.training:
            if self.qweight.trainable and torch.is_grad_enabled():
                self.qweight.awaits_gradient = True
                options["anchor"] = self.qweight.anchor((self.in_channels, self.out_channels))
        else:
            options["panels"] = self._current_panels(weight)
        return ops.weight_only_linear(x, *weight.tensors, bias, **options)

    def _input_options(self) -> dict[str, Any]:
        """What the product does to x first."""
        return {}

    def _current_panels(self, weight: Tensor) -> Tensor | None:
        """The kernel's arrangement of the weight as it is; in a graph that of the last call outside of one."""
        if torch.compiler.is_compiling():
            exporting = getattr(torch.compiler, "_is_exporting_flag", True)
            return None if exporting or self._panels is None else self._panels[1]
        if weight.words.is_meta:
            return None
        sources = (*weight.tensors, weight.options.get("g_idx"), weight.options.get("q_perm"))
        if self._panels is not None:
            seen = self._panels[0]
            pairs = zip(seen, sources, strict=True)
            if all(tensor is None if old is None else old.is_still(tensor) for old, tensor in pairs):
                return self._panels[1]
        with torch.inference_mode(False), torch.no_grad():
            panels = ops.weight_only_prepack(*weight.tensors, in_features=self.in_channels, **weight.options)
        self._panels = tuple(None if tensor is None else Seen(tensor) for tensor in sources), panels
        return panels

    def repack(self) -> None:
        """Forgets the kernel's arrangement of the weight; needed after a write through ``.data``."""
        self._panels = None

    def train(self, mode: bool = True) -> WeightOnlyLinear:
        self._panels = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_panels": None, "_row_options": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(
            {"master": False, "_panels": None, "_row_options": None} | state
        )  # older pickles have none

    # Files.

    def _forms(self) -> dict[bool, dict[str, tuple[int, ...]]]:
        """{whether prepared: {key: shape}} of the entries that each form must have."""
        k, n = self.in_channels, self.out_channels
        plain = (self._groups, n)
        zeros = {"qzeros": (self._groups, words_of(n, self.w_bit))} if self.asym else {"zeros": plain}
        weight = {"qweight": self._words_shape(), "g_idx": (k,)}
        prepared = weight | {"scales": plain} | zeros | ({} if self.disable_bias else {"bias": (n,)})
        if not self._double_quantised:
            return {True: prepared, False: prepared}
        per_group = (self._groups, self._dq_groups, 1)
        statistic = (self._groups, self._dq_groups, self.dq_group_size)
        outer = (1, n, 1) if self.dq_mode == 1 else per_group
        files = weight | {"qscales_zeros": outer, "qscales_scales": outer}
        if self.asym:
            files |= {"qscales": statistic if self.w_bit == 4 else plain} | zeros
        else:
            files |= {"qstatistic": statistic, "qzeros_zeros": per_group, "qzeros_scales": per_group}
        return {True: prepared, False: files | ({} if self.disable_bias else {"bias": (n,)})}

    #: Entries that files have and nobody needs.
    _PASSED_OVER: ClassVar[tuple[str, ...]] = (*_OF_FILES, "bias", "scales", "zeros", "rest")
    _INTEGERS: ClassVar[dict[str, torch.dtype]] = {
        "qweight": torch.int32,
        "g_idx": torch.int32,
        "qzeros": torch.int32,
        "qscales": torch.uint8,
        "qstatistic": torch.uint8,
    }

    def _check_entry(self, entry: str, name: str, tensor: Any, shape: tuple[int, ...]) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise ValueError(f"the entry '{entry}' is a {type(tensor).__name__}, a tensor is wanted")
        dtype = self._INTEGERS.get(name)
        fits = tensor.is_floating_point() if dtype is None else tensor.dtype == dtype
        if tuple(tensor.shape) != shape or not fits:
            wanted = "a floating-point dtype" if dtype is None else str(dtype)
            raise ValueError(
                f"the entry '{entry}' is {list(tensor.shape)} of {tensor.dtype}, {list(shape)} of {wanted} is wanted"
            )
        tensor = tensor.detach()
        if tensor.is_meta:
            return tensor
        if dtype is None and not bool(torch.isfinite(tensor.to(self.dtype)).all()):
            raise ValueError(f"the entry '{entry}' holds NaN or infinity in {self.dtype}")
        if name == "g_idx" and (int(tensor.min()) < 0 or int(tensor.max()) >= self._groups):
            raise ValueError(f"the entry '{entry}' holds groups outside [0, {self._groups - 1}]")
        return tensor

    def _check_state(self, own: dict[str, Any], prefix: str) -> StagedState:
        prepared = not any(name in own for name in _OF_FILES) if self._double_quantised else True
        wanted, staged = dict(self._forms()[prepared]), StagedState()
        if self.master:
            wanted["rest"] = (self.in_channels, self.out_channels)
        for name, tensor in own.items():
            if name in wanted:
                staged.values[name] = self._check_entry(prefix + name, name, tensor, wanted[name])
            elif name not in self._PASSED_OVER:
                staged.unexpected.append(name)
        staged.missing = [name for name in wanted if name not in own and name != "rest"]
        if self.master and "rest" not in own:  # of codes alone
            staged.values["rest"] = torch.zeros(wanted["rest"], dtype=torch.bfloat16)
        return staged

    def _take_state(self, staged: StagedState, assign: bool) -> None:
        values = staged.values
        if values.keys() <= {"rest"}:  # a state without this layer, loaded with strict=False
            return
        prepared = "scales" in values and not any(name in values for name in _OF_FILES)
        device = self.qweight.device
        if not prepared and self._prepared:
            self._unprepare()
        for name, value in values.items():
            place = self.qweight if name == "qweight" else self._buffers[name]
            value = value.to(device=value.device if assign else device, dtype=place.dtype)
            if assign or place.shape != value.shape or place.is_meta or place.is_inference():
                value = value if assign else value.clone()
                if name == "qweight":
                    place.data = value
                else:
                    self._buffers[name] = value
            else:
                with torch.no_grad():
                    place.copy_(value)
        if prepared:
            self._become_prepared(self.scales, self.qzeros if self.asym else self.zeros)
        self._panels = None

    def _unprepare(self) -> None:
        """The buffers of the form of files, the weight as it is."""
        device, words = self.qweight.device, self.qweight
        for name in list(self._buffers):
            delattr(self, name)
        self.__dict__.pop("zeros", None)
        self.initialize()
        for name in self._buffers:
            self._buffers[name] = self._buffers[name].to(device)
        self.qweight = words

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        keys = {*self._PASSED_OVER, *self._buffers, *self._forms()[True], *self._forms()[False]}
        take = partial(self._take_state, assign=local_metadata.get("assign_to_params_buffers", False))
        load_layer(self, keys, self._check_state, take, state_dict, prefix, local_metadata, *lists)

    def _apply(self, fn: Any, recurse: bool = True) -> WeightOnlyLinear:
        weight = self.qweight
        super()._apply(fn, recurse)
        weight.adopt(self.qweight)
        self._panels = None
        if self._prepared:
            if "zeros" not in self._buffers:  # GPTQ's zeros are the buffer qzeros under another name
                self.zeros = self.qzeros
            self._tell_weight()
        return self

    def extra_repr(self) -> str:
        kind = "GBA" if self.use_gba_quant else "GPTQ"
        return f"{self.in_channels}, {self.out_channels}, w_bit={self.w_bit}, group_size={self.group_size}, {kind}"
