"""Low-rank adapters beside frozen layers; docs/calibrate.md#adapters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from bie.errors import ShapeError
from bie.nn.merging import add_to_weight, why_not
from bie.nn.state.linear_layer import LinearLayer
from bie.nn.weight_only import WeightOnlyLinear

_LINEARS = (LinearLayer, WeightOnlyLinear, nn.Linear)


class LoRA(nn.Module):
    """``y = layer(x) + (x . A^T) . B^T * alpha / rank``: a frozen linear and a trained product of two small matrices.

    ``A`` [rank, in] is Kaiming uniform with a = sqrt(5), ``B`` [out, rank] zeros, so the layer begins as it was.

    Args:
        layer: a linear of this package or of torch, frozen from then on.
        rank: rows of A.
        alpha: the factor times ``rank``; ``rank`` by default, a factor of 1.
        dropout: the share of x that training drops in front of A.

    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models".

    Example::

        >>> layer = bie.nn.LoRA(bie.convert(torch.nn.Linear(64, 8), "w4").model, rank=2)
        >>> [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
        ['A', 'B']
        >>> layer(torch.randn(3, 64)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        layer: nn.Module,
        rank: int = 8,
        alpha: float | None = None,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(layer, _LINEARS):
            raise TypeError(f"LoRA: the layer: expected a linear, got a {type(layer).__name__}")
        if rank < 1:
            raise ValueError(f"LoRA: rank: expected a positive number, got {rank}")
        self.layer = layer.requires_grad_(False)
        self.rank, self.alpha = rank, float(rank if alpha is None else alpha)
        self.in_features, self.out_features = _sizes(layer)
        device = next(layer.parameters()).device if device is None else device
        self.A = nn.Parameter(torch.empty(rank, self.in_features, device=device))
        self.B = nn.Parameter(torch.zeros(self.out_features, rank, device=device))
        self.dropout = nn.Dropout(dropout)
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() < 1 or x.shape[-1] != self.in_features:
            raise ShapeError(f"LoRA: x: expected the layer's {self.in_features} features, got {list(x.shape)}")
        y = self.layer(x)
        small = nn.functional.linear(nn.functional.linear(self.dropout(x).to(self.A.dtype), self.A), self.B)
        return y + (small * (self.alpha / self.rank)).to(y.dtype)

    @torch.no_grad()
    def merge(self) -> float:
        """Adds ``B . A * alpha / rank`` to the layer's weight, whose codes are rounded anew, and sets ``B`` to zeros.

        Returns the share of the adapter that the rounding lost: 0 is nothing; near 1 the adapter is better kept beside
        the layer, or merged into codes of more bits.

        Raises:
            ValueError: a layer that keeps no weight to add to, such as a binary or a packed one.
        """
        lost = add_to_weight(self.layer, self.B.float() @ self.A.float() * (self.alpha / self.rank))
        self.B.zero_()
        return lost

    def extra_repr(self) -> str:
        return f"rank={self.rank}, alpha={self.alpha}"


def _sizes(layer: nn.Module) -> tuple[int, int]:
    return layer.in_features, layer.out_features


def add_adapters(
    model: nn.Module,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    *,
    filter: Callable[[str, nn.Module], bool] | None = None,
) -> list[str]:
    """Freezes a model and puts an adapter beside each of its quantised linears; the names of those.

    ``adapter_state`` is what is saved of them.

    Args:
        rank, alpha, dropout: of :class:`LoRA`.
        filter: ``(name, module) -> bool``, which linears get one, nn.Linear among them; by default the quantised ones.

    Raises:
        ValueError: no linear gets one.

    Example::

        >>> model = bie.convert(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)), "w4").model
        >>> bie.nn.add_adapters(model, rank=4)
        ['0', '1']
        >>> sorted(bie.nn.adapter_state(model))
        ['0.A', '0.B', '1.A', '1.B']
    """
    chosen = filter or (lambda name, module: not isinstance(module, nn.Linear))
    places = [
        (parent, leaf, f"{path}.{leaf}" if path else leaf, child)
        for path, parent in model.named_modules()
        if not isinstance(parent, LoRA)
        for leaf, child in parent._modules.items()  # one under two names under both
        if isinstance(child, _LINEARS)
    ]
    places = [place for place in places if chosen(place[2], place[3])]
    if not places:
        raise ValueError("add_adapters: the model has no linear to put an adapter beside")
    model.requires_grad_(False)
    made = {id(child): LoRA(child, rank, alpha, dropout).train(child.training) for _, _, _, child in places}
    for parent, leaf, _, child in places:
        setattr(parent, leaf, made[id(child)])
    return [name for _, _, name, _ in places]


def merge_adapters(model: nn.Module) -> dict[str, float]:
    """Merges each adapter of a model into its layer, which takes the adapter's place; in place.

    Returns the share of each adapter that rounding to codes lost, see :meth:`LoRA.merge`. A warning names the worst
    where that is more than half. An adapter whose layer cannot take it in is an error, before anything is changed.

    Example::

        >>> model = bie.convert(torch.nn.Sequential(torch.nn.Linear(64, 8)), "w8").model
        >>> names = bie.nn.add_adapters(model, rank=2)
        >>> bie.nn.merge_adapters(model), type(model[0]).__name__
        ({'0': 0.0}, 'MPQLinear')
    """
    if isinstance(model, LoRA):
        raise ValueError("merge_adapters: expected a model around its adapters, got a LoRA: its merge() does that")
    found = list(_adapters(model))
    for name, adapter in found:
        if (reason := why_not(adapter.layer)) is not None:
            raise ValueError(f"merge_adapters: layer {name!r}: {reason}")
    lost = {name: adapter.merge() for name, adapter in found}
    for parent in list(model.modules()):
        for leaf, child in list(parent._modules.items()):
            if isinstance(child, LoRA):
                setattr(parent, leaf, child.layer)
    worst = max(lost, key=lost.__getitem__, default="")
    if worst and lost[worst] > 0.5:
        warnings.warn(
            f"merge_adapters: rounding lost {lost[worst]:.0%} of the adapter of {worst!r}: codes of more bits hold "
            "more of it, and an adapter that stays beside its layer loses nothing",
            stacklevel=2,
        )
    return lost


def _adapters(model: nn.Module) -> Iterator[tuple[str, LoRA]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoRA))


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model's adapters alone, for ``load_state_dict(strict=False)`` of a model that has them.

    Example::

        >>> bie.nn.adapter_state(torch.nn.Linear(2, 2))
        {}
    """
    prefixes = {f"{name}." if name else "": module for name, module in _adapters(model)}
    return {f"{prefix}{leaf}": getattr(m, leaf).detach() for prefix, m in prefixes.items() for leaf in ("A", "B")}
