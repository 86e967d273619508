"""Weights in GPTQ's layout: words to values and back, floats to words and back; docs/spec/layouts.md#gptq."""

from __future__ import annotations

import torch
from torch import Tensor

from bie.errors import ShapeError

_WIDTHS = (1, 2, 4, 8)


def _shifts(w_bit: int, device: torch.device) -> Tensor:
    if w_bit not in _WIDTHS:
        raise ValueError(f"w_bit is {w_bit}, 1, 2, 4 or 8 is wanted")
    return torch.arange(0, 32, w_bit, dtype=torch.int32, device=device)


def unpack_words(words: Tensor, w_bit: int, dim: int) -> Tensor:
    """Unsigned ``w_bit``-bit values of int32 words along axis ``dim`` of a matrix, least significant first; int32."""
    if words.dtype != torch.int32 or words.dim() != 2:
        raise ShapeError(f"packed words are {list(words.shape)} {words.dtype}, a matrix of int32 is wanted")
    shifts = _shifts(w_bit, words.device)
    if dim == 0:
        values = words.unsqueeze(1) >> shifts.view(1, -1, 1)
        return values.bitwise_and_(2**w_bit - 1).reshape(-1, words.size(1))
    return (words.unsqueeze(2) >> shifts).bitwise_and_(2**w_bit - 1).reshape(words.size(0), -1)


def pack_words(values: Tensor, w_bit: int, dim: int) -> Tensor:
    """The reverse of :func:`unpack_words`; the axis must fill whole words."""
    shifts = _shifts(w_bit, values.device).long()
    if values.dim() != 2 or values.size(dim) % len(shifts):
        raise ShapeError(
            f"values are {list(values.shape)}, a matrix with a multiple of {len(shifts)} on axis {dim} is wanted"
        )
    fields = values.long() & (2**w_bit - 1)
    if dim == 0:
        words = (fields.view(-1, len(shifts), values.size(1)) << shifts.view(1, -1, 1)).sum(1)
    else:
        words = (fields.view(values.size(0), -1, len(shifts)) << shifts).sum(2)
    return words.to(torch.int32)  # the low 32 bits


def gptq_style_unpacking(qweight: Tensor) -> tuple[Tensor, Tensor]:
    """The float weight [k, n] of an ``WeightOnlyParameter`` in GPTQ layout, and its zeros.

    ``W = scales[g] * (q - z)`` with ``z`` = unpacked zero + 1 (``asym``), else ``W = q * scales[g] - zeros[g]``, in
    float32, rounded once; ``g = g_idx[row]``. Without ``g_idx`` groups are consecutive rows, and with a ``q_perm`` that
    is not all zero packed row ``i`` is row ``q_perm[i]`` of W.

    Args:
        qweight: [k * w_bit / 32, n] int32 with the attributes ``scales`` [G, n], ``zeros`` ([G, n] float, or
            [G, n * w_bit / 32] int32 with ``asym``), ``w_bit``, ``asym``, ``g_idx`` or ``q_perm``.

    Returns:
        (W in ``scales``' dtype, zeros [G, n]: int32 in 1...2^w_bit with ``asym``, else ``qweight.zeros``).

    Raises:
        ValueError: an attribute is missing. ShapeError: a shape does not fit.
    """
    scales, zeros = _gptq_attribute(qweight, "scales"), _gptq_attribute(qweight, "zeros")
    q = unpack_words(qweight.detach(), qweight.w_bit, dim=0)
    z = unpack_words(zeros, qweight.w_bit, dim=1) + 1 if qweight.asym else zeros
    if scales.dim() != 2 or scales.shape != z.shape or scales.size(1) != q.size(1):
        raise ShapeError(
            f"gptq_style_unpacking: scales are {list(scales.shape)} and zeros {list(z.shape)}, "
            f"[groups, {q.size(1)}] is wanted for both"
        )
    group = row_groups(qweight, q.size(0), scales.size(0))
    step = scales.float()[group]
    wide = step * (q - z[group]) if qweight.asym else q * step - z.float()[group]
    weight = wide.to(scales.dtype)
    order = permutation(qweight, q.size(0))
    if order is not None:
        weight = torch.empty_like(weight).index_copy_(0, order, weight)
    return weight, z


def _gptq_attribute(qweight: Tensor, name: str) -> Tensor:
    value = getattr(qweight, name, None)
    if value is None:
        raise ValueError(f"gptq_style_unpacking: qweight.{name} is None, prepare_params() of its layer sets it")
    return value.detach()


def row_groups(qweight: Tensor, rows: int, groups: int) -> Tensor:
    """The group of each packed row: ``g_idx``, or consecutive groups of equal size. int64 [rows]."""
    g_idx = getattr(qweight, "g_idx", None)
    if g_idx is not None:
        if g_idx.shape != (rows,):
            raise ShapeError(f"g_idx is {list(g_idx.shape)}, [{rows}] is wanted")
        return g_idx.long()
    size = getattr(qweight, "group_size", -1)
    size = size if size and size > 0 else -(-rows // groups)
    group = torch.arange(rows, device=qweight.device) // size
    if rows and int(group[-1]) + 1 != groups:
        raise ShapeError(f"{groups} groups of {size} rows do not make {rows} rows")
    return group


def permutation(qweight: Tensor, rows: int) -> Tensor | None:
    """``q_perm`` read as unsigned, or None where there is none or it is all zero. int64 [rows]."""
    q_perm = getattr(qweight, "q_perm", None)
    if q_perm is None or getattr(qweight, "g_idx", None) is not None:
        return None
    order = q_perm.long() & 0xFFFF
    if order.shape != (rows,):
        raise ShapeError(f"q_perm is {list(q_perm.shape)}, [{rows}] is wanted")
    if not order.any():
        return None
    if not torch.equal(order.sort().values, torch.arange(rows, device=order.device)):
        raise ValueError("q_perm is not a permutation of the rows")
    return order


def gptq_style_zeros_packing(zeros: Tensor, w_bit: int, out_features: int, group_size: int) -> Tensor:
    """Zeros as GPTQ stores them: ``zero - 1`` modulo ``2^w_bit``, packed along the outputs.

    Args:
        zeros: [G, n] in 1...2^w_bit, rounded to the nearest integer and clamped there.
        out_features: n; n * w_bit must be a multiple of 32.
        group_size: not needed, G is read off ``zeros``; BITorch Engine's argument.

    Returns:
        [G, n * w_bit / 32] int32

    Raises:
        ShapeError: ``zeros`` is not [G, out_features], or n * w_bit % 32 != 0. ValueError: NaN or infinity.
    """
    if zeros.dim() != 2 or zeros.size(1) != out_features:
        raise ShapeError(f"gptq_style_zeros_packing: zeros are {list(zeros.shape)}, [groups, {out_features}] is wanted")
    if zeros.is_floating_point() and not torch.isfinite(zeros).all():
        raise ValueError("gptq_style_zeros_packing: zeros hold NaN or infinity")
    codes = zeros.detach().double().round().clamp(1, 2**w_bit) - 1
    return pack_words(codes, w_bit, dim=1)


def layer_type(function: str, qweight: Tensor) -> int:
    """1 (MPQ) or 2 (MBWQ); an error that names ``function`` for anything else."""
    kind = getattr(qweight, "layer_type", None)
    if kind is None:
        raise ValueError(f"{function}: qweight.layer_type is None, 1 (MPQ) or 2 (MBWQ) is wanted")
    if kind not in (1, 2):
        raise NotImplementedError(f"{function}: qweight.layer_type is {kind}, 1 (MPQ) or 2 (MBWQ) is wanted")
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
        NotImplementedError: mixed rows.
    """
    function = "pack_fp_weight"
    if layer_type(function, qweight) == 2 and qweight.q_group_map is not None:
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


def update_zeros(qweight: Tensor, norm_grad: Tensor, step_size: float, unpacked_zeros: Tensor | None = None) -> Tensor:
    """The zeros of a weight-only weight after a step ``W -= step_size * norm_grad``, in place.

    GBA (``W = q*s - z``): ``z += step_size * mean(norm_grad over the group)``. GPTQ (``W = s*(q - z)``): the same
    divided by s, rounded into 1...2^b and packed again.

    Args:
        qweight: prepared ``WeightOnlyParameter``.
        norm_grad: [k, n], rows in the float weight's order.
        unpacked_zeros: [G, n]; by default those of ``qweight``.

    Returns:
        The zeros [G, n]: whole numbers in float32 with ``asym``, else ``qweight.zeros``.

    Raises:
        ShapeError, ValueError: as ``gptq_style_unpacking``.
    """
    _, zeros = gptq_style_unpacking(qweight)
    zeros = zeros if unpacked_zeros is None else unpacked_zeros
    rows = qweight.size(0) * 32 // qweight.w_bit
    if norm_grad.shape != (rows, qweight.size(1)):
        wanted = [rows, qweight.size(1)]
        raise ShapeError(f"update_zeros: norm_grad is {list(norm_grad.shape)}, {wanted} is wanted")
    group = row_groups(qweight, rows, zeros.size(0))
    order = permutation(qweight, rows)
    wide = norm_grad.detach().float()
    wide = wide if order is None else wide[order]
    total = torch.zeros(zeros.shape, device=wide.device).index_add_(0, group, wide)
    count = torch.bincount(group, minlength=zeros.size(0)).clamp_min_(1).unsqueeze(1)
    change = step_size * total / count
    if not qweight.asym:
        qweight.zeros.add_(change.to(qweight.zeros.dtype))
        return qweight.zeros
    scales = qweight.scales.float()
    moved = (zeros + torch.where(scales == 0, 0.0, change / scales)).clamp_(1, 2**qweight.w_bit)
    packed = gptq_style_zeros_packing(moved, qweight.w_bit, qweight.size(1), qweight.group_size)
    qweight.zeros.copy_(packed)
    return moved.round_()
