"""Float weights from packed ones and back, and the group map of mixed rows; numerics.md section 8."""

from __future__ import annotations

import torch
from torch import Tensor

from bitorch_engine.errors import ShapeError
from bitorch_engine.utils.quant_operators import gptq_style_unpacking, pack_words, permutation, row_groups, unpack_words


def _layer_type(function: str, qweight: Tensor) -> int:
    kind = getattr(qweight, "layer_type", None)
    if kind is None:
        raise ValueError(f"{function}: qweight.layer_type is None, 1 (MPQ) or 2 (MBWQ) is wanted")
    if kind not in (1, 2):
        raise NotImplementedError(f"{function}: qweight.layer_type is {kind}, 1 (MPQ) or 2 (MBWQ) is wanted")
    return kind


def unpack_qweight(qweight: Tensor) -> Tensor:
    """The float weight [k, n] of an ``MPQWeightParameter``, see ``gptq_style_unpacking``.

    Raises:
        ValueError: an attribute is missing. NotImplementedError: mixed rows, or an unknown ``layer_type``.
    """
    if _layer_type("unpack_qweight", qweight) == 2 and qweight.q_group_map is not None:
        from bitorch_engine.layers.qlinear.nbit.cuda.mbwq_layer import MBWQLinearCuda

        return MBWQLinearCuda.exl2fp_weight(
            qweight.data, qweight.scales, qweight.zeros, qweight.q_perm, qweight.q_group_map, qweight.rows
        )
    return gptq_style_unpacking(qweight)[0]


def pack_fp_weight(weight: Tensor, qweight: Tensor, unpacked_zeros: Tensor | None = None) -> Tensor:
    """A float weight packed with the scales and zeros of ``qweight``: the inverse of ``unpack_qweight``.

    ``q = clamp(rint(W/s + z), 0, 2^b - 1)`` (``asym``), ``clamp(rint((W + z)/s), 0, 2^b - 1)`` else, in float32; where
    ``s`` is 0, W counts as 0 (``asym``: q = z) or q is 0.

    Args:
        weight: [k, n] float, finite.
        unpacked_zeros: [G, n], the zeros of ``asym``; by default unpacked from ``qweight.zeros``.

    Returns:
        int32 in ``qweight``'s shape.

    Raises:
        ValueError: an attribute is missing, NaN or infinity. ShapeError: a shape does not fit.
        NotImplementedError: mixed rows.
    """
    function = "pack_fp_weight"
    if _layer_type(function, qweight) == 2 and qweight.q_group_map is not None:
        raise NotImplementedError(f"{function}: rows of several widths are not packed")
    scales, zeros, w_bit = qweight.scales, qweight.zeros, qweight.w_bit
    if scales is None or zeros is None:
        raise ValueError(f"{function}: qweight has no scales or zeros, prepare_params() of its layer sets them")
    rows, columns = qweight.size(0) * 32 // w_bit, qweight.size(1)
    if weight.shape != (rows, columns):
        raise ShapeError(f"{function}: the weight is {list(weight.shape)}, {[rows, columns]} is wanted")
    if not torch.isfinite(weight).all():
        raise ValueError(f"{function}: the weight holds NaN or infinity")
    order = permutation(qweight, rows)
    wide = weight.detach().float()
    if order is not None:
        wide = wide[order]
    group = row_groups(qweight, rows, scales.size(0))
    step = scales.float()[group]
    if qweight.asym:
        z = unpack_words(zeros, w_bit, dim=1) + 1 if unpacked_zeros is None else unpacked_zeros
        if z.shape != scales.shape:
            raise ShapeError(f"{function}: the zeros are {list(z.shape)}, {list(scales.shape)} is wanted")
        codes = torch.where(step == 0, 0.0, wide / step) + z.float()[group]
    else:
        codes = torch.where(step == 0, 0.0, (wide + zeros.float()[group]) / step)
    return pack_words(codes.round_().clamp_(0, 2**w_bit - 1), w_bit, dim=0)


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
