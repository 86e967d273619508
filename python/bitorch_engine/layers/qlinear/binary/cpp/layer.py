"""``BinaryLinearCPP``: the plain product of signs, and its function form."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bie.bitorch import functions, layouts
from bie.nn import PlainBinaryLinear
from bitorch_engine.layers.qlinear.binary.layer import BinaryLinearBase


class BinaryLinearForward(functions.OperatorFunction):
    """``apply(input, weights, m, n, k)``: ``[m, n]`` float32 products of the signs of ``[m, k]`` and ``[n, k]``.

    ``weights`` is a float ``[n, k]``, or flat column-packed uint8 as ``BinaryLinearCPP.qweight``.
    """

    call = staticmethod(functions.plain_binary_linear)


class BinaryLinearCPP(BinaryLinearBase, PlainBinaryLinear):
    """:class:`bie.nn.PlainBinaryLinear` with its own bytes on disk.

    ``qweight`` is flat uint8, column-packed, where k is a multiple of 8, else ``[n, ceil(k/8)]``.
    """

    def __init__(
        self,
        input_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        *,
        dtype: torch.dtype = torch.float,
        symmetric: bool = True,
        bias: bool = False,
        latent: bool = True,
        compat: str = "none",
    ) -> None:
        options = {"bias": bias, "latent": latent, "compat": compat}
        super().__init__(input_features, out_features, device, dtype, symmetric, **options)

    @classmethod
    def create_clone_from(cls, recipe: Any, device: torch.device | str | None = None) -> nn.Module:
        """As the base's, packed: the layer keeps the signs of the weight alone."""
        clone = super().create_clone_from(recipe, device)
        clone.generate_quantized_weight(qweight_only=True)
        return clone

    def _stored_layout(self) -> str | None:
        return layouts.cpu_layout(self.in_features)
