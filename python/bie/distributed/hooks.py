"""Hooks that neither keep their object alive nor travel with copies of a module."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Weakly:
    """Calls a method while its object lives. A copy of it calls nothing."""

    def __init__(self, method: Callable[..., Any] | None) -> None:
        self._method = None if method is None else weakref.WeakMethod(method)

    def __call__(self, *args: Any) -> None:
        method = None if self._method is None else self._method()
        if method is not None:
            method(*args)

    def __deepcopy__(self, memo: dict) -> Weakly:
        return Weakly(None)

    def __reduce__(self) -> tuple:
        return Weakly, (None,)
