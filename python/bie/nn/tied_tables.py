"""Embeddings whose table is the weight of linears too, as language models tie their output layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from bie._places import factor_of, has_hooks, walk
from bie.nn.weight_only_embedding import TiedHead, WeightOnlyEmbedding


@dataclass
class TiedTable:
    """An embedding and the linears that share its weight, by their names; ``places`` is where each of them is."""

    name: str
    embedding: nn.Embedding
    heads: dict[str, nn.Linear] = field(default_factory=dict)
    places: dict[int, list[tuple[nn.Module, str]]] = field(default_factory=dict)

    @property
    def members(self) -> dict[str, nn.Module]:
        """The embedding and the linears, by name."""
        return {self.name: self.embedding, **self.heads}

    def reason_to_skip(
        self, filter: Callable[[str, nn.Module], bool] | None, options: Iterable[str], read_past: Iterable[nn.Module]
    ) -> str:
        """Why the table cannot be one of codes, or ""."""
        for name, module in self.members.items():
            if has_hooks(module):
                return f"{name} has hooks"
            if module in read_past:
                return f"the model reads the weight of {name} past its forward"
            if getattr(module, "bias", None) is not None:
                return f"{name} has a bias, which the head of a table of codes has not"
            if filter is not None and not filter(name, module):
                return f"the filter leaves {name}, and {' and '.join(self.members)} share one weight"
        known = inspect.signature(WeightOnlyEmbedding).parameters
        for option in options:
            if option not in known:
                return f"{' and '.join(self.members)} share one weight, a table of codes has no option {option!r}"
        return ""


def tied_tables(model: nn.Module) -> list[TiedTable]:
    """The tables of a model that one embedding and linears share, and nothing else does."""
    owners: dict[int, dict[int, tuple[str, nn.Module]]] = {}
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for name, parent, leaf, module in walk(model):
        if parent is not None:
            places.setdefault(id(module), []).append((parent, leaf))
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), {}).setdefault(id(module), (name, module))
    found = []
    for shared in owners.values():
        tables = [(name, module) for name, module in shared.values() if factor_of(module) is not None]
        heads = {name: module for name, module in shared.values() if type(module) is nn.Linear}
        if len(tables) != 1 or not heads or len(heads) + 1 != len(shared):
            continue
        (name, embedding) = tables[0]
        if all(head.weight is embedding.weight for head in heads.values()):
            own = {id(module): places.get(id(module), []) for module in (embedding, *heads.values())}
            found.append(TiedTable(name, embedding, heads, own))
    return found


def heads_of(tie: TiedTable, table: WeightOnlyEmbedding) -> dict[int, TiedHead]:
    """The linears over a table of codes, by the identity of the float ones that they take the place of."""
    return {id(head): table.head().train(head.training) for head in tie.heads.values()}


def table_names(model: nn.Module) -> Mapping[str, str]:
    """{name of a head: name of its table} of the heads of a model over tables of codes."""
    tables = {id(module): name for name, module in model.named_modules() if isinstance(module, WeightOnlyEmbedding)}
    heads = {name: module for name, module in model.named_modules() if isinstance(module, TiedHead)}
    return {name: tables[id(head.table)] for name, head in heads.items() if id(head.table) in tables}


def put_heads(model: nn.Module, heads: Mapping[str, str]) -> None:
    """Puts the head of its table at each name; ``heads`` is as ``table_names`` gives them."""
    for name, table in heads.items():
        parent, _, leaf = name.rpartition(".")
        head: Any = model.get_submodule(table).head()
        setattr(model.get_submodule(parent), leaf, head.train(model.get_submodule(table).training))
    forget_ties(model)


def forget_ties(model: nn.Module) -> None:
    """Takes heads of tables of codes, which have no weight of their own, off what transformers ties by name."""
    heads = table_names(model)
    for path, module in model.named_modules() if heads else ():
        ties = getattr(module, "_tied_weights_keys", None)
        if not isinstance(ties, dict):
            continue
        prefix = f"{path}." if path else ""
        gone = {key for key in ties if prefix + key.removesuffix(".weight") in heads}
        if gone:
            module._tied_weights_keys = {key: source for key, source in ties.items() if key not in gone}
        for owner, before in ((model, prefix), (module, "")):
            for key in gone:
                getattr(owner, "all_tied_weights_keys", {}).pop(before + key, None)
