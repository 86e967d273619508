"""``Q4LinearCutlass``, ``Q4MatMul`` and their function forms."""

from __future__ import annotations

from bie.bitorch import functions
from bie.nn import Q4Linear, Q4MatMul
from bitorch_engine.layers.qlinear.nbit.layer import nBitLinearBase

__all__ = ["Q4LinearCutlass", "Q4LinearFunction", "Q4MatMul", "Q4MatMulFunction"]


class Q4LinearFunction(functions.OperatorFunction):
    """:class:`Q4LinearCutlass` as a function of its tensors (bias already added).

    ``apply(x, weight, scale_a, scale_w, eps, is_train)``; ``weight`` is float ``[n, k]`` or int8, ``eps`` a 0-dim
    tensor; gradients ``(x, weight, scale_a, None, None, None)``. With ``is_train=False`` nothing is saved.
    """

    call = staticmethod(functions.q4_linear)


class Q4LinearCutlass(nBitLinearBase, Q4Linear):
    """:class:`bie.nn.Q4Linear` with the arguments of :class:`nBitLinearBase`."""


class Q4MatMulFunction(functions.OperatorFunction):
    """:class:`Q4MatMul` as a function of its tensors.

    ``apply(x, y, x_clip, y_clip, eps, is_train)``, ``eps`` a 0-dim tensor; gradients ``(x, y, x_clip, y_clip, None,
    None)``. With ``is_train=False`` nothing is saved.
    """

    call = staticmethod(functions.q4_matmul)
