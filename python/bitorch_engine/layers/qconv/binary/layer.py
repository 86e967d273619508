"""Base of the binary convolutions and the parameter class of their weights."""

from __future__ import annotations

import torch

from bie.nn.binary_conv2d import SignsConv2d
from bie.nn.state.arguments import shared
from bie.weights.parameters import SignsParameter


class BinaryConvParameter(SignsParameter):
    """The weight of a binary convolution."""


class BinaryConv2dBase(SignsConv2d):
    """Base of the binary convolutions: BITorch Engine's constructor of :class:`bie.nn.BinaryConv2d`, then its options.

    A subclass names the layer that computes as its second base.
    """

    bits_binary_word = 8
    _integer_parameter = BinaryConvParameter

    @shared
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
        latent: bool = False,
        compat: str = "none",
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        options = {"padding_value": padding_value, "symmetric": symmetric, "latent": latent, "compat": compat}
        super().__init__(*sizes, device=device, dtype=dtype, **options)

    def set_bits_binary_word(self, num_bit: int) -> None:
        """Kept as an attribute; the packing is always by bytes."""
        self.bits_binary_word = num_bit
