"""Nets that `bie export` wrote, run without torch: NumPy arrays in and out."""

from bie_runtime._net import Net, NetError, library_version

__all__ = ["Net", "NetError", "library_version"]
