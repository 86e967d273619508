"""Sizes that are one integer or a pair."""

from __future__ import annotations


def pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    """(height, width) from an integer or a pair of them; ``ValueError`` for anything else or below ``least``."""
    both = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2 or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in both):
        raise ValueError(f"{name} is {value}, an integer or a pair of integers >= {least} is wanted")
    return both
