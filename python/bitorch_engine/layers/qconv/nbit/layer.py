"""Base of the 8- and 4-bit convolutions and the parameter class of their codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.layers.codes_layer import CodesLayer
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.qconv.conv_layer import ConvLayer
from bitorch_engine.layers.step_size import bit_width
from bitorch_engine.layers.update_rules import CODES

_CONV = {8: ops.q8_conv2d.default, 4: ops.q4_conv2d.default}


class nBitConvParameter(QuantParameter):
    """The weight of an 8- or 4-bit convolution: float, or int8 codes whose weight is ``code * scale_w``."""

    rule = CODES


class nBitConv2dBase(ConvLayer):
    """Common to all n-bit convolutions: sizes and the float weight ``[out, in/groups, kh, kw]``.

    See :class:`QuantLayer`.

    Args:
        in_channels, out_channels: any positive numbers that ``groups`` divides.
        kernel_size, stride, padding, dilation: integers or pairs (height, width).
        a_bit, w_bit: kept as attributes; the class says how many bits are used.
        device: where the tensors are made.
        dtype: of ``bias_a``: float32, float16 or bfloat16. The float weight is float32.
        latent: keep the weight as a float that any optimizer trains; else int8 codes for ``DiodeMix``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        grad_mode: ``"exact"`` or ``"reference"``.
        compat: ``"none"`` or ``"bie-0.2.6"``.
        channel_scale: a scale for each output channel, beside ``scale_w``.
        groups: as in ``nn.Conv2d``.
    """

    _integer_parameter = nBitConvParameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        a_bit: int = 4,
        w_bit: int = 4,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        bias: bool = False,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
        channel_scale: bool = False,
        groups: int = 1,
    ) -> None:
        a_bit, w_bit = bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)
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
            grad_mode=grad_mode,
            compat=compat,
            channel_scale=channel_scale,
        )
        self.a_bit, self.w_bit = a_bit, w_bit


class CodesConv2d(CodesLayer, nBitConv2dBase):
    """What the 8- and the 4-bit convolution share."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._register_activation(scale_w_is_parameter=False, eps=True)

    def prepare_params(self) -> None:
        """Sets the scale of a latent 4-bit weight once; makes codes of the weight of a layer that is not latent."""
        self._prepare_codes()

    def _packed_label(self) -> tuple[int, ...]:
        return tuple(self._weight_shape) if self._bits == 8 else super()._packed_label()

    def _check_forward(self, x: Tensor) -> None:
        self._check_image(x)
        self._check_dtype(x)
        self._check_window(x)

    def _prepack(self, packed: Tensor) -> Tensor:
        if self._bits == 8:
            return ops.q8_conv2d_prepack(packed, self.groups)
        return ops.q4_conv2d_prepack(packed, self.in_channels, self._geometry["kernel_size"], self.groups)

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return _CONV[self._bits](x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)
