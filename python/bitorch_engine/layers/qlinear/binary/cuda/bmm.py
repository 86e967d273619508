"""The kinds of binary kernels that BITorch Engine has for NVIDIA GPUs."""

from bie.bitorch.layouts import BMM

__all__ = ["BMM"]
