"""``BinaryConv2dCPP``: the plain correlation of signs, without scales; numerics.md section 4."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ONE, ops
from bitorch_engine.layers.function import OperatorFunction
from bitorch_engine.layers.qconv.binary.layer import SignsConv2d
from bitorch_engine.layers.qconv.geometry import pair


class BinaryConv2dForward(OperatorFunction):
    """``y = correlation(sign(activations), sign(weights))`` as float32, NCHW in and out; the padding is -1.

    ``apply(activations, weights, m, n, k, kernel_size, stride, padding, dilation, output_edge)``: ``weights`` is a
    float ``[n, in, kh, kw]`` or packed uint8 as ``BinaryConv2dCPP.qweight``, k = in * kh * kw. ``m`` and
    ``output_edge`` follow from the activations and are not read.
    """

    @staticmethod
    def call(
        activations: Tensor,
        weights: Tensor,
        m: int,
        n: int,
        k: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int],
        padding: int | tuple[int, int],
        dilation: int | tuple[int, int],
        output_edge: int,
    ) -> Tensor:
        if weights.dtype == torch.uint8:
            weights = weights.reshape(n, math.ceil(k / 8))
        return ops.binary_conv2d(
            activations.float(),
            weights,
            ONE,
            ONE,
            kernel_size=pair("kernel_size", kernel_size, 1),
            stride=pair("stride", stride, 1),
            padding=pair("padding", padding, 0),
            dilation=pair("dilation", dilation, 1),
        )


class BinaryConv2dCPP(SignsConv2d):
    """``y = correlation(sign(x), sign(w))`` as float32: neither ``bias_a`` nor scales.

    Backward as :class:`BinaryConv2dCutlass` with all scales 1 (BITorch Engine has none); the weight trains as a float.
    ``qweight`` is the same bytes, flat. Source: numerics.md section 4.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"latent": True} | kwargs)

    def prepare_params(self) -> None:
        """Does nothing: the weight trains as a float."""

    def _packed_shape(self) -> tuple[int, ...]:
        return (self.out_channels * self._row_bytes(),)

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return ops.binary_conv2d(x.float(), weight, ONE, ONE, **options)
