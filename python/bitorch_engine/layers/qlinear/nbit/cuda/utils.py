"""Float weights from packed ones and back, and the group map of mixed rows; numerics.md section 8."""

from __future__ import annotations

import torch
from torch import Tensor

from bitorch_engine.errors import ShapeError
from bitorch_engine.layers.gptq import gptq_style_unpacking, layer_type, pack_fp_weight

__all__ = ["make_group_map", "pack_fp_weight", "unpack_qweight"]


def unpack_qweight(qweight: Tensor) -> Tensor:
    """The float weight [k, n] of an ``MPQWeightParameter``, see ``gptq_style_unpacking``.

    Raises:
        ValueError: an attribute is missing. NotImplementedError: mixed rows, or an unknown ``layer_type``.
    """
    if layer_type("unpack_qweight", qweight) == 2 and qweight.q_group_map is not None:
        from bitorch_engine.layers.qlinear.nbit.cuda.mbwq_layer import MBWQLinearCuda

        return MBWQLinearCuda.exl2fp_weight(
            qweight.data, qweight.scales, qweight.zeros, qweight.q_perm, qweight.q_group_map, qweight.rows
        )
    return gptq_style_unpacking(qweight)[0]


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
