"""``BinaryLinearCPP``: the plain product of signs, without scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ONE, ops
from bitorch_engine.layers.function import OperatorFunction
from bitorch_engine.layers.qlinear.binary.layer import PackedSigns


class BinaryLinearForward(OperatorFunction):
    """``apply(input, weights, m, n, k)``: ``[m, n]`` float32 products of the signs of ``[m, k]`` and ``[n, k]``.

    ``weights`` is a float ``[n, k]``, or flat column-packed uint8 as ``BinaryLinearCPP.qweight``.
    """

    @staticmethod
    def call(input: Tensor, weights: Tensor, m: int, n: int, k: int) -> Tensor:
        if weights.dtype == torch.uint8 and weights.dim() == 1:
            weights = ops.signs_from_layout(weights, n, k, "columns")
        return ops.binary_linear(input.reshape(m, k).float(), weights, ONE, ONE)


class BinaryLinearCPP(PackedSigns):
    """``y = k - 2 * popcount(bit(x) XOR bit(w))`` as float32 ``[..., n]``: neither ``bias_a`` nor scales.

    Backward as :class:`BinaryLinearCutlass` with all scales 1 (BITorch Engine has none); the weight trains as a float.
    ``qweight`` is flat uint8, column-packed, where k is a multiple of 8, else ``[n, ceil(k/8)]``.
    Source: numerics.md section 3.
    """

    def __init__(
        self,
        input_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__(input_features, out_features, device, latent=True, bias=bias)

    def prepare_params(self) -> None:
        """Does nothing: the weight trains as a float."""

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        if x.dtype == torch.uint8:
            options = options | {"in_features": self.input_features}
        else:
            x = x.float()
        return ops.binary_linear(x, weight, ONE, ONE, **options)

    def _stored_layout(self) -> str | None:
        return "columns" if self.input_features % 8 == 0 else None
