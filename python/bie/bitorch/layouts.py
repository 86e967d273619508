"""Byte orders of packed signs in BITorch Engine's files."""

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
        raise ShapeError(f"w_pack: the weight: expected [n, k], got {list(weights.shape)}")
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
