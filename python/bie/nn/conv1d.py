"""Convolutions along one axis: those of two whose window has a height of 1; docs/spec/nbit-conv2d.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie.nn.binary_conv2d import BinaryConv2d
from bie.nn.nbit_conv2d import Q4Conv2d, Q8Conv2d
from bie.nn.state.arguments import shared, single
from bie.nn.state.conv_layer import ConvLayer


class Conv1dLayer(ConvLayer):
    """Mixin, before a convolution of two axes: x is ``[batch, in, length]``, the weight ``[out, in/groups, 1, k]``.

    A weight of nn.Conv1d, ``[out, in/groups, k]``, is taken too.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: int | tuple[int] = 0,
        dilation: int | tuple[int] = 1,
        groups: int = 1,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        **options: Any,
    ) -> None:
        window = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
        k, s, p, d = (single(name, value) for name, value in window.items())
        sizes = (in_channels, out_channels, (1, k), (1, s), (0, p), (1, d), groups)
        super().__init__(*sizes, bias, device, dtype, **options)

    def _weight_entry(self, weight: Tensor) -> Tensor:
        return weight.unsqueeze(2) if weight.dim() == 3 else weight

    def forward(self, x: Tensor) -> Tensor:
        self._check_tensor(x)
        if x.dim() != 3 or x.shape[1] != self.in_channels:
            raise self._shape_error(x, f"[batch, {self.in_channels}, length]")
        return super().forward(x.unsqueeze(2)).squeeze(2)


class CodesConv1d(Conv1dLayer):
    """What those of 8 and 4 bits share: the arguments of :class:`Q8Conv2d`, sizes of the window single numbers."""

    @shared
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: int | tuple[int] = 0,
        dilation: int | tuple[int] = 1,
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


class Q8Conv1d(CodesConv1d, Q8Conv2d):
    """Convolution along one axis with 8-bit weights and activations: :class:`Q8Conv2d` with a window of height 1.

    x is ``[batch, in, length]``. Arguments are those of :class:`Q8Conv2d`, sizes of the window single numbers.

    Example::

        >>> layer = bie.nn.Q8Conv1d(3, 8, kernel_size=5, padding=2)
        >>> layer(torch.randn(2, 3, 9)).shape
        torch.Size([2, 8, 9])
    """


class Q4Conv1d(CodesConv1d, Q4Conv2d):
    """Convolution along one axis with 4-bit weights and activations: :class:`Q4Conv2d` with a window of height 1.

    x is ``[batch, in, length]``. Arguments are those of :class:`Q8Conv2d`, sizes of the window single numbers.

    Example::

        >>> layer = bie.nn.Q4Conv1d(3, 8, kernel_size=5, padding=2)
        >>> layer(torch.randn(2, 3, 9)).shape
        torch.Size([2, 8, 9])
    """


class BinaryConv1d(Conv1dLayer, BinaryConv2d):
    """Convolution along one axis with 1-bit weights and activations: :class:`BinaryConv2d` with a window of height 1.

    x is ``[batch, in, length]``. Arguments are those of :class:`BinaryConv2d`, sizes of the window single numbers.

    Example::

        >>> layer = bie.nn.BinaryConv1d(3, 8, kernel_size=5, padding=2)
        >>> layer(torch.randn(2, 3, 9)).shape
        torch.Size([2, 8, 9])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: int | tuple[int] = 0,
        dilation: int | tuple[int] = 1,
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
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        options = {"padding_value": padding_value, "symmetric": symmetric, "latent": latent, "compat": compat}
        super().__init__(*sizes, bias, device, dtype, **options)
