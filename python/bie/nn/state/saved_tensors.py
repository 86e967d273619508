"""Integer weights under ``torch.autograd.graph.saved_tensors_hooks``."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
from torch import Tensor


class _Kept(NamedTuple):
    """What is saved of an integer weight where hooks for saved tensors are on: the weight itself."""

    weight: Tensor


def past_hooks(weights: list[Tensor]) -> contextlib.AbstractContextManager:
    """Keeps integer weights out of ``torch.autograd.graph.saved_tensors_hooks``; other tensors go through them.

    A backward pass writes the gradient into the weight that was saved: into a copy, it would be lost.
    """
    if not weights or torch.compiler.is_compiling():
        return contextlib.nullcontext()
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None:
        return contextlib.nullcontext()
    pack, unpack = hooks

    def pack_others(tensor: Tensor) -> Any:
        for weight in weights:
            if tensor.dtype == weight.dtype and tensor.data_ptr() == weight.data_ptr():
                return _Kept(weight)
        return pack(tensor)

    def unpack_others(packed: Any) -> Tensor:
        return packed.weight if isinstance(packed, _Kept) else unpack(packed)

    return torch.autograd.graph.saved_tensors_hooks(pack_others, unpack_others)
