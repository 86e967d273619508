"""Embeddings with one bit a weight. Source: docs/spec/embedding.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._outside_graphs import outside_graphs
from bie.errors import ShapeError
from bie.nn.state.entries import check_entry, preparing
from bie.nn.state.weight_state import StagedState, moving, ordinary, take_entry
from bie.nn.state.whole_load import load_layer
from bie.nn.state.whole_weights import WholeWeights
from bie.weights.parameters import EmbeddingParameter


class _Embedding(WholeWeights, nn.Module):
    """Sizes of a table, its padding row, the anchor of its gradient."""

    _parameter: ClassVar[type[EmbeddingParameter]] = EmbeddingParameter

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None) -> None:
        super().__init__()
        name = type(self).__name__
        if num_embeddings < 1 or embedding_dim < 1:
            raise ShapeError(f"{name}: the table is [{num_embeddings}, {embedding_dim}], sizes are positive")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"{name}: padding_idx is {padding_idx}, the table has {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx

    def _table(self) -> EmbeddingParameter:
        raise NotImplementedError

    def _look_up(self, lookup: Callable[..., Tensor], input: Tensor, *tensors: Tensor, **options: Any) -> Tensor:
        options |= {"embedding_dim": self.embedding_dim, "padding_idx": self.padding_idx}
        if self.training and torch.is_grad_enabled() and self._table().trainable:
            return self._train(lookup, input, *tensors, **options)
        return lookup(input, *tensors, **options)

    @outside_graphs("graphs have no sparse gradients")
    def _train(self, lookup: Callable[..., Tensor], input: Tensor, *tensors: Tensor, **options: Any) -> Tensor:
        table = self._table()
        table.embedding_dim = self.embedding_dim  # which of its bits DiodeMix may flip
        anchor = table.anchor((self.num_embeddings, self.embedding_dim))
        table.awaits_gradient, table.active_indices = True, input
        return lookup(input, *tensors, **options, anchor=anchor)

    def _apply(self, fn: Any, recurse: bool = True) -> _Embedding:
        table = self._table()
        with moving(self):
            super()._apply(fn, recurse)
        table.adopt(self._table())
        return self

    def _check_input(self, input: Tensor) -> None:
        if not isinstance(input, Tensor):
            raise TypeError(f"{type(self).__name__}: the input: expected a tensor, got a {type(input).__name__}")

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class BinaryEmbedding(_Embedding):
    """Indices of any shape to ``+-scale_w[row]``: ``y[..., d] = scale_w[row] * sgn(bit d of qweight[row])``.

    ==========  ======================================================================================================
    weight      [N, D] float, normal(0, 1), not trained; gone after ``prepare_params``
    qweight     [N, ceil(D/8)] uint8, bit i of byte j is element 8j+i, 1 means +1; zeros before
    scale_w     [N, 1], the mean size of a row; zeros before, and for the padding row
    ==========  ======================================================================================================

    A layer used unprepared prepares itself. Gradient, in training: ``qweight.grad``, sparse, the sum of ``g * scale_w``
    of the rows that were looked up. ``bie.optim.DiodeMix`` flips bits of these rows alone; an element of 0 votes +1.

    Args:
        num_embeddings, embedding_dim: sizes of the table, any positive numbers.
        padding_idx: a row, from the end where negative, that no gradient moves. It outputs 0, as in BITorch Engine,
            whose files hold the scale 0 for it; signs alone cannot be 0.
        device: where the tensors are made.
        dtype: of the output and of ``scale_w``: float32, float16 or bfloat16.

    Raises:
        ValueError (``forward``): an index out of range. TypeError: indices that are neither int32 nor int64.

    Source: docs/spec/embedding.md; BITorch Engine 0.2.6 ``BinaryEmbeddingCuda``.

    Example::

        >>> layer = bie.nn.BinaryEmbedding(10, 5, padding_idx=0)
        >>> layer(torch.tensor([[1, 2, 0]])).shape
        torch.Size([1, 3, 5])
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        if dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"{type(self).__name__}: dtype: expected float32, float16 or bfloat16, got {dtype}")
        place = {"device": device}
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim, dtype=dtype, **place), False)
        words = torch.zeros(num_embeddings, -(-embedding_dim // 8), dtype=torch.uint8, **place)
        self.qweight = self._parameter(words)
        self.register_buffer("scale_w", torch.zeros(num_embeddings, 1, dtype=dtype, **place))
        self.init_weight()

    def _table(self) -> EmbeddingParameter:
        return self.qweight

    def init_weight(self) -> None:
        """A new float weight, normal(0, 1)."""
        if self.weight is not None:
            nn.init.normal_(self.weight)

    @torch.inference_mode(False)
    def reset_parameters(self, weight: Tensor | None = None) -> None:
        """The table of a new layer, or that of a float weight [N, D].

        Raises:
            ShapeError: the weight has another shape. ValueError: NaN or infinity.
        """
        shape = (self.num_embeddings, self.embedding_dim)
        if weight is None:
            weight = torch.randn(shape, dtype=self.scale_w.dtype)
        if tuple(weight.shape) != shape or not weight.is_floating_point():
            raise ShapeError(f"{type(self).__name__}: the weight: expected {list(shape)}, got {list(weight.shape)}")
        if not bool(torch.isfinite(weight).all()):
            raise ValueError(f"{type(self).__name__}: the weight holds NaN or infinity")
        value = weight.detach().to(device=self.qweight.device, dtype=self.scale_w.dtype, copy=True)
        self.weight = nn.Parameter(value, False)
        with torch.no_grad():
            self.qweight.zero_()
            self.scale_w.zero_()

    def prepare_params(self) -> None:
        """``c = w - mean(w)``, rows padded with -1 to whole bytes: the signs of c, and its mean size a row. Each only
        where nothing was loaded; the float weight is released."""
        if self.weight is not None:
            self._prepare()

    @outside_graphs("a layer becomes prepared outside of graphs")
    def _prepare(self) -> None:
        with preparing, torch.no_grad():
            if self.weight is None:  # prepared by another thread meanwhile
                return
            signs, sizes = bool(self.qweight.any()), bool(self.scale_w.any())
            if not signs or not sizes:
                wide = self.weight.detach().float()
                centred = wide - wide.mean(dtype=torch.float64).float()
                padded = nn.functional.pad(centred, (0, 8 * self.qweight.size(1) - self.embedding_dim), value=-1.0)
                if not sizes:
                    self.scale_w.copy_(padded.abs().mean(1, keepdim=True, dtype=torch.float64))
                if not signs:
                    self.qweight.copy_(ops.pack_signs(padded))
                if self.padding_idx is not None:
                    self.scale_w[self.padding_idx] = 0
            self.weight = None

    def forward(self, input: Tensor) -> Tensor:
        self._check_input(input)
        self.prepare_params()
        tensors = (self.qweight.detach(), self.scale_w)
        return self._look_up(ops.binary_embedding, input, *tensors, dtype=self.scale_w.dtype)

    def packed_state(self) -> dict[str, Tensor]:
        """The layer's tensors by their keys; the table is packed as it is."""
        return {name: tensor.detach() for name, tensor in self.state_dict(keep_vars=True).items()}

    def _check_state(self, own: dict[str, Any], prefix: str) -> StagedState:
        staged = StagedState()
        shapes = {name: tuple(getattr(self, name).shape) for name in ("qweight", "scale_w")}
        shapes["weight"] = (self.num_embeddings, self.embedding_dim)
        for name, tensor in own.items():
            dtype = torch.uint8 if name == "qweight" else self.scale_w.dtype
            staged.values[name] = check_entry(f"the entry '{prefix}{name}'", tensor, shapes[name], dtype)
        staged.missing = [name for name in ("qweight", "scale_w") if name not in own]
        return staged

    def _take_state(self, staged: StagedState, assign: bool) -> None:
        """An entry that is not given stays; with a float weight those of the weight that was there are given up."""
        values, table = staged.values, self.qweight
        if (weight := values.pop("weight", None)) is not None:
            if self.weight is None:
                self.weight = nn.Parameter(torch.empty_like(weight, dtype=self.scale_w.dtype), False)
            take_entry(self, "weight", weight, assign)
            for name in ("qweight", "scale_w"):
                values.setdefault(name, torch.zeros_like(getattr(self, name)))
        elif self.weight is not None and any(value.is_meta or bool(value.any()) for value in values.values()):
            if len(values) == 1 and not self.weight.is_meta:
                self.prepare_params()
            self.weight = None
        for name, value in values.items():
            take_entry(self, name, value, assign)
        table.adopt(self.qweight)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        keys = ("weight", "qweight", "scale_w")
        take = partial(self._take_state, assign=local_metadata.get("assign_to_params_buffers", False))
        load_layer(self, keys, self._check_state, take, state_dict, prefix, local_metadata, *lists)


class BinaryEmbeddingBag(_Embedding):
    """Bags [b, s] of indices to [b, D] of +-1: the sign that at least half of a bag's rows have, in float32.

    ``weight`` is [N, D] bool, True means +1. Gradient, in training: ``weight.grad``, sparse, the sum of ``g`` over the
    bags that a row is in. ``bie.optim.DiodeMix`` flips bits of these rows alone.

    Args:
        num_embeddings, embedding_dim: sizes of the table, any positive numbers.
        padding_idx: a row, from the end where negative, that is left out of every bag and that no gradient moves.
        device: where the table is made.

    Raises:
        ValueError (``forward``): an index out of range, or no matrix of them. TypeError: neither int32 nor int64.

    Source: docs/spec/embedding.md; BITorch Engine 0.2.6 ``BinaryEmbeddingBag``.

    Example::

        >>> layer = bie.nn.BinaryEmbeddingBag(10, 5)
        >>> layer(torch.tensor([[1, 2, 3], [0, 0, 4]])).shape
        torch.Size([2, 5])
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        self.weight = self._parameter(torch.empty(num_embeddings, embedding_dim, dtype=torch.bool, device=device))
        self.reset_parameters()

    def _table(self) -> EmbeddingParameter:
        return self.weight

    @torch.inference_mode(False)
    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The table of a new layer: each element is True with probability 1/2, the padding row is False."""
        self.weight.copy_(torch.rand(self.weight.shape, device=self.weight.device) < 0.5)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = False

    def forward(self, input: Tensor) -> Tensor:
        self._check_input(input)
        return self._look_up(ops.binary_embedding_bag, input, self.weight.detach())

    def _load_from_state_dict(self, *args: Any) -> None:
        table = self.weight
        super()._load_from_state_dict(*args)
        if self.weight.is_inference():
            self.weight = nn.Parameter(ordinary(self.weight.detach()), False)
        table.adopt(self.weight)  # assigned, it is a plain parameter
