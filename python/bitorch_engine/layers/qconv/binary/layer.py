"""State that binary convolutions share; numerics.md section 4."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.qconv.geometry import pair
from bitorch_engine.layers.quant_layer import QuantLayer
from bitorch_engine.layers.update_rules import SIGNS


class BinaryConvParameter(QuantParameter):
    """The int8 weight [out, in, kh, kw] of a binary convolution in training: ``DiodeMix`` flips signs."""

    rule = SIGNS


class BinaryConv2dBase(QuantLayer):
    """The weight [out, in, kh, kw] float32 and the sizes; what computes belongs to the subclasses.

    Args:
        kernel_size, stride, padding, dilation: a number, or (ours) a pair.
        dtype: of the activation's bias in subclasses.
        symmetric: whether the activation's first-batch scale is 2 * mean|x| (else 4).
        bias: ours; [out] added to the output.
    """

    _bits: ClassVar[int] = 1
    _feature_axis: ClassVar[int] = 1
    _integer_parameter: ClassVar[type[QuantParameter]] = BinaryConvParameter
    _packed_type: ClassVar[torch.dtype] = torch.uint8

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        symmetric: bool = True,
        *,
        bias: bool = False,
    ) -> None:
        window = pair("kernel_size", kernel_size, 1)
        for name, value, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
            pair(name, value, least)
        super().__init__(
            (out_channels, in_channels, *window),
            device=device,
            dtype=dtype,
            weight_dtype=torch.float32,
            latent=False,
            bias=bias,
        )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.symmetric = symmetric
        self.bits_binary_word = 8

    def set_bits_binary_word(self, num_bit: int) -> None:
        """Kept as an attribute; the packing is always by bytes."""
        self.bits_binary_word = num_bit

    def _packed_shape(self) -> tuple[int, ...]:
        out, channels, kh, kw = self._weight_shape
        if channels % 8 == 0:
            return out, kh, kw, channels // 8
        return out, math.ceil(channels * kh * kw / 8)

    def _check_forward(self, x: Tensor) -> None:
        self._check_tensor(x)
        if x.dim() != 4 or x.size(1) != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: x is {list(x.shape)}, [batch, {self.in_channels}, h, w] is wanted"
            )

    def _sizes(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={tuple(self._weight_shape[2:])}"
