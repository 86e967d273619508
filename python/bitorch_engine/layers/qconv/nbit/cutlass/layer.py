"""``Q4Conv2dCutlass`` with its function form, and ``Q8Conv2d``."""

from __future__ import annotations

from torch import Tensor

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.qconv.geometry import pair
from bitorch_engine.layers.qconv.nbit.layer import CodesConv2d


class Q4Conv2dCutlassForward(OperatorFunction):
    """:class:`Q4Conv2dCutlass` as a function of its tensors (bias already added).

    ``apply(x, weight, scale_a, scale_w, is_train, kernel_size, stride, padding, dilation)``; ``weight`` is float
    ``[out, in, kh, kw]`` or int8, packed or one code a byte; gradients ``(x, weight, scale_a, None x 6)``.
    """

    @staticmethod
    def call(
        x: Tensor,
        weight: Tensor,
        scale_a: Tensor,
        scale_w: Tensor,
        is_train: bool,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
    ) -> Tensor:
        kernel = pair("kernel_size", kernel_size, 1)
        plain = tuple(weight.shape[1:]) == (x.shape[1], *kernel)
        with in_training(is_train):
            return ops.q4_conv2d(
                x,
                weight,
                scale_a,
                scale_w,
                kernel_size=kernel,
                stride=pair("stride", stride, 1),
                padding=pair("padding", padding, 0),
                dilation=pair("dilation", dilation, 1),
                anchor=ANCHOR if is_train and plain else None,
            )


class Q4Conv2dCutlass(CodesConv2d):
    """Convolution with 4-bit weights and activations, NCHW in and out, exact in int32.

    ``y = conv2d(q_a, q_w) * scale_a * scale_w``; ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -8, 7)``, zero
    padding is the code 0. x is ``[batch, in, h, w]`` float32, float16 or bfloat16, contiguous or channels_last (neither
    is copied). ``prepare_params`` (or the first training forward) sets ``scale_w`` once.

    ``qweight`` is int8: row o holds ``weight[o]`` in [in][kh][kw] order, two codes a byte, the even one in the high
    nibble; its shape ``[out, kh, kw, in/2]`` (``[out, ceil(in*kh*kw/2)]`` where in is odd) is a label. With ``groups``
    in is that of a group.

    Backward: ``grad_x = conv2d_input(q_w * scale_w, g)``, 0 where ``x / scale_a`` is outside [-8, 7];
    ``grad_w = conv2d_weight(q_a * scale_a, g)``, 0 where the weight's quantiser clips; ``grad_scale_a`` as
    :class:`Q4LinearCutlass`. Source: numerics.md section 7.
    """

    _bits = 4

    def _warn_of_old_files(self, version: int | None) -> None:
        self._warn_of_old_gpu_files(version)


class Q8Conv2d(CodesConv2d):
    """Convolution with 8-bit weights and activations, NCHW in and out, exact in int32. BITorch Engine has none.

    ``y = conv2d(q_a, q_w) * scale_a * scale_w``; ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -128, 127)``,
    zero padding is the code 0. x is ``[batch, in, h, w]`` float32, float16 or bfloat16, contiguous or channels_last
    (neither is copied), or int8 codes. In training a float weight has ``scale_w = 2 * mean|w| / 11.269`` anew in each
    forward, the first batch sets ``scale_a`` likewise. ``qweight`` is ``[out, in/groups, kh, kw]`` int8.

    Constructor, state-dict keys and the gradient of the image and the filter are those of :class:`Q4Conv2dCutlass` with
    codes in [-128, 127]; the weight's scale and ``grad_scale_a`` those of :class:`Q8LinearCutlass`.
    Source: numerics.md sections 5 and 7.
    """

    _bits = 8
