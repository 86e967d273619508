"""8- and 4-bit linear layers, and weight-only ones."""

from bitorch_engine.layers.qlinear.nbit.layer import (
    MPQLinearBase,
    MPQWeightParameter,
    nBitLinearBase,
    nBitLinearParameter,
)

__all__ = ["MPQLinearBase", "MPQWeightParameter", "nBitLinearBase", "nBitLinearParameter"]
