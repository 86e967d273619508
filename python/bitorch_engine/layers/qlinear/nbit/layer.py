"""Base of the 8- and 4-bit linear layers, the parameter class of their codes, and the weight-only classes."""

from __future__ import annotations

import torch

from bie.nn.state.arguments import bit_width, shared
from bie.nn.state.linear_layer import LinearLayer
from bie.weights.parameters import CodesParameter
from bitorch_engine.layers.qlinear.nbit.mpq import MPQLinearBase, MPQWeightParameter

__all__ = ["MPQLinearBase", "MPQWeightParameter", "nBitLinearBase", "nBitLinearParameter"]


class nBitLinearParameter(CodesParameter):
    """The weight of an 8- or 4-bit linear layer: float, or int8 codes."""


class nBitLinearBase(LinearLayer):
    """BITorch Engine's constructor of :class:`bie.nn.Q8Linear` and :class:`bie.nn.Q4Linear`, then their options.

    ``a_bit`` and ``w_bit`` are kept as attributes; the class says how many bits are used. A subclass names the layer
    that computes as its second base.
    """

    _integer_parameter = nBitLinearParameter

    @shared
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        a_bit: int = 4,
        w_bit: int = 4,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        bias: bool = False,
        latent: bool = True,
        grad_mode: str = "exact",
        compat: str = "none",
        channel_scale: bool = False,
    ) -> None:
        options = {"latent": latent, "grad_mode": grad_mode, "compat": compat, "channel_scale": channel_scale}
        a_bit, w_bit = bit_width(self, "a_bit", a_bit), bit_width(self, "w_bit", w_bit)
        super().__init__(in_channels, out_channels, bias=bias, device=device, dtype=dtype, **options)
        self.a_bit, self.w_bit = a_bit, w_bit

    @property
    def in_channels(self) -> int:
        return self.in_features

    @property
    def out_channels(self) -> int:
        return self.out_features
