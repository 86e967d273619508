"""Base of the 4-bit convolutions and the parameter class of their codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.layers.codes_layer import CodesLayer
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.qconv.conv_layer import ConvLayer
from bitorch_engine.layers.update_rules import CODES


class nBitConvParameter(QuantParameter):
    """The weight of a 4-bit convolution: float, or int8 codes whose weight is ``code * scale_w``."""

    rule = CODES


class nBitConv2dBase(ConvLayer):
    """Common to all n-bit convolutions: sizes and the float weight ``[out, in, kh, kw]``. See :class:`QuantLayer`.

    Args:
        in_channels, out_channels: any positive numbers.
        kernel_size, stride, padding, dilation: integers or pairs (height, width).
        a_bit, w_bit: kept as attributes; the class says how many bits are used.
        device: where the tensors are made.
        dtype: of ``bias_a``: float32, float16 or bfloat16. The float weight is float32.
        latent: keep the weight as a float that any optimizer trains; else int8 codes for ``DiodeMix``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        grad_mode: ``"exact"`` or ``"reference"``.
        compat: ``"none"`` or ``"bie-0.2.6"``.
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
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            device=device,
            dtype=dtype,
            weight_dtype=torch.float32,
            latent=latent,
            bias=bias,
            grad_mode=grad_mode,
            compat=compat,
        )
        self.a_bit, self.w_bit = a_bit, w_bit


class CodesConv2d(CodesLayer, nBitConv2dBase):
    """A convolution of 4-bit codes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._register_activation(scale_w_is_parameter=False, eps=True)

    def _check_forward(self, x: Tensor) -> None:
        self._check_image(x)
        self._check_dtype(x)
        self._check_window(x)

    def _prepack(self, packed: Tensor) -> Tensor:
        return ops.q4_conv2d_prepack(packed, self.in_channels, self._geometry["kernel_size"])

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return ops.q4_conv2d.default(x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)
