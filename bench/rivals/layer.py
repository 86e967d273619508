"""What a module of this folder hands to bench/rivals_cpu.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Layer(NamedTuple):
    """A layer of a rival with its input, and how far its result is from the formula."""

    run: Callable[[], object]
    difference: float
    tolerance: float
