"""GPTQ of one weight, and round to nearest beside it. Source: docs/spec/quantization.md."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bie._operators import ops
from bie.errors import ShapeError

_WIDTHS = (1, 2, 3, 4, 5, 6, 8)
_COLUMNS_AT_ONCE = 128  # those right of them are updated by one product


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


class _Grid:
    """The values that codes can have in every group, whose ranges are taken one by one."""

    def __init__(self, groups: int, bits: int, whole_zeros: bool, dtype: torch.dtype) -> None:
        self.bits, self.whole_zeros, self.dtype = bits, whole_zeros, dtype
        self.scales: list[Tensor] = [torch.empty(0)] * groups
        self.zeros: list[Tensor] = [torch.empty(0)] * groups

    def set_range(self, group: int, weight: Tensor) -> None:
        """Of a group's rows [rows, n]."""
        scales, zeros = ops.weight_only_ranges(weight.t(), self.bits, -1, asym=self.whole_zeros, dtype=self.dtype)
        self.scales[group], self.zeros[group] = scales, zeros

    def nearest(self, group: int, row: Tensor) -> tuple[Tensor, Tensor]:
        """(codes, their values) of a row [n] of float64."""
        scale = self.scales[group][0].double()
        zero = _offsets(self.scales[group], self.zeros[group], self.bits)[0]
        steps = torch.where(scale == 0, 0.0, (row + zero) / scale)
        codes = steps.round_().clamp_(0, 2**self.bits - 1)
        return codes, codes * scale - zero

    def tables(self) -> tuple[Tensor, Tensor]:
        return torch.cat(self.scales), torch.cat(self.zeros)


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
    act_order: bool = False,
    static_groups: bool | None = None,
    damping: float = 0.01,
    whole_zeros: bool = False,
    dtype: torch.dtype = torch.float32,
) -> CodedWeight:
    """Codes whose errors cancel each other in the layer's outputs: each input's error is made up for by later inputs.

    With ``U`` the upper Cholesky factor of ``(H + d I)^-1``, ``d = damping * mean(diag H)``, for every input ``i`` in
    order: ``q_i`` is the code nearest to ``w_i``, and ``w_j -= (w_i - value(q_i)) * U[i, j] / U[i, i]`` for all
    ``j > i``. A group's range is that of its weights as they are when its first input comes.

    Args:
        weight: [n, k] float, as ``nn.Linear`` has it.
        hessian: [k, k] of the layer's inputs, see :class:`Hessian`.
        bits, group_size, whole_zeros, dtype: those of :func:`round_to_nearest`.
        act_order: take inputs by falling ``diag H``. Groups are then inputs that come one after another in that order,
            and ``g_idx`` says which.
        static_groups: groups are consecutive inputs with the ranges of the weight as given, in any order of inputs. By
            default at 1 bit, where ranges of what was made up for run away.
        damping: added to the diagonal, as a share of its mean. Where that leaves no positive definite matrix it is
            raised tenfold until one is.

    All is computed in float64.

    Raises:
        ShapeError: shapes that do not fit. ValueError: as ``round_to_nearest``; a damping that is not positive, a
            Hessian that holds NaN or infinity.

    Source: Frantar et al. 2022 (GPTQ), algorithm 1; ``act_order`` and ``static_groups`` of its repository.

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
    if not bool(torch.isfinite(weight).all() and torch.isfinite(hessian).all()):
        raise ValueError("gptq: the weight or the Hessian holds NaN or infinity")
    if not damping > 0:
        raise ValueError(f"gptq: damping: expected a positive number, got {damping}")
    device, static_groups = weight.device, bits == 1 if static_groups is None else static_groups
    work, h = weight.detach().t().double().contiguous(), hessian.to(device=device, dtype=torch.float64)  # [k, n]
    grid = _Grid(-(-k // size), bits, whole_zeros, dtype)
    if static_groups:
        for group in range(-(-k // size)):
            grid.set_range(group, work[group * size : (group + 1) * size])
    order = torch.argsort(h.diagonal(), descending=True, stable=True) if act_order else torch.arange(k, device=device)
    place = torch.arange(k, device=device)
    group_of = (order if static_groups else place) // size  # of each row in the order
    work, factor = work[order], _inverse_factor(h[order][:, order], damping)
    codes, groups = torch.empty_like(work), group_of.tolist()
    for start in range(0, k, _COLUMNS_AT_ONCE):
        end = min(start + _COLUMNS_AT_ONCE, k)
        errors = torch.empty_like(work[start:end])
        for i in range(start, end):
            if not static_groups and i % size == 0:
                # Rows behind this block wait for its errors: here they get those that there are so far.
                rows = work[i : min(i + size, k)].clone()
                if i + size > end and i > start:
                    rows[end - i :] -= factor[start:i, end : i + size].t() @ errors[: i - start]
                grid.set_range(groups[i], rows)
            codes[i], value = grid.nearest(groups[i], work[i])
            errors[i - start] = (work[i] - value) / factor[i, i]
            work[i + 1 : end] -= factor[i, i + 1 : end].unsqueeze(1) * errors[i - start]
        work[end:] -= factor[start:end, end:].t() @ errors
    back = torch.argsort(order)
    scales, zeros = grid.tables()
    return CodedWeight(codes[back].int(), scales, zeros, group_of[back].int(), bits)


def _inverse_factor(h: Tensor, damping: float) -> Tensor:
    """U, upper, with U^T U = (h + damping * mean(diag h) * I)^-1."""
    mean, least = float(h.diagonal().mean()), float(h.diagonal().min())
    step = damping * (mean if mean > 0 else 1.0)
    eye = torch.eye(h.size(0), dtype=h.dtype, device=h.device)
    for _ in range(4 if least >= 0 else 0):
        lower, info = torch.linalg.cholesky_ex(h + step * eye)
        if int(info) == 0:
            factor, info = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if int(info) == 0 and bool(torch.isfinite(factor).all()):
                return factor
        step *= 10
    raise ValueError("gptq: the Hessian is not positive semidefinite")


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
