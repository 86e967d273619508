"""What weight-only n-bit linears share: GPTQ's words, groups, the product and its gradients.

Source: docs/spec/weight-only.md.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bie._operators import ops
from bie._outside_graphs import outside_graphs
from bie.errors import ShapeError
from bie.nn.state.arguments import ACTIVATIONS, bit_width, one_of, shared
from bie.nn.state.panels import Panels
from bie.nn.state.step_size import kept_dtypes
from bie.nn.state.untaken_codes import watch
from bie.nn.state.weight_only_state import WeightOnlyState
from bie.nn.state.weight_state import moving, ordinary
from bie.weights.gptq import Coded, coded

_WIDTHS = (1, 2, 3, 4, 5, 6, 8)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class WeightOnlyLinear(WeightOnlyState):
    """Base of the weight-only linears: k inputs, n outputs, a weight of codes that stays packed, float activations.

    ``y = x . W (+ bias)`` in float32, in an order of the sum that k and the groups alone decide: the same bits for
    every batch, number of threads and instruction set; y is rounded once to x's dtype. With ``activation="int8"`` x
    becomes 8-bit codes first, with a step size for each row and group, and the products are of integers: faster and
    less exact; docs/spec/weight-only.md#int8-activations. Gradients are those of x as it is.

    Under ``torch.autocast`` x becomes autocast's dtype first.

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
        train_bias: whether ``bias`` is a parameter; a buffer, as files of BITorch Engine have it, if not.
        master: keep in ``rest`` [k, n] what the codes cannot hold; without it ``DiodeMix`` rounds them at random.
            True is bfloat16, in units of the weight, and codes are rounded to the nearest. torch.int8 is the place
            between two codes in steps of 1/256 of a code (docs/spec/optimizer.md#places-between-codes).
        levels: how many codes ``DiodeMix`` uses of a weight with ``master=torch.int8`` or of one whose scales it
            trains: 2**w_bit, or 3 of 2 bits for ternary weights.
        device: where the tensors are made.
        activation: ``"exact"``, or ``"int8"`` for products of 8-bit activations; an attribute that may be set.

    Raises:
        ValueError: a size that is not positive, an unknown width, dq_mode or activation.
        ValueError (``forward``): x of another number of features; a group index or order out of range; a group of more
            than 131,072 rows with ``activation="int8"``.

    Source: BITorch Engine 0.2.6 ``MPQLinearBase``; Frantar et al. 2022 (GPTQ).
    """

    _checks_parameters: ClassVar[bool] = False  # when it is made
    _told_of_gradient: bool = False  # whether a warning said that no optimizer takes it

    @shared
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
        train_bias: bool = False,
        master: bool | torch.dtype = False,
        levels: int | None = None,
        activation: str = "exact",
        device: torch.device | str | None = None,
    ) -> None:
        with torch.inference_mode(False):
            super().__init__()
            self.in_channels, self.out_channels = in_channels, out_channels
            self.a_bit, self.w_bit = bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)
            self.dtype = dtype
            self.group_size = group_size if group_size > -1 else in_channels
            self.use_gba_quant = use_gba_quant
            self.dq_group_size = dq_group_size if dq_group_size > -1 else out_channels
            self.dq_mode = dq_mode
            self.disable_bias = disable_bias
            self.asym = asym or not use_gba_quant
            self.train_bias = train_bias and not disable_bias
            self.requires_grad = requires_grad
            self.master = one_of(f"{type(self).__name__}: master", master, (False, True, torch.bfloat16, torch.int8))
            self.levels = 2**self.w_bit if levels is None else levels
            if not 2 <= self.levels <= 2**self.w_bit:
                raise ValueError(
                    f"{type(self).__name__}: levels: expected 2 ... {2**self.w_bit} of {self.w_bit} bits, got {levels}"
                )
            self._prepared = False
            self._panels = Panels()
            self.activation = activation
            self._row_options: dict[str, Any] | None = None
            self._words: Tensor | None = None  # qweight's memory as a plain tensor: AOTInductor takes no other class
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
            raise ShapeError(f"{name}: w_bit: expected 1, 2, 3, 4, 5, 6 or 8, got {self.w_bit}")
        for size in ("in_channels", "out_channels"):
            if getattr(self, size) < 1:
                raise ShapeError(f"{name}: {size}: expected a positive number, got {getattr(self, size)}")
        if self.group_size < 1 or self.dq_group_size < 1:
            raise ShapeError(
                f"{name}: group_size and dq_group_size: expected -1 or a positive number, got {self.group_size} "
                f"and {self.dq_group_size}"
            )
        if self.dq_mode not in (1, 2):
            raise ValueError(f"{name}: dq_mode: expected 1 or 2, got {self.dq_mode}")

    def check_parameters(self) -> None:
        """``ShapeError`` unless the bits and the dtype are ones that a weight-only linear computes with."""
        name = type(self).__name__
        if self.a_bit != 16:
            raise ShapeError(f"{name}: a_bit: expected 16, got {self.a_bit}")
        if self.dtype not in _DTYPES:
            raise ShapeError(f"{name}: dtype: expected float16, bfloat16 or float32, got {self.dtype}")
        self._check_sizes()

    @property
    def activation(self) -> str:
        """``"exact"``, or ``"int8"``: x becomes 8-bit codes before it is multiplied."""
        return self._activation

    @activation.setter
    def activation(self, activation: str) -> None:
        self._activation = one_of(f"{type(self).__name__}: activation", activation, ACTIVATIONS)
        self._panels.forget()

    @property
    def in_features(self) -> int:
        """``in_channels`` under torch's name."""
        return self.in_channels

    @property
    def out_features(self) -> int:
        """``out_channels`` under torch's name."""
        return self.out_channels

    @property
    def privileged_grad(self) -> Tensor | None:
        """The gradient of the weight as floats, [k, n] float32, or None."""
        return self.qweight.privileged_grad

    @privileged_grad.setter
    def privileged_grad(self, grad: Tensor | None) -> None:
        self.qweight.privileged_grad = grad

    def set_qweight_data(self, data: Tensor) -> None:
        """Copies a packed weight; ``ShapeError`` unless it has the same shape and is int32, or int64 that fits."""
        if data.dtype == torch.int64 and data.numel() and int(data.min()) >= -(2**31) and int(data.max()) < 2**32:
            data = data.to(torch.int32)
        if data.dtype != torch.int32 or data.shape != self.qweight.shape:
            wanted, got = f"{list(self.qweight.shape)} of torch.int32", f"{list(data.shape)} of {data.dtype}"
            raise ShapeError(f"{type(self).__name__}: qweight: expected {wanted}, got {got}")
        self.qweight.data = ordinary(data.detach().to(self.qweight.device, copy=True))
        self._words = self.qweight.detach()

    def set_weight_data(self, weight: Tensor) -> None:
        """Codes of a float weight [n, k], as ``nn.Linear`` has it, by round to nearest; the layer is prepared then.

        A group spans its least and its greatest weight (GPTQ's zeros are whole numbers in 1...2^w_bit); see
        docs/spec/weight-only.md#round-to-nearest, for 1 bit too.

        Raises:
            ShapeError: another shape. ValueError: NaN or infinity, or a range too large for ``dtype``.
        """
        shape = (self.out_channels, self.in_channels)
        if tuple(weight.shape) != shape:
            raise ShapeError(f"{type(self).__name__}: the weight: expected {list(shape)}, got {list(weight.shape)}")
        device, asym = self.qweight.device, self.asym
        ranges = ops.weight_only_ranges(weight, self.w_bit, self.group_size, asym=asym, dtype=self.dtype)
        scales, zeros = (table.to(device) for table in ranges)
        self.g_idx.copy_(torch.arange(self.in_channels, dtype=torch.int32, device=device) // self.group_size)
        self._become_prepared(scales, self.qzeros.copy_(zeros) if asym else zeros)
        values = weight.detach().t().to(device=device, dtype=torch.float32).contiguous()
        with torch.no_grad():
            self.qweight.copy_(ops.weight_only_pack(values, scales, zeros, **self._coded().options))
            if self.master:
                now, k = self._coded(), self.in_channels
                opened = ops.weight_only_open(*now.tensors, in_features=k, dtype=torch.float32, **now.options)
                self.rest.copy_(self._rest_of(values - opened, scales))

    def _rest_of(self, left: Tensor, scales: Tensor) -> Tensor:
        """What is left of a weight [k, n] beside its codes, as ``rest`` holds it."""
        if self.rest_dtype != torch.int8:
            return left
        wide = scales.float()[self.g_idx.long()]
        return torch.where(wide == 0, 0, left / wide * 256).round_().clamp_(-128, 127)

    def set_codes(self, codes: Tensor, scales: Tensor, zeros: Tensor, g_idx: Tensor | None = None) -> None:
        """Takes a weight that was quantised elsewhere; the layer is prepared then.

        Args:
            codes: [k, n] integers in 0...2^w_bit - 1.
            scales: [G, n] float.
            zeros: [G, n] float, already multiplied; with ``asym`` int32 [G, ceil(n * w_bit / 32)] as GPTQ packs them.
            g_idx: [k] int32, the group of each row; consecutive groups where it is not given.

        Raises:
            ValueError: another shape or dtype, NaN, infinity, codes or groups out of range.
        """
        k, n, name = self.in_channels, self.out_channels, type(self).__name__
        order = torch.arange(k, dtype=torch.int32) // self.group_size if g_idx is None else g_idx
        shapes = self._forms()[True]
        key = "qzeros" if self.asym else "zeros"
        scales = self._check_entry(f"{name}: scales", "scales", scales, shapes["scales"])
        zeros = self._check_entry(f"{name}: zeros", key, zeros, shapes[key])
        order = self._check_entry(f"{name}: g_idx", "g_idx", order, (k,))
        ops.check_entry(codes, (k, n), torch.int32, f"{name}: codes")
        if bool((codes < 0).any()) or bool((codes > self.maxq).any()):
            raise ValueError(f"{name}: codes are outside [0, {self.maxq}]")
        device = self.qweight.device
        self.g_idx.copy_(order)
        zeros = zeros.to(device)
        self._become_prepared(
            scales.to(device, self.dtype, copy=True).contiguous(),
            self.qzeros.copy_(zeros) if self.asym else zeros.to(self.dtype, copy=True).contiguous(),
        )
        with torch.no_grad():
            self.qweight.copy_(ops.pack_words(codes.to(device), self.w_bit, 0))
            if self.master:
                self.rest.zero_()

    def generate_quantized_weight(self, qweight_only: bool = False) -> None:
        """``NotImplementedError``: the weight is packed from the start."""
        raise NotImplementedError(
            f"{type(self).__name__}: the weight is always packed, there is none to generate it from"
        )

    def packed_state(self) -> dict[str, Tensor]:
        """The layer's tensors by their keys: the weight is packed as it is."""
        return {name: tensor.detach() for name, tensor in self.state_dict(keep_vars=True).items()}

    def _tell_weight(self) -> None:
        self._row_options, self._words = None, self.qweight.detach()
        self.qweight.rest, self.qweight.levels = self._buffers.get("rest"), self.levels
        for name in ("scales", "zeros", "g_idx", "w_bit", "asym", "group_size"):
            setattr(self.qweight, name, getattr(self, name))

    def _coded(self) -> Coded:
        """The weight as the operators take it; what is known of its rows is kept from call to call."""
        told = ("scales", "zeros", *(name for name in ("g_idx", "q_perm") if name in self._buffers))
        if any(getattr(self.qweight, name) is not getattr(self, name) for name in told):  # one was assigned
            self._tell_weight()
        if (options := self._row_options) is None:
            self._row_options = options = coded(type(self).__name__, self.qweight).options
        return Coded(self.qweight.detach(), self.scales, self.zeros, options, self.in_channels)

    def _exported(self) -> Coded:
        """The weight as constants of an exported program, in whose trace parameters have no attributes."""
        if self._words is None or self._row_options is None:
            raise RuntimeError(f"{type(self).__name__}: call eval() before the export")
        options = {name: self._buffers.get(name, value) for name, value in self._row_options.items()}
        return Coded(self._words, self.scales, self.zeros, options, self.in_channels)

    # The forward pass.

    def forward(self, x: Tensor) -> Tensor:
        if not self._prepared:
            self.prepare_params()
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: x: expected a tensor, got a {type(x).__name__}")
        if x.dim() < 1 or x.shape[-1] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: x: expected the layer's {self.in_channels} features, got {list(x.shape)}"
            )
        if torch.is_autocast_enabled(x.device.type):  # as nn.Linear's input does
            x = x.to(torch.get_autocast_dtype(x.device.type))
        if self.training and self.qweight.trainable and torch.is_grad_enabled():
            return self._train(x)
        exporting = getattr(torch.compiler, "_is_exporting_flag", False)
        weight, bias = self._exported() if exporting else self._coded(), getattr(self, "bias", None)
        activation = self._activation_options()
        options = weight.options | self._input_options() | activation
        if not self.training:
            options["panels"] = self._current_panels(weight, weight.options | activation)
        return ops.weight_only_linear(x, *weight.tensors, bias, **options)

    if TYPE_CHECKING:  # calls have the types of forward, for editors and checkers
        __call__ = forward

    def _train(self, x: Tensor) -> Tensor:
        weight, bias = self._coded(), getattr(self, "bias", None)
        anchor = getattr(self.qweight, "_anchor", None) if torch.compiler.is_compiling() else None
        if anchor is None or anchor.device != x.device:
            anchor = self._anchor()
        options = weight.options | self._input_options() | self._activation_options()
        return ops.weight_only_linear(x, *weight.tensors, bias, **options, anchor=anchor)

    @outside_graphs("the leaf that gradients of packed codes come to is made outside of graphs, which then read it")
    def _anchor(self) -> Tensor:
        self.qweight.awaits_gradient = True
        watch(self)
        return self.qweight.anchor((self.in_channels, self.out_channels))

    def _input_options(self) -> dict[str, Any]:
        """What the product does to x first."""
        return {}

    def _activation_options(self) -> dict[str, Any]:
        """What the product and its panels are told of x's codes, unless it is their default."""
        return {"int8_activations": True} if self._activation == "int8" else {}

    def _current_panels(self, weight: Coded, options: dict[str, Any]) -> Tensor | None:
        def make() -> Tensor:
            return ops.weight_only_prepack(*weight.tensors, in_features=self.in_channels, **options)

        rows = (weight.options.get("g_idx"), weight.options.get("q_perm"))
        return self._panels.current((*weight.tensors, *rows), make)

    def repack(self) -> None:
        """Forgets the kernel's arrangement of the weight; needed after a write through ``.data``."""
        self._panels.forget()

    def train(self, mode: bool = True) -> WeightOnlyLinear:
        self._panels.forget()
        self._look_at_rows()
        return super().train(mode)

    def _look_at_rows(self) -> None:
        """What an export must know of the weight, where the weight is there."""
        # transformers puts plain parameters into the places of ours while it reads a file (bie.hf).
        if self._prepared and not self.qweight.is_meta and isinstance(self.qweight, self._parameter):
            with contextlib.suppress(ValueError):  # of a table that is not filled yet: said when it is needed
                self._coded()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_row_options": None, "_words": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        older = {
            "master": False,
            "levels": 2 ** state["w_bit"],
            "train_bias": False,
            "_activation": "exact",
            "_row_options": None,
        }
        super().__setstate__(older | state | {"_panels": Panels(), "_words": None})
        self._words = self.qweight.detach()
        self._look_at_rows()

    def _apply(self, fn: Any, recurse: bool = True) -> WeightOnlyLinear:
        weight = self.qweight
        with moving(self), kept_dtypes(self, ["rest"] if "rest" in self._buffers else []):
            super()._apply(fn, recurse)
        weight.adopt(self.qweight)
        self._panels.forget()
        if self._prepared:
            if "zeros" not in self._buffers:  # GPTQ's zeros are the buffer qzeros under another name
                self.zeros = self.qzeros
            self._tell_weight()
            self._look_at_rows()
        return self

    def extra_repr(self) -> str:
        parts = [self.in_channels, self.out_channels, f"w_bit={self.w_bit}", f"group_size={self.group_size}"]
        parts.append("GBA" if self.use_gba_quant else "GPTQ")
        if self._activation != "exact":
            parts.append(f"activation={self._activation}")
        if self._panels.kernel:
            parts.append(f"kernel={self._panels.kernel}")
        return ", ".join(map(str, parts))
