"""Binary embeddings under BITorch Engine's names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bie import nn
from bie.bitorch import functions
from bie.bitorch.model_helper import pad_embedding_dim
from bie.weights.parameters import EmbeddingParameter

__all__ = [
    "BinaryEmbeddingBag",
    "BinaryEmbeddingBagForward",
    "BinaryEmbeddingCuda",
    "BinaryEmbeddingForward",
    "BinaryEmbeddingParameter",
    "pad_embedding_dim",
]


class BinaryEmbeddingParameter(EmbeddingParameter):
    """The weight of a binary embedding: :class:`bie.weights.parameters.EmbeddingParameter`."""


class BinaryEmbeddingForward(functions.OperatorFunction):
    """``y[b, s, d] = embed_scale[row] * sgn(bit d of qweight[row])``, ``row = input[b, s]``.

    ``apply(input, qweight, embed_scale, ori_embedding_dim, is_train)``; ``qweight.active_indices`` are the last
    ``input`` of training.
    """

    call = staticmethod(functions.binary_embedding)


class BinaryEmbeddingBagForward(functions.OperatorFunction):
    """``y[b, d]`` = +1 where at least half of the bag's rows have bit d set, else -1; float32.

    ``apply(input, weight, is_train)``; ``weight.active_indices`` are the last ``input`` of training.
    """

    call = staticmethod(functions.binary_embedding_bag)


class BinaryEmbeddingCuda(nn.BinaryEmbedding):
    """:class:`bie.nn.BinaryEmbedding`. Keyword arguments only, others are ignored."""

    _parameter = BinaryEmbeddingParameter

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

    def reset_parameters(self, weight: Tensor | None = None) -> None:
        super().reset_parameters(weight)


class BinaryEmbeddingBag(nn.BinaryEmbeddingBag):
    """:class:`bie.nn.BinaryEmbeddingBag`. Keyword arguments only, others are ignored."""

    _parameter = BinaryEmbeddingParameter

    def __init__(
        self, *args: Any, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx)
