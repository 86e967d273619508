"""``Q4Conv2dCutlass`` with its function form, and ``Q8Conv2d``."""

from __future__ import annotations

import bie
from bie.bitorch import functions
from bitorch_engine.layers.qconv.nbit.layer import nBitConv2dBase


class Q4Conv2dCutlassForward(functions.OperatorFunction):
    """:class:`Q4Conv2dCutlass` as a function of its tensors (bias already added).

    ``apply(x, weight, scale_a, scale_w, is_train, kernel_size, stride, padding, dilation)``; ``weight`` is float
    ``[out, in, kh, kw]`` or int8, packed or one code a byte; gradients ``(x, weight, scale_a, None x 6)``.
    """

    call = staticmethod(functions.q4_conv2d)


class Q4Conv2dCutlass(nBitConv2dBase, bie.nn.Q4Conv2d):
    """:class:`bie.nn.Q4Conv2d` with the arguments of :class:`nBitConv2dBase`."""


class Q8Conv2d(nBitConv2dBase, bie.nn.Q8Conv2d):
    """:class:`bie.nn.Q8Conv2d` with the arguments of :class:`nBitConv2dBase`."""
