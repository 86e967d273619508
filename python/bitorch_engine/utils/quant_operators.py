"""Quantisers on tensors, single packed words, and the GPTQ layout. Formulas: numerics.md sections 1, 2 and 8."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

import torch
from torch import Tensor

from bitorch_engine._operators import ops
from bitorch_engine.errors import ShapeError

_TINY_AMAX = 2.0**-24
_WIDTHS = (1, 2, 4, 8)


def nv_tensor_quant(
    inputs: Tensor,
    amax: Tensor | float | None = None,
    num_bits: int = 8,
    unsigned: bool = False,
    narrow_range: bool = True,
) -> tuple[Tensor, Tensor]:
    """``q = clamp(rint(inputs * scale), lo, bound)``, ``scale = bound / amax``.

    ``bound = 2^(num_bits-1+unsigned) - 1``; ``lo`` is 0 (unsigned), ``-bound`` (narrow) or ``-bound - 1``. Where amax
    is 0, q is 0 and the returned scale 1; where it is at most 2^-24, only the returned scale is 1.

    Args:
        inputs: float32, bfloat16 or float16, not empty, finite.
        amax: of ``inputs``' rank, broadcast against it; a number or a 0-dim tensor counts as all sizes 1. The default
            is the largest element, not the largest magnitude.

    Returns:
        (q, scale): q in ``inputs``' shape and dtype, scale float32 in amax's shape.

    Raises:
        ValueError: amax of another rank, negative or not finite; ``inputs`` empty or not finite.
        TypeError: a negative element with ``unsigned``, or not a float tensor.

    Source: BITorch Engine 0.2.6 ``nv_tensor_quant``, which is NVIDIA's pytorch-quantization ``_tensor_quant_helper``.
    """
    if amax is not None and not isinstance(amax, Tensor):
        amax = torch.tensor(float(amax))
    if amax is None or amax.numel() == 1:
        return ops.amax_quantize(inputs.detach(), amax, num_bits, unsigned, narrow_range)
    if amax.dim() != inputs.dim():
        raise ValueError(
            f"nv_tensor_quant: amax is {list(amax.shape)}, the rank of inputs {list(inputs.shape)} is wanted"
        )
    if not (torch.isfinite(amax).all() and (amax >= 0).all()):
        raise ValueError("nv_tensor_quant: amax holds a negative number, NaN or infinity")
    # One step size for each slice; the operator above is for one of all. It also checks inputs and num_bits.
    ops.amax_quantize(inputs.detach(), torch.ones(()), num_bits, unsigned, narrow_range)
    bound = 2.0 ** (num_bits - 1 + unsigned) - 1
    low = 0.0 if unsigned else -bound if narrow_range else -bound - 1
    amax = amax.detach().float()
    scale = torch.full_like(amax, bound) / amax  # a number divided by a tensor is multiplied by a reciprocal
    q = torch.where(amax == 0, 0.0, (inputs.detach().float() * scale).round().clamp(low, bound))
    return q.to(inputs.dtype), torch.where(amax <= _TINY_AMAX, 1.0, scale)


def bit_set(var: int, pos: int, val: int) -> int:
    """``var | val << pos``: sets bit ``pos`` where ``val`` is 1, and clears nothing."""
    return var | val << pos


def _signs_to_words(signs: Tensor) -> list[int]:
    """Words of signs [words, bits], bit ``b`` is ``signs[:, b]``."""
    return [sum(1 << b for b, sign in enumerate(row) if sign) for row in signs.tolist()]


def _check_word(function: str, size: int, bits: int) -> None:
    if bits < 1 or size < 0 or size % bits:
        raise ValueError(f"{function}: {size} elements in words of {bits} bits, a multiple of the word is wanted")


def _float_vector(function: str, name: str, values: Any, wanted: int) -> Tensor:
    flat = torch.as_tensor(values).reshape(-1)
    if flat.numel() < wanted:
        raise ShapeError(f"{function}: {name} has {flat.numel()} elements, {wanted} are wanted")
    return flat[:wanted]


def get_binary_row(
    nd_row: Sequence | Tensor, binary_row: MutableSequence | Tensor, nd_size: int, bits_per_binary_word: int
) -> MutableSequence | Tensor:
    """Word ``i`` gets bit ``j`` from ``nd_row[i * bits + j] >= 0``, least significant first; returns ``binary_row``.

    Args:
        nd_row: at least ``nd_size`` numbers.
        binary_row: filled in place; its elements must hold the words.
        nd_size: a multiple of ``bits_per_binary_word``, else ``ValueError``.
    """
    _check_word("get_binary_row", nd_size, bits_per_binary_word)
    values = _float_vector("get_binary_row", "nd_row", nd_row, nd_size)
    for i, word in enumerate(_signs_to_words(values.view(-1, bits_per_binary_word) >= 0)):
        binary_row[i] = word
    return binary_row


def get_binary_col(
    nd_col: Sequence | Tensor, binary_col: MutableSequence | Tensor, dim_n: int, dim_k: int, bits_per_binary_word: int
) -> MutableSequence | Tensor:
    """Word ``y * dim_k + x`` gets bit ``b`` from ``nd_col[(y * bits + b) * dim_k + x] >= 0``; returns ``binary_col``.

    Args:
        nd_col: at least ``dim_n * dim_k`` numbers, row-major.
        binary_col: filled in place; its elements must hold the words.
        dim_n: a multiple of ``bits_per_binary_word``, else ``ValueError``.
    """
    _check_word("get_binary_col", dim_n, bits_per_binary_word)
    values = _float_vector("get_binary_col", "nd_col", nd_col, dim_n * dim_k)
    signs = (values.view(-1, bits_per_binary_word, dim_k) >= 0).transpose(1, 2)
    for i, word in enumerate(_signs_to_words(signs.reshape(-1, bits_per_binary_word))):
        binary_col[i] = word
    return binary_col


def _quantization(
    operator: Any, input: Tensor, scale_a: Tensor | float | None, eps: Tensor | float | None
) -> Tensor | tuple[Tensor, Tensor]:
    least = 1e-5 if eps is None else eps.item() if isinstance(eps, Tensor) else float(eps)
    if scale_a is not None and not isinstance(scale_a, Tensor):
        scale_a = torch.tensor(float(scale_a))
    x = input.detach()
    x = x.float() if x.dtype == torch.float64 else x
    codes, scale = operator(x, scale_a, least)
    return codes.float() if scale_a is not None else (codes.float(), scale.clamp(min=least))


def q8_quantization(
    input: Tensor, scale_a: Tensor | float | None = None, eps: Tensor | float | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """``q = clamp(rint(input / s), -128, 127)``, ``s = max(scale, eps)``.

    ``scale`` is ``2 * mean|input| / 11.269`` where it is not given.

    Args:
        input: float, any shape, not empty, finite.
        scale_a: one element.
        eps: one element; 1e-5 by default.

    Returns:
        q float32; without ``scale_a`` (q, s), s 0-dim float32.

    Raises:
        ValueError: NaN or infinity, or an empty input without a scale. TypeError: not a float tensor.
    """
    return _quantization(ops.q8_quantize, input, scale_a, eps)


def q4_quantization(
    input: Tensor, scale_a: Tensor | float | None = None, eps: Tensor | float | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """As :func:`q8_quantization` with 5.6345 for 11.269 and codes in [-8, 7]."""
    return _quantization(ops.q4_quantize, input, scale_a, eps)


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
    """The float weight [k, n] of an ``MPQWeightParameter`` in GPTQ layout, and its zeros.

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
