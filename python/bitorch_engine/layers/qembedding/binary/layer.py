"""Embeddings with one bit a weight; docs/spec/embedding.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie import nn
from bie._missing import awaits
from bie.weights.parameters import EmbeddingParameter


class BinaryEmbeddingParameter(EmbeddingParameter):
    """The weight of a binary embedding: :class:`bie.weights.parameters.EmbeddingParameter`."""


@awaits("binary_embedding")
class BinaryEmbeddingForward(torch.autograd.Function):
    """``y[b, s, d] = embed_scale[row] * sgn(bit d of qweight[row])``, ``row = input[b, s]``.

    ``apply(input, qweight, embed_scale, ori_embedding_dim, is_train)``; sets ``qweight.active_indices`` in backward.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, qweight: Tensor, embed_scale: Tensor, ori_embedding_dim: int, is_train: bool
    ) -> Tensor:
        raise NotImplementedError


@awaits("binary_embedding_bag")
class BinaryEmbeddingBagForward(torch.autograd.Function):
    """``y[b, d]`` = +1 where at least half of the bag's rows have bit d set, else -1; float32.

    ``apply(input, weight, is_train)``; sets ``weight.active_indices`` in backward.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, is_train: bool) -> Tensor:
        raise NotImplementedError


@awaits("binary_embedding")
class BinaryEmbeddingCuda(nn.BinaryEmbedding):
    """:class:`bie.nn.BinaryEmbedding`. Keyword arguments only, others are ignored."""

    def __init__(
        self,
        *args: Any,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: torch.dtype = torch.float,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype=dtype)

    def init_weight(self) -> None:
        raise NotImplementedError

    def reset_parameters(self, weight: Tensor) -> None:
        raise NotImplementedError


@awaits("binary_embedding_bag")
class BinaryEmbeddingBag(nn.BinaryEmbeddingBag):
    """:class:`bie.nn.BinaryEmbeddingBag`. Keyword arguments only, others are ignored."""

    def __init__(
        self, *args: Any, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx)
