"""Attention whose four projections are binary linears; docs/spec/attention.md."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from bie.errors import ShapeError
from bie.nn.binary_linear import BinaryLinear
from bie.nn.matmul import MatMulLayer


class LearnableBias(nn.Module):
    """``x + bias``, ``bias`` [out_chn] learnable, zeros at first. x: [..., out_chn]."""

    def __init__(self, out_chn: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(out_chn))

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 0 or x.size(-1) != self.bias.numel():
            raise ShapeError(f"LearnableBias: x: expected [..., {self.bias.numel()}], got {list(x.shape)}")
        return x + self.bias


class BinaryAttention(nn.Module):
    """``out(dropout(softmax(q . k^T / sqrt(head_dim))) . v)``; q, k, v and out are binary linears.

    Both products are float unless a class of products is given for them. A softmax has no signs, so ``BinaryMatMul``
    sees of the scores nothing but ones; ``Q8MatMul`` and ``Q4MatMul`` see their sizes.

    Args:
        embed_dim: features of the input and the output.
        num_heads: how many.
        hidden_dim: features of q, k and v, a multiple of ``num_heads``, else ``ValueError``; ``embed_dim`` by default.
        dropout: the share of the scores that training drops.
        device: where the tensors are made.
        dtype: of the linears' parameters and of the input.
        scores_matmul, context_matmul: the classes of ``q . k^T`` and of the product with v, float where None.

    Source: BITorch Engine 0.2.6 ``BMHA``; Vaswani et al. 2017, section 3.2.

    Example::

        >>> attention = bie.nn.BinaryAttention(16, num_heads=2, scores_matmul=bie.nn.Q8MatMul)
        >>> output, scores = attention(torch.randn(3, 5, 16))
        >>> output.shape, scores.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 2, 5, 5]))
    """

    _linear: ClassVar[type[BinaryLinear]] = BinaryLinear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        hidden_dim: int | None = None,
        dropout: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        scores_matmul: type[MatMulLayer] | None = None,
        context_matmul: type[MatMulLayer] | None = None,
    ) -> None:
        super().__init__()
        hidden_dim = embed_dim if hidden_dim is None else hidden_dim
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"{type(self).__name__}: hidden_dim: expected a multiple of num_heads = {num_heads}, got {hidden_dim}"
            )
        self.dtype = dtype
        self.num_heads = num_heads
        self.head_dim = hidden_dim // num_heads
        self.hidden_dim = hidden_dim
        place = {"device": device, "dtype": dtype}
        self.q_linear = self._linear(embed_dim, hidden_dim, **place)
        self.v_linear = self._linear(embed_dim, hidden_dim, **place)
        self.k_linear = self._linear(embed_dim, hidden_dim, **place)
        self.dropout = nn.Dropout(dropout)
        self.out = self._linear(hidden_dim, embed_dim, **place)
        self.scores_matmul = None if scores_matmul is None else scores_matmul(dtype, device=device)
        self.context_matmul = None if context_matmul is None else context_matmul(dtype, device=device)

    @property
    def embed_dim(self) -> int:
        return self.q_linear.in_features

    def forward(self, hidden_states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args:
            hidden_states: [b, s, embed_dim]
            mask: where it is 0 (or False) after ``unsqueeze(1)``, the score is -1e9 before the softmax; the result must
                broadcast to [b, heads, s, s], so [b, s, s] masks pairs and [b, 1, s] masks keys.

        Returns:
            (output [b, s, embed_dim], scores [b, heads, s, s] after the dropout)

        Raises:
            ShapeError: ``hidden_states`` or ``mask`` of another shape.
        """
        if hidden_states.dim() != 3 or hidden_states.size(2) != self.embed_dim:
            got = list(hidden_states.shape)
            raise ShapeError(f"{type(self).__name__}: hidden_states: expected [b, s, {self.embed_dim}], got {got}")
        b, s, _ = hidden_states.shape
        q, k, v = (
            linear(hidden_states).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)
            for linear in (self.q_linear, self.k_linear, self.v_linear)
        )
        scores = self._product(self.scores_matmul, q, k) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(self._hidden(mask, scores.shape), self._least(scores.dtype))
        scores = self.dropout(torch.softmax(scores, dim=-1))
        context = self._product(self.context_matmul, scores, v.mT).transpose(1, 2).reshape(b, s, self.hidden_dim)
        return self.out(context), scores

    @staticmethod
    def _product(matmul: MatMulLayer | None, x: Tensor, y: Tensor) -> Tensor:
        """x . y^T"""
        return x @ y.mT if matmul is None else matmul(x, y)

    @staticmethod
    def _least(dtype: torch.dtype) -> float:
        return max(-1e9, torch.finfo(dtype).min)  # -1e9 does not fit float16

    def _hidden(self, mask: Tensor, shape: torch.Size) -> Tensor:
        hidden = mask.unsqueeze(1) == 0
        try:
            fits = torch.broadcast_shapes(hidden.shape, shape) == shape
        except RuntimeError:
            fits = False
        if not fits:
            wanted = f"with an axis for the heads it must fit {list(shape)}"
            raise ShapeError(f"{type(self).__name__}: mask is {list(mask.shape)}, {wanted}")
        return hidden
