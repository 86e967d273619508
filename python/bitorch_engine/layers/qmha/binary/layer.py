"""Attention whose four projections are binary linears; numerics.md section 9."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.matmul_layer import MatMulLayer
from bitorch_engine.layers.qlinear.binary.cutlass.layer import BinaryLinearCutlass


class LearnableBias(nn.Module):
    """``x + bias``, ``bias`` [out_chn] learnable, zeros at first. x: [..., out_chn]."""

    def __init__(self, out_chn: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(out_chn))

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 0 or x.size(-1) != self.bias.numel():
            raise ShapeError(f"LearnableBias: x is {list(x.shape)}, [..., {self.bias.numel()}] is wanted")
        return x + self.bias


class BMHA(nn.Module):
    """``out(dropout(softmax(q . k^T / sqrt(head_dim))) . v)``; q, k, v and out are binary linears.

    Both products are float unless a class of products is given for them (ours). A softmax has no signs, so
    ``BinaryMatMul`` sees of the scores nothing but ones; ``Q8MatMul`` and ``Q4MatMul`` see their sizes.

    Args:
        input_dim: features of the input and the output.
        hidden_dim: features of q, k and v, a multiple of ``num_heads``, else ``ValueError``.
        dtype: of the linears' parameters and of the input.
        scores_matmul, context_matmul: the classes of ``q . k^T`` and of the product with v, float where None.

    Source: BITorch Engine 0.2.6 ``BMHA``; Vaswani et al. 2017, section 3.2.
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        num_heads: int,
        dtype: torch.dtype = torch.float,
        *args: Any,
        scores_matmul: type[MatMulLayer] | None = None,
        context_matmul: type[MatMulLayer] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(f"BMHA: hidden_dim is {hidden_dim}, a multiple of num_heads = {num_heads} is wanted")
        self.dtype = dtype
        self.num_heads = num_heads
        self.head_dim = hidden_dim // num_heads
        self.hidden_dim = hidden_dim
        self.input_dim = input_dim
        self.q_linear = BinaryLinearCutlass(input_dim, hidden_dim, dtype=dtype)
        self.v_linear = BinaryLinearCutlass(input_dim, hidden_dim, dtype=dtype)
        self.k_linear = BinaryLinearCutlass(input_dim, hidden_dim, dtype=dtype)
        self.dropout = nn.Dropout(0.1)
        self.out = BinaryLinearCutlass(hidden_dim, input_dim, dtype=dtype)
        self.scores_matmul = None if scores_matmul is None else scores_matmul(dtype)
        self.context_matmul = None if context_matmul is None else context_matmul(dtype)

    def forward(self, hidden_states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args:
            hidden_states: [b, s, input_dim]
            mask: where it is 0 (or False) after ``unsqueeze(1)``, the score is -1e9 before the softmax; the result must
                broadcast to [b, heads, s, s], so [b, s, s] masks pairs and [b, 1, s] masks keys.

        Returns:
            (output [b, s, input_dim], scores [b, heads, s, s] after the dropout)

        Raises:
            ShapeError: ``hidden_states`` or ``mask`` of another shape.
        """
        if hidden_states.dim() != 3 or hidden_states.size(2) != self.input_dim:
            raise ShapeError(f"BMHA: hidden_states are {list(hidden_states.shape)}, [b, s, {self.input_dim}] is wanted")
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

    @staticmethod
    def _hidden(mask: Tensor, shape: torch.Size) -> Tensor:
        hidden = mask.unsqueeze(1) == 0
        try:
            fits = torch.broadcast_shapes(hidden.shape, shape) == shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ShapeError(f"BMHA: mask is {list(mask.shape)}, with an axis for the heads it must fit {list(shape)}")
        return hidden
