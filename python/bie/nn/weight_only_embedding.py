"""An embedding whose rows are codes of 1 to 6 or 8 bits, and the linear that shares its table."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bie._operators import ops
from bie._outside_graphs import outside_graphs
from bie.errors import ShapeError
from bie.nn.state.arguments import ACTIVATIONS, one_of
from bie.nn.state.entries import check_entry
from bie.nn.state.panels import Panels
from bie.nn.state.weight_state import StagedState, moving, take_entry
from bie.nn.state.whole_load import load_layer
from bie.nn.state.whole_weights import WholeWeights
from bie.weights.gptq import words_of
from bie.weights.parameters import CodeRowsParameter, QuantParameter

_WIDTHS = (1, 2, 3, 4, 5, 6, 8)
_KEYS = ("qweight", "scales", "zeros")


class _Dense(torch.autograd.Function):
    """A leaf as it is, whose gradient is made dense."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor) -> Tensor:
        return anchor.view_as(anchor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.to_dense() if grad.is_sparse else grad


class WeightOnlyEmbedding(WholeWeights, nn.Module):
    """Indices of any shape to rows of codes as floats: ``y[..., d] = q[row, d] * scales[row, g] - zeros[row, g]``.

    =======  =========================================================================================================
    qweight  [N, ceil(D * bits / 32)] int32, the codes of a row, the first in the lowest bits
    scales   [N, G], G = ceil(D / group_size)
    zeros    [N, G]
    =======  =========================================================================================================

    ``head()`` is a linear over the same table, as language models tie it. Gradient, in training: ``qweight.grad``, that
    of the table as floats, sparse of the rows that were looked up; the head's joins it, and makes it dense.
    ``bie.optim.DiodeMix`` steps the codes of these rows.

    Args:
        num_embeddings, embedding_dim: N and D, any positive numbers.
        bits: 1, 2, 3, 4, 5, 6 or 8.
        group_size: elements of a row that share a scale, -1 for all.
        padding_idx: a row, from the end where negative, that no gradient moves, as in ``nn.Embedding``.
        device: where the tensors are made.
        dtype: of the output, ``scales`` and ``zeros``: float32, float16 or bfloat16.
        requires_grad: whether training makes that gradient.
        sparse: whether it is sparse; a dense one is [N, D], and moves every row as an optimizer's moments say.
        activation: of ``head()``, as a :class:`WeightOnlyLinear` has it: ``"exact"`` or ``"int8"``; an attribute that
            may be set.
        factor: every row that is looked up is multiplied by it, rounded to ``dtype``; ``head()`` is not. Gemma scales
            its table so.

    Raises:
        ValueError (``forward``): an index out of range. TypeError: indices that are neither int32 nor int64.

    Source: docs/spec/weight-only.md, docs/spec/embedding.md; this layer is bie's own.

    Example::

        >>> layer = bie.nn.WeightOnlyEmbedding(10, 24, bits=4, group_size=8)
        >>> layer.set_weight_data(torch.randn(10, 24))
        >>> layer(torch.tensor([[1, 2, 0]])).shape, layer.head()(torch.randn(5, 24)).shape
        (torch.Size([1, 3, 24]), torch.Size([5, 10]))
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        bits: int = 4,
        group_size: int = 32,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float,
        *,
        requires_grad: bool = True,
        sparse: bool = True,
        activation: str = "exact",
        factor: float = 1.0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if num_embeddings < 1 or embedding_dim < 1:
            raise ShapeError(f"{name}: the table is [{num_embeddings}, {embedding_dim}], sizes are positive")
        if bits not in _WIDTHS:
            raise ValueError(f"{name}: bits: expected 1, 2, 3, 4, 5, 6 or 8, got {bits}")
        if group_size != -1 and group_size < 1:
            raise ValueError(f"{name}: group_size: expected -1 or a positive number, got {group_size}")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"{name}: padding_idx is {padding_idx}, the table has {num_embeddings} rows")
        if dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"{name}: dtype: expected float32, float16 or bfloat16, got {dtype}")
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.sparse, self.activation, self.factor = sparse, activation, float(factor)
        self.bits, self.group_size = bits, embedding_dim if group_size == -1 else min(group_size, embedding_dim)
        groups = -(-embedding_dim // self.group_size)
        words = torch.zeros(num_embeddings, words_of(embedding_dim, bits), dtype=torch.int32, device=device)
        self.qweight = CodeRowsParameter(words, requires_grad)
        self.register_buffer("scales", torch.ones(num_embeddings, groups, dtype=dtype, device=device))
        self.register_buffer("zeros", torch.zeros(num_embeddings, groups, dtype=dtype, device=device))
        self._tell_weight()

    @property
    def activation(self) -> str:
        """``"exact"``, or ``"int8"``: what ``head()`` multiplies becomes 8-bit codes first."""
        return self._activation

    @activation.setter
    def activation(self, activation: str) -> None:
        self._activation = one_of(f"{type(self).__name__}: activation", activation, ACTIVATIONS)

    def _tell_weight(self) -> None:
        for name, value in (("scales", self.scales), ("zeros", self.zeros), ("w_bit", self.bits)):
            setattr(self.qweight, name, value)
        self.qweight.group_size = self.group_size
        self._words = self.qweight.detach()

    @property
    def _trains(self) -> bool:
        return self.training and torch.is_grad_enabled() and self.qweight.trainable

    def _anchor(self) -> Tensor:
        """The leaf that the table's gradient comes to."""
        self._tell_weight()  # a buffer may have been assigned
        self.qweight.awaits_gradient = True
        return self.qweight.anchor((self.num_embeddings, self.embedding_dim))

    def _apply(self, fn: Any, recurse: bool = True) -> WeightOnlyEmbedding:
        weight = self.qweight
        with moving(self):
            super()._apply(fn, recurse)
        weight.adopt(self.qweight)
        self._tell_weight()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_words": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"sparse": True, "_activation": "exact", "factor": 1.0} | state)
        if type(self.qweight) is QuantParameter:  # of older pickles, where codes were not trained
            self.qweight = CodeRowsParameter(self.qweight.detach(), False)
        self._tell_weight()

    def set_weight_data(self, weight: Tensor) -> None:
        """Codes of a float table [N, D] by round to nearest, docs/spec/weight-only.md#round-to-nearest.

        Raises:
            ShapeError: another shape. ValueError: NaN or infinity.
        """
        shape = (self.num_embeddings, self.embedding_dim)
        if tuple(weight.shape) != shape:
            raise ShapeError(f"{type(self).__name__}: the weight: expected {list(shape)}, got {list(weight.shape)}")
        scales, zeros = ops.weight_only_ranges(weight, self.bits, self.group_size, dtype=self.scales.dtype)
        values = weight.detach().t().float()
        with torch.no_grad():
            self.qweight.copy_(
                ops.weight_only_pack(values, scales, zeros, bits=self.bits, group_size=self.group_size).t()
            )
            self.scales.copy_(scales.t())
            self.zeros.copy_(zeros.t())

    def forward(self, input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"{type(self).__name__}: the input: expected a tensor, got a {type(input).__name__}")
        return self._train(input) if self._trains else self._look_up(input)

    def _plain_words(self) -> Tensor:
        """The codes as a plain tensor, in an export a constant: AOTInductor takes no parameters of other classes."""
        return self._words if getattr(torch.compiler, "_is_exporting_flag", False) else self.qweight.detach()

    def _look_up(self, input: Tensor, anchor: Tensor | None = None) -> Tensor:
        rows = ops.weight_only_embedding(
            input,
            self._plain_words(),
            self.scales,
            self.zeros,
            bits=self.bits,
            embedding_dim=self.embedding_dim,
            group_size=self.group_size,
            padding_idx=self.padding_idx,
            anchor=anchor,
        )
        return rows if self.factor == 1 else rows * torch.full((), self.factor, dtype=rows.dtype, device=rows.device)

    @outside_graphs("graphs have no sparse gradients")
    def _train(self, input: Tensor) -> Tensor:
        anchor = self._anchor()
        return self._look_up(input, anchor if self.sparse else _Dense.apply(anchor))

    def _check_state(self, own: dict[str, Any], prefix: str) -> StagedState:
        staged = StagedState()
        for name in _KEYS:
            if name not in own:
                staged.missing.append(name)
                continue
            place = getattr(self, name)
            dtype = self.scales.dtype if place.is_floating_point() else place.dtype
            staged.values[name] = check_entry(f"the entry '{prefix}{name}'", own[name], tuple(place.shape), dtype)
        return staged

    def _take_state(self, staged: StagedState, assign: bool) -> None:
        weight = self.qweight
        for name, value in staged.values.items():
            take_entry(self, name, value, assign)
        weight.adopt(self.qweight)
        self._tell_weight()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        take = partial(self._take_state, assign=local_metadata.get("assign_to_params_buffers", False))
        load_layer(self, _KEYS, self._check_state, take, state_dict, prefix, local_metadata, *lists)

    def head(self) -> TiedHead:
        """The linear ``y = x . W^T`` over this table, which it shares: no second copy is stored."""
        return TiedHead(self)

    def packed_state(self) -> dict[str, Tensor]:
        """The layer's tensors by their keys; the table is packed as it is."""
        return {name: tensor.detach() for name, tensor in self.state_dict(keep_vars=True).items()}

    def extra_repr(self) -> str:
        parts = [
            str(self.num_embeddings),
            str(self.embedding_dim),
            f"bits={self.bits}",
            f"group_size={self.group_size}",
        ]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.activation != "exact":
            parts.append(f"activation={self.activation}")
        if self.factor != 1:
            parts.append(f"factor={self.factor:g}")
        return ", ".join(parts)


class TiedHead(nn.Module):
    """``y = x . W^T`` [..., N] over the table of a :class:`WeightOnlyEmbedding`; made by its ``head``.

    Its tensors are the embedding's own and stand in the embedding's state alone; its gradient joins the embedding's, in
    training of both. Evaluation keeps the kernel's
    arrangement of the table beside it, which is derived and never saved.
    """

    def __init__(self, embedding: WeightOnlyEmbedding) -> None:
        super().__init__()
        self._table = (embedding,)  # in a tuple: it is no child of this module
        self._panels, self._activation = Panels(), embedding.activation

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(
                "TiedHead has no attribute 'weight': its weight is the codes of a table, which "
                "bie.lm.open_table(model) makes floats"
            )
        return super().__getattr__(name)

    @property
    def table(self) -> WeightOnlyEmbedding:
        """The embedding whose table this is."""
        return self._table[0]

    @property
    def in_features(self) -> int:
        """The table's columns."""
        return self.table.embedding_dim

    @property
    def out_features(self) -> int:
        """The table's rows."""
        return self.table.num_embeddings

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={self.table.bits}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_activation": "exact"} | state | {"_panels": Panels()})

    def forward(self, x: Tensor) -> Tensor:
        (table,) = self._table
        if not isinstance(x, Tensor) or x.dim() < 1 or x.shape[-1] != table.embedding_dim:
            shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError(f"TiedHead: x is {shape}, the table has {table.embedding_dim} features")
        tensors = (table._plain_words().t(), table.scales.t(), table.zeros.t())
        options: dict[str, Any] = {"bits": table.bits, "group_size": table.group_size}
        if table.activation == "int8":
            options["int8_activations"] = True
        if self._activation != table.activation:  # panels serve activations of one kind
            self._activation = table.activation
            self._panels.forget()

        def make() -> Tensor:
            return ops.weight_only_prepack(*tensors, in_features=table.embedding_dim, **options)

        if not self.training:
            options["panels"] = self._panels.current(tensors, make)
        elif table._trains:
            options["anchor"] = table._anchor().t()
        return ops.weight_only_linear(x, *tensors, **options)
