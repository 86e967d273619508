"""Base of the binary convolutions and the parameter class of their weights; numerics.md section 4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.qconv.conv_layer import ConvLayer
from bitorch_engine.layers.signs_layer import SignsLayer
from bitorch_engine.layers.update_rules import SIGNS


class BinaryConvParameter(QuantParameter):
    """The weight of a binary convolution: int8, its sign is the weight. ``DiodeMix`` flips signs."""

    rule = SIGNS


class BinaryConv2dBase(ConvLayer):
    """Common to all binary convolutions: sizes and the float weight ``[out, in/groups, kh, kw]``. See
    :class:`QuantLayer`.

    Args:
        in_channels, out_channels: any positive numbers.
        kernel_size, stride, padding, dilation: integers or pairs (height, width).
        device: where the tensors are made.
        dtype: of ``bias_a``: float32, float16 or bfloat16. The float weight is float32.
        symmetric: the first batch sets ``scale_a`` to ``2 * mean|x|``; ``4 * mean|x|`` if not.
        groups: ours; divides both numbers of channels, as in ``torch.nn.Conv2d``.
        padding_value: ours; what lies outside the image: -1 as BITorch Engine pads, or 0 as every float convolution
            does.
        latent: keep the weight as a float that any optimizer trains, instead of int8 for ``DiodeMix``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        compat: ``"none"`` or ``"bie-0.2.6"``.
    """

    _bits = 1
    _packed_type = torch.uint8
    _integer_parameter = BinaryConvParameter

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
        groups: int = 1,
        padding_value: int = -1,
        latent: bool = False,
        bias: bool = False,
        compat: str = "none",
    ) -> None:
        if padding_value not in (-1, 0) or isinstance(padding_value, bool):
            raise ValueError(f"padding_value is {padding_value}, -1 or 0 is wanted")
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups=groups,
            device=device,
            dtype=dtype,
            weight_dtype=torch.float32,
            latent=latent,
            bias=bias,
            compat=compat,
        )
        self.padding_value = padding_value
        self.symmetric = symmetric
        self.bits_binary_word = 8

    def set_bits_binary_word(self, num_bit: int) -> None:
        """Kept as an attribute; the packing is always by bytes."""
        self.bits_binary_word = num_bit

    def _sizes(self) -> str:
        return super()._sizes() + (f", padding_value={self.padding_value}" if self.padding_value != -1 else "")


class SignsConv2d(SignsLayer, BinaryConv2dBase):
    """What all binary convolutions share that compute something."""

    def _check_forward(self, x: Tensor) -> None:
        self._check_image(x)
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise self._shape_error(x, "float32, float16 or bfloat16 is wanted")
        self._check_window(x)

    def _prepack(self, packed: Tensor) -> Tensor:
        kernel = self._geometry["kernel_size"]
        return ops.binary_conv2d_prepack(packed, self.in_channels, kernel, self.groups, self.padding_value)

    def _to_file(self, packed: Tensor) -> Tensor:
        return packed.view(self._packed_shape())

    def _from_file(self, qweight: Tensor) -> Tensor:
        # The operator reads filters of any shape but flat ones, and tells by the tensor whether its panels are stale.
        return qweight if qweight.dim() > 1 else qweight.view(self.out_channels, self._row_bytes())

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        options = super()._options(panels, anchor)
        if self.padding_value != -1:
            options["padding_value"] = self.padding_value
        return options
