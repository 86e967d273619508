"""GPTQ of one weight, and round to nearest beside it. Source: docs/spec/quantization.md."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError

_WIDTHS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class CodedWeight:
    """A weight of codes as :meth:`bie.nn.WeightOnlyLinear.set_codes` takes it; k inputs, n outputs, G groups."""

    codes: Tensor  #: [k, n] int32
    scales: Tensor  #: [G, n]
    zeros: Tensor  #: [G, n] like ``scales``, or with whole zeros int32 [G, ceil(n * bits / 32)]
    g_idx: Tensor  #: [k] int32, the group of each row
    bits: int

    def values(self) -> Tensor:
        """The weight [n, k] in float64 that the codes stand for."""
        group = self.g_idx.long()
        offsets = _offsets(self.scales, self.zeros, self.bits)
        return (self.codes * self.scales.double()[group] - offsets[group]).t()


def _offsets(scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """What is taken from ``code * scale``, [G, n] in float64."""
    if zeros.is_floating_point():
        return zeros.double()
    return (ops.unpack_words(zeros, bits, scales.size(1), 1) + 1) * scales.double()


def _check(weight: Tensor, bits: int, group_size: int) -> int:
    """The group's size, -1 resolved."""
    if weight.dim() != 2 or not weight.is_floating_point() or weight.numel() == 0:
        raise ShapeError(f"the weight: expected a matrix of floats, got {list(weight.shape)} of {weight.dtype}")
    if bits not in _WIDTHS:
        raise ValueError(f"bits: expected 1, 2, 3, 4, 5, 6 or 8, got {bits}")
    if group_size != -1 and group_size < 1:
        raise ValueError(f"group_size: expected -1 or a positive number, got {group_size}")
    return weight.size(1) if group_size == -1 else group_size


def round_to_nearest(
    weight: Tensor,
    bits: int = 4,
    group_size: int = 128,
    *,
    whole_zeros: bool = False,
    dtype: torch.dtype = torch.float32,
) -> CodedWeight:
    """Each element's nearest code, in groups of consecutive inputs.

    Args:
        weight: [n, k] float, as ``nn.Linear`` has it.
        bits: 1, 2, 3, 4, 5, 6 or 8.
        group_size: inputs that share a scale, -1 for all.
        whole_zeros: GPTQ's zeros, whole numbers in 1...2^bits; any float if not.
        dtype: of the scales and float zeros.

    Raises:
        ShapeError: no matrix. ValueError: bits, a group's size, NaN, infinity, a range too large for ``dtype``.

    Example::

        >>> weight = torch.randn(3, 8)
        >>> coded = bie.quantization.round_to_nearest(weight, bits=8, group_size=4)
        >>> bool((coded.values() - weight).abs().max() < 0.02)
        True
    """
    size = _check(weight, bits, group_size)
    scales, zeros = ops.weight_only_ranges(weight, bits, size, asym=whole_zeros, dtype=dtype)
    group = torch.arange(weight.size(1), dtype=torch.int32, device=weight.device) // size
    words = ops.weight_only_pack(weight.detach().t().float().contiguous(), scales, zeros, bits=bits, g_idx=group)
    return CodedWeight(ops.unpack_words(words, bits, weight.size(1), 0), scales, zeros, group, bits)


def gptq(
    weight: Tensor,
    hessian: Tensor,
    bits: int = 4,
    group_size: int = 128,
    *,
    shrinkage: float = 1.0,
    damping: float = 0.05,
    whole_zeros: bool = False,
    dtype: torch.dtype = torch.float32,
) -> CodedWeight:
    """Codes whose errors cancel each other in the layer's outputs: each input's error is made up for by later inputs.

    Inputs are taken by falling ``diag H``. Scales and zeros are those of the least weighted error of a group, before
    the first code. With an upper triangle ``R``, ``R R^T = H + shrinkage * diag H + damping * mean(diag H) * I``, each
    code is the nearest to ``w_i + sum over j before i of e_j * R[j, i] / R[i, i]``, and ``e_i = w_i - value(q_i)``.

    Args:
        weight: [n, k] float, as ``nn.Linear`` has it.
        hessian: [k, k] of the layer's inputs, see :class:`Hessian`.
        bits, group_size, whole_zeros: those of :func:`round_to_nearest`.
        shrinkage: how much less products of two inputs count than squares of one. 1 suits texts of some thousand
            tokens, 0 inputs that depend on few others.
        damping: added to the diagonal, as a share of its mean; more where there is little data.
        dtype: of the scales and float zeros, float32, float16 or bfloat16.

    The CPU computes it, errors and their shares in float64, with the same bits as ``bie quantize --method gptq``; the
    codes come back to the weight's device.

    Raises:
        ShapeError: shapes that do not fit. ValueError: as ``round_to_nearest``; a negative shrinkage, a damping that is
            not positive, a Hessian that holds NaN or infinity or is that of no inputs.

    Source: Frantar et al. 2022 (GPTQ); docs/spec/quantization.md#gptq.

    Example::

        >>> x = torch.randn(256, 4) @ torch.randn(4, 16)  # correlated inputs
        >>> hessian = bie.quantization.Hessian(16)
        >>> hessian.add(x)
        >>> weight, h = torch.randn(8, 16), hessian.matrix()
        >>> coded = bie.quantization.gptq(weight, h, bits=2, group_size=-1)
        >>> nearest = bie.quantization.round_to_nearest(weight, bits=2, group_size=-1)
        >>> bie.quantization.output_error(weight, coded, h) < bie.quantization.output_error(weight, nearest, h)
        True
    """
    size, k = _check(weight, bits, group_size), weight.size(1)
    if hessian.shape != (k, k):
        raise ShapeError(f"gptq: the Hessian: expected [{k}, {k}], got {list(hessian.shape)}")
    made = ops.gptq(
        weight.detach().cpu(),
        hessian.to(device="cpu", dtype=torch.float64).contiguous(),
        bits,
        size,
        asym=whole_zeros,
        dtype=dtype,
        shrinkage=shrinkage,
        damping=damping,
    )
    group = torch.arange(k, dtype=torch.int32, device=weight.device) // size
    return CodedWeight(*(part.to(weight.device) for part in made), group, bits)


def output_error(weight: Tensor, coded: CodedWeight, hessian: Tensor) -> float:
    """``||(W - V) x|| / ||W x||`` over the inputs x that made the Hessian, V being what the codes stand for.

    Example::

        >>> weight = torch.tensor([[1.0, 2.0]])
        >>> coded = bie.quantization.round_to_nearest(weight, bits=8, group_size=1)
        >>> bie.quantization.output_error(weight, coded, torch.eye(2))
        0.0
    """
    h = hessian.double()
    wide = weight.detach().double().to(h.device)
    off = wide - coded.values().to(h.device)
    whole = float(((wide @ h) * wide).sum())
    missed = max(0.0, float(((off @ h) * off).sum()))
    return (missed / whole) ** 0.5 if whole > 0 else 0.0
