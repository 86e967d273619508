"""1-bit linear layers. ``BinaryLinear`` is the best class for this machine."""

from bitorch_engine.layers.qlinear.binary.cutlass.layer import BinaryLinearCutlass
from bitorch_engine.layers.qlinear.binary.layer import BinaryLinearBase, BinaryLinearParameter

BinaryLinear = BinaryLinearCutlass


def get_best_binary_implementation() -> type[BinaryLinearBase]:
    """The class to use on this machine: one class runs everywhere."""
    return BinaryLinear


__all__ = ["BinaryLinear", "BinaryLinearBase", "BinaryLinearParameter", "get_best_binary_implementation"]
