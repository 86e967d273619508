"""``Q4LinearCutlass`` and its function form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitorch_engine._missing import awaits
from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.qlinear.nbit.layer import CodesLinear


class Q4LinearFunction(OperatorFunction):
    """:class:`Q4LinearCutlass` as a function of its tensors (bias already added).

    ``apply(x, weight, scale_a, scale_w, eps, is_train)``; ``weight`` is float ``[n, k]`` or int8, ``eps`` a 0-dim
    tensor; gradients ``(x, weight, scale_a, None, None, None)``. With ``is_train=False`` nothing is saved.
    """

    @staticmethod
    def call(x: Tensor, weight: Tensor, scale_a: Tensor, scale_w: Tensor, eps: Tensor, is_train: bool) -> Tensor:
        plain = weight.shape[-1] == x.shape[-1]  # codes one a byte; packed ones have no gradient
        with in_training(is_train):
            anchor = ANCHOR if is_train and plain else None
            return ops.q4_linear(x, weight, scale_a, scale_w, eps=float(eps), anchor=anchor)


class Q4LinearCutlass(CodesLinear):
    """Linear layer with 4-bit weights and activations: ``y = (q_a . q_w^T) * scale_a * scale_w``, exact in int32.

    ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -8, 7)``, ``q_w`` the same with ``scale_w``;
    ``prepare_params`` (or the first training forward) sets ``scale_w = max(2 * mean|w| / 5.6345, eps)`` once, the first
    batch ``scale_a`` likewise.
    x is ``[..., k]`` float32, float16 or bfloat16 (or packed int8 codes); y has x's dtype. ``qweight`` is int8
    ``[n, ceil(k/2)]``.

    Backward (``exact``, learned step size quantization, Esser et al. 2020), with ``v = (x + bias_a) / scale_a`` and
    ``up = g . (q_w * scale_w)``: ``grad_x = up`` where v is in range, else 0;
    ``grad_scale_a = sum(term(v) * up) / sqrt(numel(x) * 7)``, term = the bound outside, ``rint(v) - v`` inside;
    ``grad_w = g^T . (q_a * scale_a)``, 0 where the weight's quantiser clips. Source: numerics.md section 6.
    """

    _bits = 4

    def prepare_params(self) -> None:
        """``scale_w = max(2 * mean|w| / 5.6345, eps)``, once; int8 codes where the layer is not ``latent``."""
        self._prepare_codes()


@awaits("q4_matmul")
class Q4MatMulFunction(torch.autograd.Function):
    """``apply(x, y, x_clip, y_clip, eps, is_train)``: the product of two 4-bit activations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor, eps: Tensor, is_train: bool) -> Tensor:
        raise NotImplementedError


@awaits("q4_matmul")
class Q4MatMul(torch.nn.Module):
    """Product of two 4-bit activations ``[..., m, k]`` and ``[..., n, k]`` with learned clips."""

    def __init__(self, dtype: torch.dtype = torch.float, device: torch.device | str | None = None) -> None:
        super().__init__()
