"""Nets that `bie export` wrote, run without torch: NumPy arrays in and out."""

from bie_runtime._net import Net, NetError, library_version
from bie_runtime._table import TableForm

__all__ = ["Net", "NetError", "TableForm", "library_version"]
