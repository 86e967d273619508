"""The codes that language models train in: how many there are, which is zero, who shares a scale, which file fits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST = 1e-7  # of a scale: float16 holds nothing smaller


@dataclass(frozen=True)
class Width:
    """Codes 0 ... levels - 1 with ``W = scale * (code - zero)``.

    Attributes:
        bits: of a code in memory and in files.
        group: inputs that share a scale, where nothing else is asked for.
        types: of GGUF that hold such codes, and of how many inputs their blocks are.
        lr, scale_lr: rates to begin with, of weights and, relative to each, of scales; those of 4 and 2 bits come from
            docs/measured/training-language-models.md.
    """

    name: str
    bits: int
    levels: int
    zero: float
    group: int
    types: dict[str, int]
    lr: float
    scale_lr: float


WIDTHS = {
    width.name: width
    for width in (
        Width("8", 8, 256, 128, 32, {"Q8_0": 32}, 3e-4, 0.003),
        Width("4", 4, 16, 8, 32, {"Q4_0": 32}, 1e-3, 0.003),
        Width("3", 3, 8, 4, 64, {}, 1e-3, 0.01),
        Width("2", 2, 4, 1, 64, {"Q2_0": 64}, 3e-3, 0.02),
        Width("ternary", 2, 3, 1, 64, {"Q2_0": 64}, 3e-3, 0.02),
        Width("1", 1, 2, 0.5, 128, {"Q1_0": 128}, 3e-3, 0.02),
    )
}


def gguf_type(width: Width, inputs: int, group: int) -> str | None:
    """The type of GGUF that holds rows of so many inputs, or None."""
    for kind, block in width.types.items():
        if inputs % block == 0 and (group % block == 0 or group >= inputs):
            return kind
    return None


@torch.no_grad()
def first_scales(weight: Tensor, width: Width, group: int) -> Tensor:
    """Scales [n, groups] float32 with which rounding a weight [n, k] to the nearest code leaves the least squares.

    One bit: twice the mean magnitude. Others: the best of 25 shares, from 0.3 to 1.1, of the scale that just holds the
    largest element; where the codes reach further to one side of zero, a scale's sign turns that side to the largest.
    """
    n, k = weight.shape
    groups = -(-k // group)
    filled = torch.zeros(n, groups * group, dtype=torch.float32, device=weight.device)
    filled[:, :k] = weight
    rows = filled.view(n, groups, group)
    if width.levels == 2:
        count = torch.full((groups,), float(group), device=weight.device)
        count[-1] = k - (groups - 1) * group
        return (2 * rows.abs().sum(2) / count).clamp_min(_SMALLEST)
    above, below = width.levels - 1 - width.zero, width.zero
    most, at = rows.abs().max(2)
    sign = torch.where(rows.gather(2, at.unsqueeze(2)).squeeze(2) < 0, -1.0, 1.0)
    sign = torch.ones_like(sign) if above == below else sign if above > below else -sign
    whole = sign * most.clamp_min(_SMALLEST) / max(above, below)
    best, scales = torch.full_like(most, torch.inf), whole.clone()
    for share in torch.linspace(0.3, 1.1, 25).tolist():
        scale = whole * share
        codes = (rows / scale.unsqueeze(2) + width.zero).round_().clamp_(0, width.levels - 1)
        error = ((codes - width.zero) * scale.unsqueeze(2) - rows).square().sum(2)
        better = error < best
        best, scales = torch.where(better, error, best), torch.where(better, scale, scales)
    small = scales.abs() < _SMALLEST
    return torch.where(small, torch.where(scales < 0, -_SMALLEST, _SMALLEST), scales)


@torch.no_grad()
def places(weight: Tensor, scales: Tensor, width: Width, group: int) -> Tensor:
    """Where a weight [n, k] lies among the codes, ``W / scale + zero`` [n, k], within half a code of them."""
    wide = scales.float().repeat_interleave(group, 1)[:, : weight.size(1)]
    return (weight.float() / wide + width.zero).clamp_(-0.5, width.levels - 0.502)
