"""Byte orders of packed signs in BITorch Engine's files, and its table of rows of mixed widths."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError


class BMM(Enum):
    """Which kernel to use: a hint. Every kind takes every shape here and gives the same numbers."""

    BSTC32 = 1
    BTC32 = 2
    ADAPTIVE = 3


def gpu_layout(n: int, k: int, kind: BMM) -> str | None:
    """How ``BinaryLinearCuda`` stores signs of this shape; ``None`` where it has no layout that keeps all."""
    if k % 128 == 0 and n % 8 == 0 and kind != BMM.BSTC32:
        return "btc"
    return "bstc" if k % 32 == 0 and n % 32 == 0 else None


def cpu_layout(k: int) -> str | None:
    """How ``BinaryLinearCPP`` stores the signs of rows of k; ``None`` where BITorch Engine has no layout for them."""
    return "columns" if k % 8 == 0 else None


def pack_signs(weights: Tensor, kind: BMM) -> Tensor:
    """Signs of ``[n, k]`` float or int8 weights as ``BinaryLinearCuda.qweight`` holds them."""
    if weights.dim() != 2:
        raise ShapeError(f"w_pack: the weight is {list(weights.shape)}, [n, k] is wanted")
    packed = ops.pack_signs(weights.detach())
    layout = gpu_layout(*weights.shape, BMM(kind))
    return packed if layout is None else ops.signs_to_layout(packed, weights.shape[1], layout)


def signs_from_flat(function: str, weight: Tensor, k: int, kind: BMM | int) -> Tensor:
    """What :func:`pack_signs` made, as rows; any other weight as it is."""
    kind = BMM(kind)
    if weight.dtype != torch.uint8 or weight.dim() != 1:
        return weight
    n = weight.numel() * 8 // k
    layout = gpu_layout(n, k, kind)
    if layout is None or n * k != weight.numel() * 8:
        raise ShapeError(f"{function}: the weight is {weight.numel()} bytes, which is no layout for {k} features")
    return ops.signs_from_layout(weight, n, k, layout)


def make_group_map(q_groups: Tensor, num_qrows: int) -> Tensor:
    """For each row of mixed widths its group and how many rows of the group are left, itself included.

    Args:
        q_groups: [2 * groups] int16, ``bits, first packed row`` of each group.
        num_qrows: packed rows in all.

    Returns:
        [2 * rows] int16, ``group, left`` of each row; a group has ``packed rows * 32 // bits`` rows.

    Raises:
        ShapeError: an odd length, or a float tensor. ValueError: no bits, or groups that do not ascend.
    """
    if q_groups.dim() != 1 or q_groups.numel() % 2 or q_groups.is_floating_point():
        raise ShapeError(
            f"make_group_map: q_groups is {list(q_groups.shape)} {q_groups.dtype}, integer pairs are wanted"
        )
    bits, first = q_groups.long().view(-1, 2).unbind(1)
    packed = torch.diff(first, append=first.new_tensor([num_qrows]))
    if bits.numel() and (int(bits.min()) < 1 or int(packed.min()) < 0):
        raise ValueError("make_group_map: q_groups holds a width below 1 or first rows that do not ascend")
    rows = packed * 32 // bits
    if rows.numel() and int(rows.max()) > 32767:
        raise ValueError("make_group_map: a group has more than 32767 rows, which int16 does not hold")
    group = torch.arange(rows.numel(), device=rows.device).repeat_interleave(rows)
    position = torch.arange(group.numel(), device=rows.device) - (rows.cumsum(0) - rows)[group]
    return torch.stack([group, rows[group] - position], dim=1).reshape(-1).to(torch.int16)
