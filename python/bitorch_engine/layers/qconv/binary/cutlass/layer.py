"""``BinaryConv2dCutlass`` and its function form."""

from __future__ import annotations

from bie.bitorch import functions
from bie.nn import BinaryConv2d
from bitorch_engine.layers.qconv.binary.layer import BinaryConv2dBase


class BinaryConv2dForward(functions.OperatorFunction):
    """:class:`BinaryConv2dCutlass` as a function of its tensors (bias already added); the weight is told by its dtype.

    ``apply(x, weight, scale_a, scale_w, is_train, kernel_size, stride, padding, dilation)``; ``weight`` is float or
    int8 ``[out, in, kh, kw]``, or packed uint8; the padding is -1. Gradients ``(x, weight, scale_a, None x 6)``; that
    of an int8 weight goes to ``weight.grad``. With ``is_train=False`` nothing is saved.
    """

    call = staticmethod(functions.binary_conv2d)


class BinaryConv2dCutlass(BinaryConv2dBase, BinaryConv2d):
    """:class:`bie.nn.BinaryConv2d` with the arguments of :class:`BinaryConv2dBase`; ``scale_w`` is a parameter."""

    _scale_w_is_parameter = True
