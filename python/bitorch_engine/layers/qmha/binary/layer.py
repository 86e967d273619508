"""Attention whose four projections are binary linears."""

from __future__ import annotations

import torch

from bie.nn import BinaryAttention
from bie.nn.attention import LearnableBias
from bie.nn.matmul import MatMulLayer
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
        *,
        dropout: float = 0.1,
        device: torch.device | str | None = None,
        scores_matmul: type[MatMulLayer] | None = None,
        context_matmul: type[MatMulLayer] | None = None,
    ) -> None:
        products = {"scores_matmul": scores_matmul, "context_matmul": context_matmul}
        place = {"device": device, "dtype": dtype}
        super().__init__(input_dim, num_heads, hidden_dim=hidden_dim, dropout=dropout, **place, **products)

    @property
    def input_dim(self) -> int:
        return self.embed_dim
