"""Embeddings with one bit a weight; numerics.md section 9."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bitorch_engine._missing import awaits
from bitorch_engine.layers.parameters import QuantParameter
from bitorch_engine.layers.update_rules import EMBEDDING


class BinaryEmbeddingParameter(QuantParameter):
    """Packed signs [N, ceil(D/8)] uint8 of an embedding, or [N, D] bool of a bag.

    ``active_indices`` are the rows that the last backward pass gave a gradient; an optimizer step moves only these.
    """

    rule = EMBEDDING

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = True, active_indices: Tensor | None = None
    ) -> BinaryEmbeddingParameter:
        param = super().__new__(cls, data, requires_grad)
        param.active_indices = active_indices
        return param


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

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError


@awaits("binary_embedding_bag")
class BinaryEmbeddingBagForward(torch.autograd.Function):
    """``y[b, d]`` = +1 where at least half of the bag's rows have bit d set, else -1; float32.

    ``apply(input, weight, is_train)``; sets ``weight.active_indices`` in backward.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, is_train: bool) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError


@awaits("binary_embedding")
class BinaryEmbeddingCuda(nn.Module):
    """[b, s] indices to [b, s, embedding_dim] of ``+-scale_w[row]``. Keyword arguments only, others are ignored."""

    def __init__(
        self,
        *args: Any,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: torch.dtype = torch.float,
        **kwargs: Any,
    ) -> None:
        super().__init__()

    def init_weight(self) -> None:
        raise NotImplementedError

    def prepare_params(self) -> None:
        raise NotImplementedError

    def reset_parameters(self, weight: Tensor) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        raise NotImplementedError


@awaits("binary_embedding_bag")
class BinaryEmbeddingBag(nn.Module):
    """[b, s] indices to [b, embedding_dim] of +-1. Keyword arguments only, others are ignored."""

    def __init__(
        self,
        *args: Any,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        raise NotImplementedError
