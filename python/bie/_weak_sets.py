"""Sets of what is alive, read while other threads make and drop members."""

from __future__ import annotations

import weakref
from typing import TypeVar

Member = TypeVar("Member")


def members(these: weakref.WeakSet[Member]) -> list[Member]:
    """The members alive. Iterating a WeakSet raises where another thread adds one; a set's copy runs no Python."""
    found = (reference() for reference in these.data.copy())
    return [member for member in found if member is not None]
