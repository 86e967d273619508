"""``Q8LinearCutlass``, ``Q8MatMul`` and their function forms."""

from __future__ import annotations

from torch import Tensor

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.matmul_layer import CodesMatMul, MatMulLayer
from bitorch_engine.layers.qlinear.nbit.layer import CodesLinear


class Q8LinearFunction(OperatorFunction):
    """:class:`Q8LinearCutlass` as a function of its tensors (bias already added).

    ``apply(x, weight, scale_a, scale_w, eps, is_train)``; ``weight`` is float ``[n, k]`` or int8, ``eps`` a 0-dim
    tensor; gradients ``(x, weight, scale_a, None, None, None)``. With ``is_train=False`` nothing is saved.
    """

    @staticmethod
    def call(x: Tensor, weight: Tensor, scale_a: Tensor, scale_w: Tensor, eps: Tensor, is_train: bool) -> Tensor:
        scale = None if weight.is_floating_point() else scale_w  # a float weight brings its own
        with in_training(is_train):
            return ops.q8_linear(x, weight, scale_a, scale, eps=float(eps), anchor=ANCHOR if is_train else None)


class Q8LinearCutlass(CodesLinear):
    """Linear layer with 8-bit weights and activations: ``y = (q_a . q_w^T) * scale_a * scale_w``, exact in int32.

    ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -128, 127)``, ``q_w`` the same with ``scale_w``;
    in training a float weight has ``scale_w = 2 * mean|w| / 11.269`` anew in each forward, the first batch sets
    ``scale_a`` likewise.
    x is ``[..., k]`` float32, float16 or bfloat16 (or int8 codes); y has x's dtype. ``qweight`` is ``[n, k]`` int8.

    Backward (``exact``, learned step size quantization, Esser et al. 2020), with ``v = (x + bias_a) / scale_a`` and
    ``up = g . (q_w * scale_w)``: ``grad_x = up`` where v is in range, else 0;
    ``grad_scale_a = sum(term(v) * up) / sqrt(numel(x) * 127)``, term = the bound outside, ``rint(v) - v`` inside;
    ``grad_w = g^T . (q_a * scale_a)``, 0 where the weight's quantiser clips. Source: numerics.md section 5.
    """

    _bits = 8

    def prepare_params(self) -> None:
        """Makes int8 codes of the weight where the layer is not ``latent``; else does nothing."""
        self._prepare_codes()


class Q8MatMulFunction(OperatorFunction):
    """:class:`Q8MatMul` as a function of its tensors.

    ``apply(x, y, x_clip, y_clip, eps, is_train)``, ``eps`` a 0-dim tensor; gradients ``(x, y, x_clip, y_clip, None,
    None)``. With ``is_train=False`` nothing is saved.
    """

    @staticmethod
    def call(x: Tensor, y: Tensor, x_clip: Tensor, y_clip: Tensor, eps: Tensor, is_train: bool) -> Tensor:
        with in_training(is_train):
            return ops.q8_matmul(x, y, x_clip, y_clip, eps=float(eps))


class Q8MatMul(CodesMatMul):
    __doc__ = f"""``out = (q_x . q_y^T) * x_clip * y_clip``, exact in int32: the product of two 8-bit activations.

    ``q_x = clamp(rint(x / max(x_clip, eps)), -128, 127)``, ``q_y`` likewise; the first batch sets
    ``x_clip = 2*mean|x| / 11.269`` and ``y_clip`` from y.
    BITorch Engine has none.

    Backward: each side as the activation of :class:`Q8LinearCutlass`, the other one being its weight.
    Source: numerics.md sections 5 and 6.

    {MatMulLayer.__doc__}"""

    _bits = 8
