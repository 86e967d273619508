"""Weights in GPTQ's layout: what a weight-only parameter tells the operators, floats to words and back.

Source: docs/spec/layouts.md#gptq.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError

#: Widths of EXL2's mixed rows, in the order of their rows.
MIXED_WIDTHS = (8, 6, 5, 4, 3, 2)


def words_of(values: int, bits: int) -> int:
    """How many int32 words hold so many values of so many bits."""
    return -(-values * bits // 32)


class Coded(NamedTuple):
    """A weight [k, n] of codes as the operators take it."""

    words: Tensor
    scales: Tensor
    zeros: Tensor | None
    options: dict[str, Any]
    rows: int  # k

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.words, self.scales, self.zeros


def coded(function: str, qweight: Tensor) -> Coded:
    """What a ``WeightOnlyParameter`` says of itself, as the operators take it.

    Raises:
        ValueError: an attribute is missing. ShapeError: a shape does not fit.
    """
    scales, zeros = _attribute(function, qweight, "scales"), _attribute(function, qweight, "zeros")
    g_idx, q_perm = getattr(qweight, "g_idx", None), getattr(qweight, "q_perm", None)
    order = None if g_idx is not None else q_perm
    if getattr(qweight, "q_group_map", None) is not None:
        options = mixed_rows(function, qweight.q_group_map, qweight.rows)
        rows = options["g_idx"].numel()
    else:
        rows = qweight.size(0) * 32 // qweight.w_bit
        told = g_idx if g_idx is not None else order
        if told is not None and words_of(told.numel(), qweight.w_bit) == qweight.size(0):
            rows = told.numel()
        options = {"bits": qweight.w_bit}
        if g_idx is not None:
            options["g_idx"] = _of_rows("g_idx", g_idx, rows)
        else:
            options["group_size"] = _group_size(qweight, scales, rows)
        _check_sizes(function, qweight, scales, zeros)
    if order is not None:
        options["q_perm"] = _of_rows("q_perm", order, rows)
    return Coded(qweight.detach(), scales, zeros, options, rows)


def _attribute(function: str, qweight: Tensor, name: str) -> Tensor:
    value = getattr(qweight, name, None)
    if value is None:
        raise ValueError(f"{function}: qweight.{name} is None, prepare_params() of its layer sets it")
    return value.detach()


def _of_rows(name: str, tensor: Tensor, rows: int) -> Tensor:
    if tensor.shape != (rows,):
        raise ShapeError(f"{name}: expected [{rows}], got {list(tensor.shape)}")
    return tensor


def _group_size(qweight: Tensor, scales: Tensor, rows: int) -> int:
    groups = scales.size(0)
    size = getattr(qweight, "group_size", -1)
    size = size if size and size > 0 else -(-rows // max(groups, 1))
    if rows and -(-rows // size) != groups:
        raise ShapeError(f"{groups} groups of {size} rows do not make {rows} rows")
    return size


def _check_sizes(function: str, qweight: Tensor, scales: Tensor, zeros: Tensor) -> None:
    columns = qweight.size(1)
    packed = words_of(columns, qweight.w_bit)
    wanted = [scales.size(0), packed if qweight.asym else columns]
    if scales.dim() != 2 or scales.size(1) != columns or list(zeros.shape) != wanted:
        raise ShapeError(
            f"{function}: scales and zeros: expected [groups, {columns}] and [groups, {wanted[1]}], got "
            f"{list(scales.shape)} and {list(zeros.shape)}"
        )


@torch.inference_mode(False)
def mixed_rows(function: str, q_group_map: Tensor, rows: list[int] | None) -> dict[str, Any]:
    """``bit_rows`` and ``g_idx`` of rows of several widths.

    Args:
        q_group_map: [2 * k] int16, the group of each row and how many of its rows are left (``make_group_map``).
        rows: how many rows have at least 8, 6, 5, 4, 3 and 2 bits.
    """
    rows = list(rows or ())[: len(MIXED_WIDTHS)]  # BITorch Engine has a seventh, for its kernel
    if len(rows) != len(MIXED_WIDTHS) or sorted(rows) != rows or q_group_map.numel() != 2 * rows[-1]:
        raise ShapeError(
            f"{function}: q_group_map and rows: expected two numbers for each of the rows and six ascending "
            f"counts, got {list(q_group_map.shape)} and {rows}"
        )
    group, left = (q_group_map.view(-1, 2).long() & 0xFFFF).unbind(1)
    starts = torch.ones_like(group, dtype=torch.bool)
    starts[1:] = group[1:] != group[:-1]
    first = starts.nonzero().flatten()
    width = torch.bucketize(first.cpu(), torch.tensor(rows), right=True).tolist()
    runs = [number for w, size in zip(width, left[first].tolist(), strict=True) for number in (MIXED_WIDTHS[w], size)]
    return {"bit_rows": runs, "g_idx": group.int()}


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
            f"make_group_map: q_groups: expected integer pairs, got {list(q_groups.shape)} of {q_groups.dtype}"
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


def gptq_style_unpacking(qweight: Tensor) -> tuple[Tensor, Tensor]:
    """The float weight [k, n] of a ``WeightOnlyParameter`` in GPTQ layout, and its zeros.

    ``W = scales[g] * (q - z)`` with ``z`` = unpacked zero + 1 (``asym``), else ``W = q * scales[g] - zeros[g]``, in
    float32, rounded once; ``g = g_idx[row]``. Without ``g_idx`` groups are consecutive rows, and with a ``q_perm`` that
    is not all zero packed row ``i`` is row ``q_perm[i]`` of W.

    Args:
        qweight: [ceil(k * w_bit / 32), n] int32 with the attributes ``scales`` [G, n], ``zeros`` ([G, n] float, or
            [G, ceil(n * w_bit / 32)] int32 with ``asym``), ``w_bit``, ``asym``, ``g_idx`` or ``q_perm``.

    Returns:
        (W in ``scales``' dtype, zeros [G, n]: int32 in 1...2^w_bit with ``asym``, else ``qweight.zeros``).

    Raises:
        ValueError: an attribute is missing. ShapeError: a shape does not fit.
    """
    weight = coded("gptq_style_unpacking", qweight)
    opened = ops.weight_only_open(*weight.tensors, in_features=weight.rows, **weight.options)
    return opened, _plain_zeros(qweight, weight)


def _plain_zeros(qweight: Tensor, weight: Coded) -> Tensor:
    if not qweight.asym:
        return weight.zeros
    return ops.unpack_words(weight.zeros, qweight.w_bit, qweight.size(1), 1) + 1


def gptq_style_zeros_packing(zeros: Tensor, w_bit: int, out_features: int, group_size: int) -> Tensor:
    """Zeros as GPTQ stores them: ``zero - 1`` modulo ``2^w_bit``, packed along the outputs.

    Args:
        zeros: [G, n] in 1...2^w_bit, rounded to the nearest integer and clamped there.
        out_features: n.
        group_size: not needed, G is read off ``zeros``; BITorch Engine's argument.

    Returns:
        [G, ceil(n * w_bit / 32)] int32

    Raises:
        ShapeError: ``zeros`` is not [G, out_features]. ValueError: NaN or infinity.
    """
    if zeros.dim() != 2 or zeros.size(1) != out_features:
        raise ShapeError(f"gptq_style_zeros_packing: zeros: expected [groups, {out_features}], got {list(zeros.shape)}")
    if zeros.is_floating_point() and not torch.isfinite(zeros).all():
        raise ValueError("gptq_style_zeros_packing: zeros hold NaN or infinity")
    codes = zeros.detach().double().round().clamp(1, 2**w_bit) - 1
    return ops.pack_words(codes.int(), w_bit, 1)


def layer_type(function: str, qweight: Tensor) -> int:
    """1 (MPQ) or 2 (MBWQ); an error that names ``function`` for anything else."""
    kind = getattr(qweight, "layer_type", None)
    if kind is None:
        raise ValueError(f"{function}: qweight.layer_type: expected 1 (MPQ) or 2 (MBWQ), got None")
    if kind not in (1, 2):
        raise NotImplementedError(f"{function}: qweight.layer_type: expected 1 (MPQ) or 2 (MBWQ), got {kind}")
    return kind


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
    """
    function = "pack_fp_weight"
    layer_type(function, qweight)
    format = coded(function, qweight)
    wanted = (format.rows, qweight.size(1))
    if weight.shape != wanted:
        raise ShapeError(f"{function}: the weight: expected {list(wanted)}, got {list(weight.shape)}")
    if not torch.isfinite(weight).all():
        raise ValueError(f"{function}: the weight holds NaN or infinity")
    zeros = format.zeros
    if qweight.asym and unpacked_zeros is not None:
        if unpacked_zeros.shape != format.scales.shape:
            raise ShapeError(
                f"{function}: the zeros: expected {list(format.scales.shape)}, got {list(unpacked_zeros.shape)}"
            )
        zeros = gptq_style_zeros_packing(unpacked_zeros, qweight.w_bit, qweight.size(1), -1)
    return ops.weight_only_pack(weight.detach().float(), format.scales, zeros, **format.options)


def update_zeros(qweight: Tensor, norm_grad: Tensor, step_size: float, unpacked_zeros: Tensor | None = None) -> Tensor:
    """The zeros of a weight-only weight after a step ``W -= step_size * norm_grad``, in place.

    GBA (``W = q*s - z``): ``z += step_size * mean(norm_grad over the group)``. GPTQ (``W = s*(q - z)``): the same
    divided by s, rounded into 1...2^b and packed again. DiodeMix itself rounds them at random.

    Args:
        qweight: prepared ``WeightOnlyParameter``.
        norm_grad: [k, n], rows in the float weight's order.
        unpacked_zeros: [G, n]; by default those of ``qweight``.

    Returns:
        The zeros [G, n]: whole numbers in float32 with ``asym``, else ``qweight.zeros``.

    Raises:
        ShapeError, ValueError: as ``gptq_style_unpacking``.
    """
    weight = coded("update_zeros", qweight)
    zeros = _plain_zeros(qweight, weight) if unpacked_zeros is None else unpacked_zeros
    wanted = (weight.rows, qweight.size(1))
    if norm_grad.shape != wanted:
        raise ShapeError(f"update_zeros: norm_grad: expected {list(wanted)}, got {list(norm_grad.shape)}")
    wide = norm_grad.detach().float()
    order = weight.options.get("q_perm")
    if order is not None and order.any():
        wide = wide[order.long() & 0xFFFF]
    group = weight.options.get("g_idx")
    if group is None:
        group = torch.arange(weight.rows, device=wide.device) // weight.options["group_size"]
    group = group.long()
    total = torch.zeros(zeros.shape, device=wide.device).index_add_(0, group, wide)
    count = torch.bincount(group, minlength=zeros.size(0)).clamp_min_(1).unsqueeze(1)
    change = step_size * total / count
    if not qweight.asym:
        qweight.zeros.add_(change.to(qweight.zeros.dtype))
        return qweight.zeros
    scales = qweight.scales.float()
    moved = (zeros + torch.where(scales == 0, 0.0, change / scales)).clamp_(1, 2**qweight.w_bit)
    qweight.zeros.copy_(gptq_style_zeros_packing(moved, qweight.w_bit, qweight.size(1), qweight.group_size))
    return moved.round_()
