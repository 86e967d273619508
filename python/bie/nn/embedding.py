"""Embeddings with one bit a weight; docs/spec/embedding.md."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bie._missing import awaits


@awaits("binary_embedding")
class BinaryEmbedding(nn.Module):
    """[b, s] indices to [b, s, embedding_dim] of ``+-scale_w[row]``.

    Args:
        num_embeddings, embedding_dim: sizes of the table.
        padding_idx: the row that no gradient moves.
        device: where the tensors are made.
        dtype: of the output.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
    ) -> None:
        super().__init__()

    def prepare_params(self) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        raise NotImplementedError


@awaits("binary_embedding_bag")
class BinaryEmbeddingBag(nn.Module):
    """[b, s] indices to [b, embedding_dim] of +-1: the sign that at least half of a bag's rows have.

    Args:
        num_embeddings, embedding_dim: sizes of the table.
        padding_idx: the row that no gradient moves.
        device: where the tensors are made.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        raise NotImplementedError
