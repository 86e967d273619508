"""In which order and in which company a pass's gradients are sent."""

from __future__ import annotations

from typing import Any

from torch import nn

from bie.distributed.entries import Entry


def kinds_of(model: nn.Module) -> tuple[Any, ...]:
    """What a plan depends on: it is made anew where this differs."""
    return tuple((id(p), p.dtype, p.grad_dtype, getattr(p, "trainable", True)) for p in model.parameters())


def buckets_of(entries: list[Entry], elements: int) -> list[list[Entry]]:
    """Entries by kind, at least so many elements together, in the order in which a backward pass usually reaches them.

    That is the reverse of the model's, in which they are given. A bucket stands where its first entry is reached.
    """
    buckets: list[list[Entry]] = []
    filling: dict[str, list[Entry]] = {}
    for entry in reversed(entries):
        if not entry.together:
            buckets.append([entry])
            continue
        bucket = filling.get(entry.kind)
        if bucket is None:
            bucket = filling[entry.kind] = []
            buckets.append(bucket)
        bucket.append(entry)
        if sum(other.size for other in bucket) >= elements:
            del filling[entry.kind]
    return buckets
