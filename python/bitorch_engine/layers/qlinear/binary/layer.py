"""Base of the 1-bit linear layers and the parameter class of their weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bie.carrying import carry
from bie.nn.binary_linear import SignsLinear
from bie.nn.state.arguments import shared
from bie.weights.parameters import SignsParameter


class BinaryLinearParameter(SignsParameter):
    """The weight of a 1-bit linear layer."""


class BinaryLinearBase(SignsLinear):
    """Base of the 1-bit linear layers: BITorch Engine's constructor of :class:`bie.nn.BinaryLinear`, then its options.

    A subclass names the layer that computes as its second base.
    """

    bits_binary_word = 8
    _integer_parameter = BinaryLinearParameter

    @shared
    def __init__(
        self,
        input_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        symmetric: bool = True,
        *,
        bias: bool = False,
        latent: bool = False,
        compat: str = "none",
    ) -> None:
        options = {"symmetric": symmetric, "bias": bias, "latent": latent, "compat": compat}
        super().__init__(input_features, out_features, device=device, dtype=dtype, **options)

    @classmethod
    def create_clone_from(cls, recipe: Any, device: torch.device | str | None = None) -> nn.Module:
        """A layer with the sizes, weight, bias and mode of ``recipe.layer``, a linear, on ``device`` (its own if None).

        Args:
            recipe: a ``LayerRecipe`` of the package ``bitorch``; its attribute ``layer`` alone is read.
        """
        return carry(recipe.layer, cls, device=recipe.layer.weight.device if device is None else device)

    @property
    def input_features(self) -> int:
        return self.in_features

    @property
    def output_features(self) -> int:
        return self.out_features

    def set_bits_binary_word(self, num_bit: int) -> None:
        """Kept as an attribute; the packing is always by bytes."""
        self.bits_binary_word = num_bit
