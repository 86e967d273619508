"""The kinds of binary kernels that BITorch Engine has for NVIDIA GPUs."""

from enum import Enum


class BMM(Enum):
    """Which kernel to use: a hint. Every kind takes every shape here and gives the same numbers."""

    BSTC32 = 1
    BTC32 = 2
    ADAPTIVE = 3
