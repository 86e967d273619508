"""``BinaryConv2dCutlass`` and its function form; numerics.md section 4."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bitorch_engine._operators import ANCHOR, ops
from bitorch_engine.layers.function import OperatorFunction, in_training
from bitorch_engine.layers.qconv.binary.layer import SignsConv2d
from bitorch_engine.layers.qconv.geometry import pair
from bitorch_engine.layers.signs_layer import TrainedSignsLayer


class BinaryConv2dForward(OperatorFunction):
    """:class:`BinaryConv2dCutlass` as a function of its tensors (bias already added); the weight is told by its dtype.

    ``apply(x, weight, scale_a, scale_w, is_train, kernel_size, stride, padding, dilation)``; ``weight`` is float or
    int8 ``[out, in, kh, kw]``, or packed uint8; the padding is -1. Gradients ``(x, weight, scale_a, None x 6)``; that
    of an int8 weight goes to ``weight.grad``. With ``is_train=False`` nothing is saved.
    """

    @staticmethod
    def call(
        x: Tensor,
        weight: Tensor,
        scale_a: Tensor,
        scale_w: Tensor,
        is_train: bool,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int],
        padding: int | tuple[int, int],
        dilation: int | tuple[int, int],
    ) -> Tensor:
        with in_training(is_train):
            return ops.binary_conv2d(
                x,
                weight,
                scale_a,
                scale_w,
                kernel_size=pair("kernel_size", kernel_size, 1),
                stride=pair("stride", stride, 1),
                padding=pair("padding", padding, 0),
                dilation=pair("dilation", dilation, 1),
                anchor=ANCHOR if is_train else None,
            )


class BinaryConv2dCutlass(TrainedSignsLayer, SignsConv2d):
    """Convolution of signs, NCHW in and out, exact in int32.

    ``y = scale_a * scale_w * correlation(sign(x + bias_a), sign(w))``, signs are +1 where ``v >= 0``, else -1. x is
    ``[batch, in, h, w]`` float32, float16 or bfloat16, contiguous or channels_last (neither is copied). The padding is
    ``padding_value``: -1 as BITorch Engine pads, or 0.

    ``qweight`` is uint8: row o holds ``weight[o]`` in [in][kh][kw] order, least significant bit first; its shape
    ``[out, kh, kw, in/8]`` (``[out, ceil(in*kh*kw/8)]`` where 8 does not divide in) is a label.

    Backward, with ``xs = x + bias_a``: ``grad_x = conv2d_input(sgn(w), g) * scale_w`` where ``|xs / scale_a| <= 1``,
    else 0; ``grad_w = conv2d_weight(sgn(xs), g) * scale_a`` with the padding that the forward pass met, as int8
    (``int8_grad``) for an int8 weight; ``grad_scale_a = sum(grad_x * sgn(xs)) / sqrt(numel(xs))``.

    A layer used unprepared prepares itself in its first training forward, unless it is ``latent``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._register_activation(scale_w_is_parameter=True, eps=False)

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return ops.binary_conv2d.default(x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)

    def _warn_of_old_files(self, version: int | None) -> None:
        self._warn_of_old_gpu_files(version)
