"""Linear layers with low-bit weights."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "QLinearInf":  # needs the package bitorch, which nothing else here does
        from bitorch_engine.layers.qlinear.layer import QLinearInf

        return QLinearInf
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
