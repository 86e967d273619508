"""Layers with 1-, 4- and 8-bit weights for stock PyTorch: the API of BITorch Engine 0.2.6 on any machine, any shape.

Importing this package loads the operators ``torch.ops.bie``; it needs no GPU.
"""

from __future__ import annotations

from importlib import metadata

from bitorch_engine import _library
from bitorch_engine.errors import ShapeError

_library.load()

#: Whether integer weights get gradients: they do, on stock PyTorch.
torch_int_gradients_support: bool = True

__all__ = ["ShapeError", "initialize", "torch_int_gradients_support"]


def initialize() -> None:
    """Imports the integration with the package ``bitorch``; does nothing where that is not installed."""
    from importlib.util import find_spec

    if find_spec("bitorch") is not None:
        from bitorch_engine.layers.qlinear import layer  # noqa: F401


def __getattr__(name: str) -> str:
    if name == "__version__":
        return metadata.version("bitorch_engine")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
