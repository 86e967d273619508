"""``Q8LinearCutlass``, ``Q8MatMul`` and their function forms."""

from __future__ import annotations

from bie.bitorch import functions
from bie.nn import Q8Linear, Q8MatMul
from bitorch_engine.layers.qlinear.nbit.layer import nBitLinearBase

__all__ = ["Q8LinearCutlass", "Q8LinearFunction", "Q8MatMul", "Q8MatMulFunction"]


class Q8LinearFunction(functions.OperatorFunction):
    """:class:`Q8LinearCutlass` as a function of its tensors (bias already added).

    ``apply(x, weight, scale_a, scale_w, eps, is_train)``; ``weight`` is float ``[n, k]`` or int8, ``eps`` a 0-dim
    tensor; gradients ``(x, weight, scale_a, None, None, None)``. With ``is_train=False`` nothing is saved.
    """

    call = staticmethod(functions.q8_linear)


class Q8LinearCutlass(nBitLinearBase, Q8Linear):
    """:class:`bie.nn.Q8Linear` with the arguments of :class:`nBitLinearBase`."""


class Q8MatMulFunction(functions.OperatorFunction):
    """:class:`Q8MatMul` as a function of its tensors.

    ``apply(x, y, x_clip, y_clip, eps, is_train)``, ``eps`` a 0-dim tensor; gradients ``(x, y, x_clip, y_clip, None,
    None)``. With ``is_train=False`` nothing is saved.
    """

    call = staticmethod(functions.q8_matmul)
