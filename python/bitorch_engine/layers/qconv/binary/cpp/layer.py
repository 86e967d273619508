"""The plain binary convolution, without scales; numerics.md section 4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._missing import awaits
from bitorch_engine.layers.qconv.binary.layer import BinaryConv2dBase


@awaits("binary_conv2d")
class BinaryConv2dForward(torch.autograd.Function):
    """``y = correlation(sgn(activations), sgn(weights))``, NCHW in and out.

    ``apply(activations, weights, m, n, k, kernel_size, stride, padding, dilation, output_edge)``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        activations: Tensor,
        weights: Tensor,
        m: int,
        n: int,
        k: int,
        kernel_size: int,
        stride: int,
        padding: int,
        dilation: int,
        output_edge: int,
    ) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError


@awaits("binary_conv2d")
class BinaryConv2dCPP(BinaryConv2dBase):
    """No ``bias_a``, no scales: the output is the plain correlation of signs, float32."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError
