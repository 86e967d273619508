"""Checks of what constructors are given."""

from __future__ import annotations

import functools
import numbers
import types
from collections.abc import Callable
from typing import Any

from torch import nn


def shared(init: Callable[..., None]) -> Callable[..., None]:
    """Marks the constructor of a base: see :class:`NamesItself`."""
    init.__dict__["is_shared"] = True
    return init


class NamesItself:
    """Mixin: a wrong argument's error names the layer that was made, and not the base whose constructor it shares.

    Each layer of ours has a copy of that constructor under its own name. A user's subclass inherits one of them.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        init = cls.__init__
        ours = cls.__module__.partition(".")[0] in ("bie", "bitorch_engine")
        if "__init__" in vars(cls) or not ours or not getattr(init, "is_shared", False):
            return
        own = types.FunctionType(init.__code__, init.__globals__, init.__name__, init.__defaults__, init.__closure__)
        functools.update_wrapper(own, init).__kwdefaults__ = init.__kwdefaults__
        del own.__wrapped__
        own.__module__, own.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
        cls.__init__ = own  # type: ignore[method-assign]


def pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    """(height, width) from an integer or a pair of them; ``ValueError`` for anything else or below ``least``."""
    both = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2 or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in both):
        raise ValueError(f"{name}: expected an integer or a pair of integers >= {least}, got {value}")
    return both


def one_of(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """The value, if it is one of the choices; ``ValueError`` for any other."""
    if value not in choices:
        raise ValueError(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}")
    return value


#: What a layer whose weight alone has few bits multiplies: its input as it is, or 8-bit codes of it.
ACTIVATIONS = ("exact", "int8")


def bit_width(layer: nn.Module, name: str, value: int) -> int:
    """``TypeError`` for what is no int: where nn.Linear has its ``bias``, layers of BITorch Engine have ``a_bit``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{type(layer).__name__}: {name}: expected an int, got {value!r}; a bias is asked for by its "
            "name, bias=True"
        )
    return int(value)


def single(name: str, value: int | tuple[int]) -> int:
    """A size along one axis, from an integer or a tuple of one; ``ValueError`` for anything else."""
    number = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{name}: expected an integer, got {value}")
    return number
