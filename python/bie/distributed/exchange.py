"""The arithmetic of a group: sums of integer gradients, means of float ones, sums of first batches.

Straight lines of collectives: every rank of the group calls the same functions in the same order. Nothing here waits
for the device. Source: docs/spec/distributed.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from bie._operators import ops

Group = dist.ProcessGroup

_LOWEST = -(2**31)


def own_group(group: Group) -> Group:
    """Another group of the same ranks, which waits for them as long as the given one.

    Its collectives and those of the given one may interleave differently on each rank.
    """
    options = [getattr(group._get_backend(device), "options", None) for device in group._device_types]
    timeouts = [found for found in (getattr(option, "_timeout", None) for option in options) if found is not None]
    return dist.new_group(
        dist.get_process_group_ranks(group),
        timeout=max(timeouts, default=None),  # None: torch's own
        backend=dist.get_backend(group),
        use_local_synchronization=True,
    )


def shard_size(elements: int, world: int) -> int:
    """Elements of a rank's shard: the shards hold all of them, and the last may be padded."""
    return -(-elements // world)


def _codes(v: Tensor, amax: Tensor) -> Tensor:
    """clamp(rint(v * 127 / amax), -127, 127) as floats; zeros where amax is 0."""
    return ops.amax_quantize(v, amax)[0]


def group_amax(parts: Sequence[Tensor | None], device: torch.device, group: Group) -> Tensor:
    """[parts] float32: the largest magnitude of each part in the group, 0 where one of them is not finite."""
    found = torch.zeros(2, len(parts), device=device)
    for i, part in enumerate(parts):
        if part is not None and part.numel():
            low, high = torch.aminmax(part)
            finite = torch.isfinite(low) & torch.isfinite(high)
            found[0, i] = torch.where(finite, torch.maximum(high, -low), 0.0)
            found[1, i] = torch.where(finite, 0.0, 1.0)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=group)
    return torch.where(found[1] == 0, found[0], 0.0)


def to_codes(parts: Sequence[Tensor | None], sizes: Sequence[int], amax: Tensor, wire: Tensor) -> None:
    """Writes rint(part * 127 / amax) of every part into ``wire`` (int8), zeros for a part that is None.

    An int8 part is taken as it is.
    """
    at = 0
    for i, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        place = wire[at : at + size]
        at += size
        if part is None:
            place.zero_()
        elif part.dtype == torch.int8:
            place.copy_(part)
        elif place.is_cuda:
            place.copy_(_codes(torch.nan_to_num(part, 0.0, 0.0, 0.0), amax[i]))
        elif amax[i] == 0:  # also where a rank's part is not finite, which the operator refuses
            place.zero_()
        else:
            place.copy_(_codes(part, amax[i]))
    wire[at:].zero_()


def sum_of_shards(wire: Tensor, group: Group) -> Tensor:
    """[shard] int32: this rank's shard of the sum over the ranks of ``wire`` [world * shard] int8."""
    world = group.size()
    received = torch.empty_like(wire)
    dist.all_to_all_single(received, wire, group=group)
    shards = received.view(world, -1)
    total = shards[0].to(torch.int32)
    for rank in range(1, world):
        total.add_(shards[rank])
    return total


def _pieces(sizes: Sequence[int], begin: int, end: int) -> list[tuple[int, slice]]:
    """(which part, where in the shard) of the parts that a shard [begin, end) holds elements of."""
    pieces, at = [], 0
    for i, size in enumerate(sizes):
        low, high = max(at, begin), min(at + size, end)
        if low < high:
            pieces.append((i, slice(low - begin, high - begin)))
        at += size
    return pieces


def requantised(total: Tensor, sizes: Sequence[int], group: Group) -> Tensor:
    """int8_grad of each part's sum, of which ``total`` is this rank's shard: [shard] int8."""
    begin = group.rank() * total.numel()
    pieces = _pieces(sizes, begin, begin + total.numel())
    found = torch.full((2, len(sizes)), _LOWEST, dtype=torch.int32, device=total.device)
    for i, where in pieces:
        low, high = torch.aminmax(total[where])
        found[0, i], found[1, i] = high, -low
    dist.all_reduce(found, dist.ReduceOp.MAX, group=group)
    amax = torch.where(found[0] > 0, found[0], found[1]).float()
    codes = torch.zeros(total.numel(), dtype=torch.int8, device=total.device)
    for i, where in pieces:
        codes[where].copy_(_codes(total[where].float(), amax[i]))
    return codes


def gathered(shard: Tensor, group: Group) -> Tensor:
    """[world * shard] of all ranks' shards, in the order of the ranks."""
    whole = torch.empty(group.size() * shard.numel(), dtype=shard.dtype, device=shard.device)
    dist.all_gather_into_tensor(whole, shard, group=group)
    return whole


def sum_codes(
    parts: Sequence[Tensor | None], sizes: Sequence[int], group: Group, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """The integer gradient of each part's sum over a group, the same bits on every rank.

    Float parts become ``p = rint(g * 127 / A)``, A the group's largest magnitude, parts of integers are p; the result
    is ``int8_grad(sum of p)``, summed in int32. It depends on the p's sum alone, however they are spread over ranks. A
    float part that is not finite on one rank gives zeros.

    Args:
        parts: a rank's float32 or int8 parts, flat; None counts as zeros.
        sizes: elements of each, the same on all ranks.

    Returns:
        int8, one of each size, views of one tensor.

    Example::

        >>> store = torch.distributed.HashStore()
        >>> torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        >>> bie.distributed.sum_codes([torch.tensor([0.5, -1.0, 0.25])], [3], torch.distributed.group.WORLD)
        [tensor([ 127, -127,   64], dtype=torch.int8)]
        >>> torch.distributed.destroy_process_group()
    """
    device, world = torch.device(device), group.size()
    wire = torch.empty(world * shard_size(sum(sizes), world), dtype=torch.int8, device=device)
    floats = [None if part is None or part.dtype == torch.int8 else part for part in parts]
    to_codes(parts, sizes, group_amax(floats, device, group), wire)
    codes = gathered(requantised(sum_of_shards(wire, group), sizes, group), group)
    return list(codes[: sum(sizes)].split(list(sizes)))


_ABSENT, _THERE, _BROKEN = range(3)  # a rank's part: none, finite, not finite


def _states(parts: Sequence[Tensor | None], device: torch.device, group: Group) -> Tensor:
    """[world, parts] int8: what each rank has of each part."""
    own = torch.full((len(parts),), _ABSENT, dtype=torch.int8, device=device)
    for i, part in enumerate(parts):
        if part is not None:
            own[i] = torch.where(torch.isfinite(part).all(), _THERE, _BROKEN)
    return gathered(own, group).view(group.size(), len(parts))


def majority_signs(
    parts: Sequence[Tensor | None], sizes: Sequence[int], group: Group, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """What most ranks of a group vote, at a bit a weight: 127 or -127, the same bits on every rank.

    A rank votes ``v = +1`` where its part is >= 0, else -1, and 0 with a part that is None. The result is
    ``127 * (+1 where 2 * (sum of v) + v of rank (i mod world) >= 0, else -1)``, i the element's place in its part: the
    extra vote parts a tie. A part that is not finite on one rank gives zeros.

    Args:
        parts: a rank's float32 parts, flat.
        sizes: elements of each, the same on all ranks.

    Returns:
        int8, one of each size, views of one tensor.
    """
    device, world = torch.device(device), group.size()
    shard = 8 * shard_size(sum(sizes), 8 * world)
    flat = torch.zeros(world * shard, device=device)
    for part, place in zip(parts, flat[: sum(sizes)].split(list(sizes)), strict=True):
        if part is not None:
            place.copy_(torch.nan_to_num(part, 0.0, 0.0, 0.0))
    wire = ops.pack_signs(flat.view(world, shard))
    states, received = _states(parts, device, group), torch.empty_like(wire)
    dist.all_to_all_single(received, wire, group=group)
    votes = ops.unpack_signs(received, shard)
    begin, majority = group.rank() * shard, torch.zeros(shard, device=device)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    for i, where in _pieces(sizes, begin, begin + shard):
        counted = votes[:, where] * (states[:, i] == _THERE).unsqueeze(1)
        places = torch.arange(where.start, where.stop, device=device) + (begin - starts[i])
        extra = counted.gather(0, (places % world).unsqueeze(0))[0]
        majority[where] = 2.0 * counted.sum(0, dtype=torch.int32) + extra
    signs = ops.unpack_signs(gathered(ops.pack_signs(majority), group).view(world, -1), shard).view(-1)
    codes = list((127 * signs[: sum(sizes)]).split(list(sizes)))
    for code, broken in zip(codes, (states == _BROKEN).any(0), strict=True):
        code.masked_fill_(broken, 0)
    return codes


def sum_votes(votes: Tensor, group: Group) -> Tensor:
    """The sum over a group of votes in -1, 0, 1 (int8), clamped to int8: the same bits on every rank."""
    world, flat = group.size(), votes.reshape(-1)
    wire = torch.zeros(world * shard_size(flat.numel(), world), dtype=torch.int8, device=votes.device)
    wire[: flat.numel()] = flat
    total = sum_of_shards(wire, group).clamp_(-127, 127).to(torch.int8)
    return gathered(total, group)[: flat.numel()].view_as(votes)


def mean_floats(
    parts: Sequence[Tensor | None], sizes: Sequence[int], group: Group, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """The mean over a group of float32 parts, flat; a part that is None counts as zeros."""
    flat = torch.zeros(sum(sizes), device=device)
    for part, place in zip(parts, flat.split(list(sizes)), strict=True):
        if part is not None:
            place.copy_(part)
    dist.all_reduce(flat, group=group)
    return list(flat.div_(group.size()).split(list(sizes)))


def union_of_rows(rows: Tensor, group: Group) -> Tensor:
    """The rows that any rank of a group has, each once, ascending."""
    counts = torch.zeros(group.size(), dtype=torch.int64, device=rows.device)
    dist.all_gather_into_tensor(counts, counts.new_tensor([rows.numel()]), group=group)
    most = int(counts.max())
    if most == 0:
        return rows
    padded = rows.new_full((most,), -1)
    padded[: rows.numel()] = rows
    found = gathered(padded, group).unique()
    return found[found >= 0]


def means_of_first_batches(sums: Tensor, group: Group) -> Tensor:
    """[n] float64: (sum of |x| over the ranks, added in their order) / (their count), 0 where no rank has any.

    Args:
        sums: [n, 2] float64, a rank's ``sum of |x|`` and count of each step size.
    """
    every = gathered(sums.reshape(-1), group).view(group.size(), *sums.shape)
    total = every[0].clone()
    for rank in range(1, group.size()):
        total.add_(every[rank])
    return torch.where(total[:, 1] > 0, total[:, 0] / total[:, 1], 0.0)
