"""Binary convolutions."""

from bitorch_engine.layers.qconv.binary.layer import BinaryConv2dBase, BinaryConvParameter

__all__ = ["BinaryConv2dBase", "BinaryConvParameter"]
