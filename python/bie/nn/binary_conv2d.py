"""1-bit convolutions: the correlation of signs, with learned scales or plain; docs/spec/binary-conv2d.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie._operators import ONE, ops
from bie.nn.state.arguments import shared
from bie.nn.state.conv_layer import ConvLayer
from bie.nn.state.signs_layer import SignsLayer, TrainedSignsLayer
from bie.weights.parameters import SignsParameter


class SignsConv2d(ConvLayer):
    """Sizes of a 1-bit convolution and what lies outside its image."""

    _bits = 1
    _integer_parameter = SignsParameter

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
        padding_value: int = -1,
        symmetric: bool = True,
        latent: bool = False,
        compat: str = "none",
    ) -> None:
        if padding_value not in (-1, 0) or isinstance(padding_value, bool):
            raise ValueError(f"padding_value: expected -1 or 0, got {padding_value}")
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*sizes, bias, device, dtype, latent=latent, compat=compat)
        self.padding_value = padding_value
        self.symmetric = symmetric

    def _sizes(self) -> str:
        return super()._sizes() + (f", padding_value={self.padding_value}" if self.padding_value != -1 else "")


class PackedSignsConv2d(SignsLayer, SignsConv2d):
    """What all 1-bit convolutions share that compute something."""

    def _check_forward(self, x: Tensor) -> None:
        self._check_image(x)
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise self._shape_error(x, "float32, float16 or bfloat16")
        self._check_window(x)

    def _prepack(self, packed: Tensor) -> Tensor:
        kernel = self._geometry["kernel_size"]
        return ops.binary_conv2d_prepack(packed, self.in_channels, kernel, self.groups, self.padding_value)

    def _options(self, panels: Tensor | None = None, anchor: Tensor | None = None) -> dict[str, Any]:
        options = super()._options(panels, anchor)
        if self.padding_value != -1:
            options["padding_value"] = self.padding_value
        return options


class BinaryConv2d(TrainedSignsLayer, PackedSignsConv2d):
    """Convolution with 1-bit weights and activations, NCHW in and out, exact in int32.

    ``y = scale_a * scale_w * correlation(sign(x + bias_a), sign(w))``, signs are +1 where ``v >= 0``, else -1. x is
    ``[batch, in, h, w]`` float32, float16 or bfloat16, contiguous or channels_last (neither is copied).

    ``qweight`` is uint8: row o holds ``weight[o]`` in [in][kh][kw] order, least significant bit first; its shape
    ``[out, kh, kw, in/8]`` (``[out, ceil(in*kh*kw/8)]`` where 8 does not divide in) is a label.

    Backward, with ``xs = x + bias_a``: ``grad_x = conv2d_input(sgn(w), g) * scale_w`` where ``|xs / scale_a| <= 1``,
    else 0; ``grad_w = conv2d_weight(sgn(xs), g) * scale_a`` with the padding that the forward pass met, as int8
    (``int8_grad``) for an int8 weight; ``grad_scale_a = sum(grad_x * sgn(xs)) / sqrt(numel(xs))``.

    A layer used unprepared prepares itself in its first training forward, unless it is ``latent``.

    Args:
        in_channels, out_channels: any positive numbers that ``groups`` divides.
        kernel_size, stride, padding, dilation: integers or pairs (height, width).
        groups: as in ``torch.nn.Conv2d``.
        bias: add a learnable bias ``[out_channels]`` to the output.
        device: where the tensors are made.
        dtype: of ``bias_a`` and ``bias``: float32, float16 or bfloat16. The float weight is float32.
        padding_value: what lies outside the image: -1 as BITorch Engine pads, or 0 as every float convolution does.
        symmetric: the first batch sets ``scale_a`` to ``2 * mean|x|``; ``4 * mean|x|`` if not.
        latent: keep the weight as a float that any optimizer trains, instead of int8 for ``DiodeMix``.
        compat: ``"none"`` or ``"bie-0.2.6"``.

    Raises:
        ShapeError (``forward``): x of another dtype or shape, or smaller than the window. ValueError: x holds NaN or
            infinity.

    Example::

        >>> layer = bie.nn.BinaryConv2d(3, 8, kernel_size=3, padding=1)
        >>> layer(torch.randn(2, 3, 6, 6)).shape
        torch.Size([2, 8, 6, 6])
    """

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        return ops.binary_conv2d.default(x, weight, self._parameters["scale_a"], scale_w, bias_a, **options)

    def _warn_of_old_files(self, version: int | None) -> None:
        self._warn_of_old_gpu_files(version)


class PlainBinaryConv2d(PackedSignsConv2d):
    """``y = correlation(sign(x), sign(w))`` as float32: neither ``bias_a`` nor scales.

    Backward as :class:`BinaryConv2d` with all scales 1; the weight trains as a float. Arguments, errors and ``qweight``
    are those of :class:`BinaryConv2d`. Source: docs/spec/binary-conv2d.md#plain-layer.

    Example::

        >>> layer = bie.nn.PlainBinaryConv2d(3, 8, kernel_size=2)
        >>> layer(torch.ones(1, 3, 4, 4)).abs().max() <= 3 * 2 * 2
        tensor(True)
    """

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
        padding_value: int = -1,
        symmetric: bool = True,
        latent: bool = True,
        compat: str = "none",
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        options = {"padding_value": padding_value, "symmetric": symmetric, "latent": latent, "compat": compat}
        super().__init__(*sizes, bias, device, dtype, **options)

    def prepare_params(self) -> None:
        """Does nothing: the weight trains as a float."""

    def _operator(
        self, x: Tensor, bias_a: Tensor | None, weight: Tensor, scale_w: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        if not torch.is_autocast_enabled(x.device.type):
            return ops.binary_conv2d(x.float(), weight, ONE, ONE, **options)
        with torch.autocast(x.device.type, enabled=False):  # 16 bits do not hold the counts
            return ops.binary_conv2d(x.float(), weight, ONE, ONE, **options)
