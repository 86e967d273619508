"""Quantisers on tensors and single packed words; docs/spec/quantizers.md. GPTQ's layout is bie.weights.gptq's."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError
from bie.weights.gptq import gptq_style_unpacking, gptq_style_zeros_packing

__all__ = [
    "bit_set",
    "get_binary_col",
    "get_binary_row",
    "gptq_style_unpacking",
    "gptq_style_zeros_packing",
    "nv_tensor_quant",
    "q4_quantization",
    "q8_quantization",
]

_TINY_AMAX = 2.0**-24


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
            f"nv_tensor_quant: amax: expected the rank of inputs, {list(inputs.shape)}, got {list(amax.shape)}"
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
        raise ValueError(f"{function}: expected a multiple of a word of {bits} bits, got {size} elements")


def _float_vector(function: str, name: str, values: Any, wanted: int) -> Tensor:
    flat = torch.as_tensor(values).reshape(-1)
    if flat.numel() < wanted:
        raise ShapeError(f"{function}: {name}: expected {wanted} elements, got {flat.numel()}")
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
