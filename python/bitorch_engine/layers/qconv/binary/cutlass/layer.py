"""The binary convolution with learned activation scale and bias; numerics.md section 4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._missing import awaits
from bitorch_engine.layers.qconv.binary.layer import BinaryConv2dBase


@awaits("binary_conv2d")
class BinaryConv2dForward(torch.autograd.Function):
    """``y = S * correlation(sgn(x), sgn(weight))``, NCHW in and out.

    ``apply(x, weight, scale_a, scale_w, is_train, kernel_size, stride, padding, dilation)``; gradients
    ``(x, weight, scale_a, None x 6)``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        scale_a: Tensor,
        scale_w: Tensor,
        is_train: bool,
        kernel_size: int,
        stride: int,
        padding: int,
        dilation: int,
    ) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError


@awaits("binary_conv2d")
class BinaryConv2dCutlass(BinaryConv2dBase):
    """State beyond the base's: ``bias_a`` [in_channels], ``scale_a`` and ``scale_w`` 0-dim."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def set_activation(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError
