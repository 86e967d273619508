"""``Q4LinearCutlass``, ``Q4MatMul`` and their function forms."""

from __future__ import annotations

from torch import Tensor

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.matmul_layer import CodesMatMul, MatMulLayer
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


class Q4MatMulFunction(OperatorFunction):
    """:class:`Q4MatMul` as a function of its tensors.

    ``apply(x, y, x_clip, y_clip, eps, is_train)``, ``eps`` a 0-dim tensor; gradients ``(x, y, x_clip, y_clip, None,
    None)``. With ``is_train=False`` nothing is saved.
    """

    @staticmethod
    def call(x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor, eps: Tensor, is_train: bool) -> Tensor:
        with in_training(is_train):
            return ops.q4_matmul(x, y, x_clip, y_clip, eps=float(eps))


class Q4MatMul(CodesMatMul):
    __doc__ = f"""``out = (q_x . q_y^T) * x_clip * y_clip``, exact in int32: the product of two 4-bit activations.

    ``q_x = clamp(rint(x / max(x_clip, eps)), -8, 7)``, ``q_y`` likewise; the first batch sets
    ``x_clip = 2*mean|x| / 5.6345`` and ``y_clip`` from y.
    BITorch Engine takes ``y_clip`` from x too, clips the gradient at 8 bits and
    quantises it; here it is the float one.

    Backward: each side as the activation of :class:`Q4LinearCutlass`, the other one being its weight.
    Source: numerics.md section 6.

    {MatMulLayer.__doc__}"""

    _bits = 4
