"""``BinaryConv2dCPP``: the plain correlation of signs, and its function form."""

from __future__ import annotations

import torch

from bie.bitorch import functions
from bie.nn import PlainBinaryConv2d
from bitorch_engine.layers.qconv.binary.layer import BinaryConv2dBase


class BinaryConv2dForward(functions.OperatorFunction):
    """``y = correlation(sign(activations), sign(weights))`` as float32, NCHW in and out; the padding is -1.

    ``apply(activations, weights, m, n, k, kernel_size, stride, padding, dilation, output_edge)``: ``weights`` is a
    float ``[n, in, kh, kw]`` or packed uint8 as ``BinaryConv2dCPP.qweight``, k = in * kh * kw. ``m`` and
    ``output_edge`` follow from the activations and are not read.
    """

    call = staticmethod(functions.plain_binary_conv2d)


class BinaryConv2dCPP(BinaryConv2dBase, PlainBinaryConv2d):
    """:class:`bie.nn.PlainBinaryConv2d` with the arguments of :class:`BinaryConv2dBase`; ``qweight`` is flat."""

    _packed_flat = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        symmetric: bool = True,
        *,
        groups: int = 1,
        bias: bool = False,
        padding_value: int = -1,
        latent: bool = True,
        compat: str = "none",
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, device, dtype, symmetric)
        options = {"groups": groups, "bias": bias, "padding_value": padding_value, "latent": latent, "compat": compat}
        super().__init__(*sizes, **options)
