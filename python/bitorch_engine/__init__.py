"""The API of BITorch Engine 0.2.6 on stock PyTorch: its import paths, names and signatures over the package ``bie``."""

from __future__ import annotations

from importlib.util import find_spec

import bie
from bie import ShapeError

#: Whether integer weights get gradients: they do, on stock PyTorch.
torch_int_gradients_support: bool = True

__all__ = ["ShapeError", "check_pytorch_version", "initialize", "torch_int_gradients_support"]


def initialize() -> None:
    """Imports the integration with the package ``bitorch``; does nothing where that is not installed."""
    if find_spec("bitorch") is not None:
        from bitorch_engine.layers.qlinear import layer  # noqa: F401


def check_pytorch_version() -> None:
    """Does nothing: stock PyTorch will do, and importing the package has checked that its operators fit this one."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        return bie.__version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
