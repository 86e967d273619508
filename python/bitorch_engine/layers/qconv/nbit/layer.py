"""Base of the 8- and 4-bit convolutions and the parameter class of their codes."""

from __future__ import annotations

import torch

from bie.nn.state.arguments import bit_width, shared
from bie.nn.state.conv_layer import ConvLayer
from bie.weights.parameters import CodesParameter


class nBitConvParameter(CodesParameter):
    """The weight of an 8- or 4-bit convolution: float, or int8 codes."""


class nBitConv2dBase(ConvLayer):
    """BITorch Engine's constructor of :class:`bie.nn.Q4Conv2d` and :class:`bie.nn.Q8Conv2d`, then their options.

    ``a_bit`` and ``w_bit`` are kept as attributes; the class says how many bits are used. A subclass names the layer
    that computes as its second base.
    """

    _integer_parameter = nBitConvParameter

    @shared
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        a_bit: int = 4,
        w_bit: int = 4,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        groups: int = 1,
        bias: bool = False,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
        channel_scale: bool = False,
    ) -> None:
        options = {"latent": latent, "grad_mode": grad_mode, "compat": compat, "channel_scale": channel_scale}
        a_bit, w_bit = bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        super().__init__(*sizes, device=device, dtype=dtype, **options)
        self.a_bit, self.w_bit = a_bit, w_bit
