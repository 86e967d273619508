"""What the entries of a state dict have to be for a layer to take them."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from bie._operators import ops

#: Held while a layer becomes prepared, which its first call does: the first calls may come from several threads. One
#: lock for all layers, because a layer is copied and pickled.
preparing = threading.RLock()


def check_entry(name: str, entry: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The entry, detached; ``ValueError`` that begins with ``name`` unless it is a tensor of this shape.

    Of ``dtype`` where that is a type of integers, else of any float type and finite in ``dtype``.
    """
    if not isinstance(entry, Tensor):
        raise ValueError(f"{name}: expected a tensor, got a {type(entry).__name__}")
    ops.check_entry(entry, shape, dtype, name)
    return entry.detach()
