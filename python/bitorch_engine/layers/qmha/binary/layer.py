"""Attention whose four projections are binary linears."""

from __future__ import annotations

from typing import Any

import torch

from bie.nn import BinaryAttention
from bie.nn.attention import LearnableBias
from bitorch_engine.layers.qlinear.binary.cutlass.layer import BinaryLinearCutlass

__all__ = ["BMHA", "LearnableBias"]


class BMHA(BinaryAttention):
    """:class:`bie.nn.BinaryAttention` over :class:`BinaryLinearCutlass`: other arguments, then its options."""

    _linear = BinaryLinearCutlass

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        num_heads: int,
        dtype: torch.dtype = torch.float,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_dim, num_heads, *args, hidden_dim=hidden_dim, dtype=dtype, **kwargs)

    @property
    def input_dim(self) -> int:
        return self.embed_dim
