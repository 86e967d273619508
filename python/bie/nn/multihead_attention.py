"""torch's multi-head attention with quantised projections."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor, nn

from bie.errors import ShapeError
from bie.nn.nbit_linear import Q8Linear


class MultiheadAttention(nn.Module):
    """``nn.MultiheadAttention`` whose four projections are layers of their own, of any linear class of this package.

    ``out_proj(softmax(q . k^T / sqrt(head_dim) + mask) . v)`` a head, with the arguments and results of
    ``torch.nn.MultiheadAttention``; the products in between are float.

    Args:
        embed_dim: features of the query and the output, a multiple of ``num_heads``.
        num_heads: how many.
        dropout: the share of the attention weights that training drops.
        bias: whether the projections have one.
        kdim, vdim: features of key and value; ``embed_dim`` by default.
        batch_first: whether batches are ``[batch, length, features]``, else ``[length, batch, features]``.
        device: where the tensors are made.
        dtype: of the projections.
        linear: the class of the projections.
        options: further arguments of that class.

    Raises:
        ValueError: ``num_heads`` does not divide ``embed_dim``. ShapeError (``forward``): an input of another shape.

    Source: docs/spec/attention.md; Vaswani et al. 2017, section 3.2.

    Example::

        >>> attention = bie.nn.MultiheadAttention(16, num_heads=2, batch_first=True)
        >>> x = torch.randn(3, 5, 16)
        >>> output, weights = attention(x, x, x)
        >>> output.shape, weights.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 5, 5]))
    """

    in_proj_bias = None  # nn.TransformerEncoderLayer and nn.TransformerEncoder call the module where there is none
    in_proj_weight = None
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        linear: type[nn.Module] = Q8Linear,
        **options: Any,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim: expected a multiple of num_heads = {num_heads}, got {embed_dim}"
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        options = {"bias": bias, "device": device, "dtype": dtype} | options
        self.q_proj = linear(embed_dim, embed_dim, **options)
        self.k_proj = linear(self.kdim, embed_dim, **options)
        self.v_proj = linear(self.vdim, embed_dim, **options)
        self.out_proj = linear(embed_dim, embed_dim, **options)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        axes, batch = query.dim(), 0 if self.batch_first else 1
        sizes = [tuple(t.shape) for t in (query, key, value)]
        fits = axes in (2, 3) and key.dim() == value.dim() == axes and key.shape[:-1] == value.shape[:-1]
        fits = fits and [s[-1] for s in sizes] == [self.embed_dim, self.kdim, self.vdim]
        if not fits or (axes == 3 and query.shape[batch] != key.shape[batch]):
            raise ShapeError(
                "MultiheadAttention: query, key and value: expected batches or single sequences of "
                f"{self.embed_dim}, {self.kdim} and {self.vdim} features, got "
                f"{', '.join(str(list(s)) for s in sizes)}"
            )

    def _mask(
        self, padding: Tensor | None, mask: Tensor | None, scores: tuple[int, ...], dtype: torch.dtype
    ) -> Tensor | None:
        """What is added to the scores [b, heads, l, s]."""
        total = None
        if mask is not None:
            total = mask.view(scores) if mask.dim() == 3 else mask
            total = _added(total, dtype)
        if padding is not None:
            hidden = _added(padding, dtype).view(-1, 1, 1, scores[-1])
            total = hidden if total is None else total + hidden
        return total

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: Literal[True] = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        need_weights: Literal[False],
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]: ...

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As ``torch.nn.MultiheadAttention``'s; a mask is True or -inf where a score does not count."""
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal is a hint about attn_mask, which is missing")
        single = query.dim() == 2
        if single:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._heads(self.q_proj(query)), self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
        mask = self._mask(key_padding_mask, attn_mask, (*q.shape[:3], k.shape[2]), q.dtype)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            scores = q @ k.mT / math.sqrt(self.head_dim)
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            weights = nn.functional.dropout(weights, dropout)
            context = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            context, weights = nn.functional.scaled_dot_product_attention(q, k, v, mask, dropout), None
        output = self.out_proj(context.transpose(1, 2).flatten(2))
        if single:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    if TYPE_CHECKING:  # calls have the types of forward, for editors and checkers
        __call__ = forward

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as what is added to scores."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)
