"""Names whose operators this build does not have: they import, and using one is a sentence.

The list is what the decorators in the modules themselves say; ``missing()`` collects it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T", bound=Callable)

_waiting: dict[str, str] = {}

# Modules that need another package, and say so when they are imported.
_OPTIONAL = frozenset(
    f"bitorch_engine.layers.qlinear.{name}"
    for name in ("layer", "qlinear_implementation", "binary.binary_implementation", "nbit.mps", "nbit.mps.mpq_layer")
)


def awaits(operator: str) -> Callable[[T], T]:
    """Decorator of a class or function that needs ``operator``.

    A module class raises when it is constructed, an ``autograd.Function`` when it is applied, a function when it is
    called: ``NotImplementedError``, one sentence with both names. Imports, ``issubclass``, class attributes and
    ``inspect.signature`` work as they do for every other class.
    """

    def mark(thing: T) -> T:
        sentence = f"{thing.__qualname__} waits for the operator {operator}, which this build does not have"
        _waiting[f"{thing.__module__}.{thing.__qualname__}"] = operator

        def refuse(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(sentence)

        if not isinstance(thing, type):
            return functools.wraps(thing)(refuse)
        if issubclass(thing, torch.autograd.Function):
            thing.apply = staticmethod(refuse)
        else:
            thing.__init__ = functools.wraps(thing.__init__)(refuse)
        return thing

    return mark


def is_missing(thing: Any) -> bool:
    """Whether this very class or function waits for an operator."""
    return f"{thing.__module__}.{thing.__qualname__}" in _waiting


def modules(package: str) -> list[str]:
    """The names of a package's public modules that stock PyTorch is enough for."""
    found, rooms = [], [package]
    while rooms:
        room = rooms.pop()
        found.append(room)
        for entry in pkgutil.iter_modules(importlib.import_module(room).__path__, room + "."):
            if entry.name.rpartition(".")[2].startswith("_") or entry.name in _OPTIONAL:
                continue
            (rooms if entry.ispkg else found).append(entry.name)
    return sorted(found)


def missing(package: str) -> list[tuple[str, str]]:
    """(qualified name, operator) of what waits in a package, sorted; imports all its public modules."""
    for name in modules(package):
        importlib.import_module(name)
    return sorted((name, operator) for name, operator in _waiting.items() if name.startswith(f"{package}."))
