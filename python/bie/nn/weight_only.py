"""State of weight-only n-bit linears: GPTQ layout, groups, double quantisation; docs/spec/weight-only.md."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bie.errors import ShapeError
from bie.nn.state.arguments import bit_width
from bie.weights.parameters import WeightOnlyParameter

_WIDTHS = (1, 2, 4, 8)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_DOUBLE_QUANTISED_BELOW = 256  # a larger group stores its scales and zeros as they are


class WeightOnlyLinear(nn.Module):
    """State of a weight-only linear of k inputs and n outputs; the forward pass belongs to the subclasses.

    Keys before ``prepare_params``, G = ceil(k / group_size), Q = ceil(n / dq_group_size):

    ==============================  ==============================================================================
    qweight                         [k / 32 * w_bit, n] int32
    g_idx                           [k] int32, the group of each row
    bias                            [n]
    wf                              [1, 32 / w_bit] int32, the shifts of a word's values
    qzeros, scales                  GPTQ: [G, n / 32 * w_bit] int32, [G, n]
    scales, zeros                   GBA: [G, n]
    qscales_zeros, qscales_scales   GBA: [1, n, 1] in dq_mode 1, [G, Q, 1] in 2
    qstatistic                      GBA symmetric: [G, Q, dq_group_size] uint8, scale in the high nibble, zero below
    qzeros_zeros, qzeros_scales     GBA symmetric: [G, Q, 1]
    qzeros, qscales                 GBA asymmetric: as GPTQ; uint8 [G, Q, dq_group_size] for 4 bits, else [G, n]
    ==============================  ==============================================================================

    Args:
        in_channels: k, a multiple of 32.
        out_channels: n; with packed zeros a multiple of 32.
        group_size: rows that share a scale, -1 for all of them.
        use_gba_quant: GBA's files, else GPTQ's (always asymmetric).
        dq_group_size: columns that share a scale of scales, -1 for all of them.
        disable_bias: whether ``bias`` is only there for files that hold it.
        requires_grad: whether training gives the weight a ``privileged_grad``.

    ``privileged_grad`` is None until a backward pass makes it (BITorch Engine allocates [k, n] at once).

    Raises:
        ValueError: a size that the layout cannot hold, an unknown dq_mode.

    Source: BITorch Engine 0.2.6 ``MPQLinearBase``; Frantar et al. 2022 (GPTQ).
    """

    _parameter: ClassVar[type[WeightOnlyParameter]] = WeightOnlyParameter

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
    ) -> None:
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
        self.requires_grad = requires_grad
        self.privileged_grad: Tensor | None = None
        self._prepared = False
        self._check_sizes()
        self.maxq = 2**self.w_bit - 1
        self.initialize()

    def _check_sizes(self) -> None:
        name = type(self).__name__
        if self.w_bit not in _WIDTHS:
            raise ShapeError(f"{name}: w_bit is {self.w_bit}, 1, 2, 4 or 8 is wanted")
        if self.in_channels < 1 or self.in_channels % 32:
            raise ShapeError(f"{name}: in_channels is {self.in_channels}, a multiple of 32 is wanted")
        multiple = 32 if self.asym else 1
        if self.out_channels < 1 or self.out_channels % multiple:
            raise ShapeError(f"{name}: out_channels is {self.out_channels}, a multiple of {multiple} is wanted")
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
    def _groups(self) -> int:
        return math.ceil(self.in_channels / self.group_size)

    @property
    def _dq_groups(self) -> int:
        return math.ceil(self.out_channels / self.dq_group_size)

    def initialize(self) -> None:
        """Makes the parameters and buffers of an unprepared layer: all-zero weight, scales 1, zeros 0."""
        self._prepared = False
        self.qweight = self._parameter(
            torch.zeros(self.in_channels // 32 * self.w_bit, self.out_channels, dtype=torch.int32),
            requires_grad=self.requires_grad,
            w_bit=self.w_bit,
            asym=self.asym,
            group_size=self.group_size,
            layer_type=1,
        )
        self.register_buffer("g_idx", torch.arange(self.in_channels, dtype=torch.int32) // self.group_size)
        self.register_buffer("bias", torch.zeros(self.out_channels, dtype=self.dtype))
        self.register_buffer("wf", torch.arange(0, 32, self.w_bit, dtype=torch.int32).unsqueeze(0))
        if self.use_gba_quant:
            self.init_gba()
        else:
            self.init_gptq()

    def _register_packed_zeros(self) -> None:
        shape = (self._groups, self.out_channels // 32 * self.w_bit)
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
        self.scales, self.zeros = scales, zeros
        stale = ["qscales_zeros", "qscales_scales", "qscales", "qstatistic", "qzeros_zeros", "qzeros_scales", "wf"]
        for name in stale + (["bias"] if self.disable_bias else []):
            if name in self._buffers:
                delattr(self, name)
        self._tell_weight()
        self._prepared = True

    def _zeros_and_scales(self) -> tuple[Tensor, Tensor]:
        double = self.use_gba_quant and self.group_size < _DOUBLE_QUANTISED_BELOW
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
        for name in ("scales", "zeros", "g_idx", "w_bit", "asym", "group_size"):
            setattr(self.qweight, name, getattr(self, name))

    def _apply(self, fn: Any, recurse: bool = True) -> WeightOnlyLinear:
        super()._apply(fn, recurse)
        if self._prepared:
            if "zeros" not in self._buffers:  # GPTQ's zeros are the buffer qzeros under another name
                self.zeros = self.qzeros
            self._tell_weight()
        return self

    def extra_repr(self) -> str:
        kind = "GBA" if self.use_gba_quant else "GPTQ"
        return f"{self.in_channels}, {self.out_channels}, w_bit={self.w_bit}, group_size={self.group_size}, {kind}"
