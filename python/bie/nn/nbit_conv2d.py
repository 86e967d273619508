"""Convolutions with 8- and 4-bit weights and activations; docs/spec/nbit-conv2d.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie._operators import ops
from bie.nn.state.arguments import shared
from bie.nn.state.codes_layer import CodesLayer
from bie.nn.state.conv_layer import ConvLayer

_CONV = {8: ops.q8_conv2d.default, 4: ops.q4_conv2d.default}


class CodesConv2d(CodesLayer, ConvLayer):
    """What the 8- and the 4-bit convolution share."""

    @shared
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
        channel_scale: bool = False,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        options = {"latent": latent, "grad_mode": grad_mode, "compat": compat, "channel_scale": channel_scale}
        super().__init__(*sizes, bias, device, dtype, **options)

    def _check_forward(self, x: Tensor) -> None:
        self._check_image(x)
        self._check_dtype(x)
        self._check_window(x)

    def _prepack(self, packed: Tensor) -> Tensor:
        if self._bits == 8:
            return ops.q8_conv2d_prepack(packed, self.groups)
        return ops.q4_conv2d_prepack(packed, self.in_channels, self._geometry["kernel_size"], self.groups)

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return _CONV[self._bits](x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)


class Q8Conv2d(CodesConv2d):
    """Convolution with 8-bit weights and activations, NCHW in and out, exact in int32.

    ``y = conv2d(q_a, q_w) * scale_a * scale_w``; ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -128, 127)``,
    zero padding is the code 0. x is ``[batch, in, h, w]`` float32, float16 or bfloat16, contiguous or channels_last
    (neither is copied), or int8 codes. In training a float weight has ``scale_w = 2 * mean|w| / 11.269`` anew in each
    forward, the first batch sets ``scale_a`` likewise. ``qweight`` is ``[out, in/groups, kh, kw]`` int8.

    State-dict keys and the gradient of the image and the filter are those of :class:`Q4Conv2d` with codes in
    [-128, 127]; the weight's scale and ``grad_scale_a`` those of :class:`Q8Linear`.
    Source: docs/spec/nbit-conv2d.md.

    Args:
        in_channels, out_channels: any positive numbers that ``groups`` divides.
        kernel_size, stride, padding, dilation: integers or pairs (height, width).
        groups: as in ``torch.nn.Conv2d``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        device: where the tensors are made.
        dtype: of ``bias_a`` and ``bias``: float32, float16 or bfloat16. The float weight is float32.
        latent: keep the weight as a float that any optimizer trains; else int8 codes for ``DiodeMix``.
        grad_mode: ``"exact"`` or ``"reference"``.
        compat: ``"none"`` or ``"bie-0.2.6"``.
        channel_scale: a scale for each output channel, beside ``scale_w``.

    Raises:
        ShapeError (``forward``): x of another dtype or shape, or smaller than the window. ValueError: x holds NaN or
            infinity.

    Example::

        >>> layer = bie.nn.Q8Conv2d(3, 8, kernel_size=3, stride=2, bias=True)
        >>> layer(torch.randn(2, 3, 9, 9)).shape
        torch.Size([2, 8, 4, 4])
    """

    _bits = 8


class Q4Conv2d(CodesConv2d):
    """Convolution with 4-bit weights and activations, NCHW in and out, exact in int32.

    ``y = conv2d(q_a, q_w) * scale_a * scale_w``; ``q_a = clamp(rint((x + bias_a) / max(scale_a, eps)), -8, 7)``, zero
    padding is the code 0. x is ``[batch, in, h, w]`` float32, float16 or bfloat16, contiguous or channels_last (neither
    is copied). ``prepare_params`` (or the first training forward) sets ``scale_w`` once.

    ``qweight`` is int8: row o holds ``weight[o]`` in [in][kh][kw] order, two codes a byte, the even one in the high
    nibble; its shape ``[out, kh, kw, in/2]`` (``[out, ceil(in*kh*kw/2)]`` where in is odd) is a label. With ``groups``
    in is that of a group.

    Backward: ``grad_x = conv2d_input(q_w * scale_w, g)``, 0 where ``x / scale_a`` is outside [-8, 7];
    ``grad_w = conv2d_weight(q_a * scale_a, g)``, 0 where the weight's quantiser clips; ``grad_scale_a`` as
    :class:`Q4Linear`. Source: docs/spec/nbit-conv2d.md.

    Arguments and errors are those of :class:`Q8Conv2d`.

    Example::

        >>> layer = bie.nn.Q4Conv2d(3, 8, kernel_size=3, stride=2)
        >>> layer(torch.randn(2, 3, 9, 9)).shape
        torch.Size([2, 8, 4, 4])
    """

    _bits = 4

    def _warn_of_old_files(self, version: int | None) -> None:
        self._warn_of_old_gpu_files(version)
