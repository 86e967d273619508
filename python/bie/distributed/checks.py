"""Whether the ranks of a group have the same weights."""

from __future__ import annotations

import hashlib
import weakref
from itertools import zip_longest

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bie.distributed import exchange

_AT_ONCE = 1 << 20  # words whose places are multiplied at once


class RanksDifferError(RuntimeError):
    """The ranks of a group hold different weights."""


def checksum(tensor: Tensor) -> Tensor:
    """[] int64: sum of ``(2i + 1) * v_i`` modulo 2^64 over the tensor's bytes, eight to a v; 0 is no tensor's alone."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    flat = nn.functional.pad(flat, (0, -flat.numel() % 8)).view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for begin in range(0, flat.numel(), _AT_ONCE):
        piece = flat[begin : begin + _AT_ONCE]
        odd = torch.arange(begin, begin + piece.numel(), device=flat.device) * 2 + 1
        total += (piece * odd).sum()
    return total


def _describe(model: nn.Module) -> list[str]:
    """A line for each parameter and buffer."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}" for name, tensor in tensors]


def check_same_model(model: nn.Module, group: exchange.Group, device: torch.device) -> None:
    """Raises ``RanksDifferError`` on every rank where one has parameters or buffers that another has not."""
    lines = _describe(model)
    digest = int.from_bytes(hashlib.blake2b("\n".join(lines).encode(), digest_size=7).digest(), "big")
    every = exchange.gathered(torch.tensor([digest], device=device), group)
    if bool((every == every[0]).all()):
        return
    models: list[list[str]] = [[]] * group.size()
    dist.all_gather_object(models, lines, group=group)
    ranks = dist.get_process_group_ranks(group)
    other = next(i for i, own in enumerate(models) if own != models[0])
    both = zip_longest(models[0], models[other], fillvalue="nothing more")
    first, second = next((one, two) for one, two in both if one != two)
    raise RanksDifferError(
        f"bie.distributed: the ranks hold other models: rank {ranks[0]} has {first} where rank {ranks[other]} has "
        f"{second}"
    )


class Checksums:
    """Those of a model's integers and step sizes, by the names of their layers."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        found = []
        for name, tensor in self._model().named_parameters():
            if not tensor.is_floating_point() or (tensor.dim() == 0 and not hasattr(tensor, "device_mesh")):
                found.append((name, tensor))
        return found

    def compare(self, group: exchange.Group) -> None:
        """Raises ``RanksDifferError``, naming weights and ranks, on every rank of the group."""
        tensors = self._tensors()
        if not tensors:
            return
        own = torch.stack([checksum(tensor) for _, tensor in tensors])
        every = exchange.gathered(own, group).view(group.size(), -1)
        differs = (every != every[0]).cpu()
        if not differs.any():
            return
        ranks = dist.get_process_group_ranks(group)
        names = [name for i, (name, _) in enumerate(tensors) if differs[:, i].any()]
        others = [ranks[i] for i in differs.any(1).nonzero().flatten().tolist()]
        some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        raise RanksDifferError(f"bie.distributed: {some}: ranks {others} differ from rank {ranks[0]}")
