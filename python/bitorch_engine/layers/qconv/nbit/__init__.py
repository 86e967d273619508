"""8- and 4-bit convolutions."""

from bitorch_engine.layers.qconv.nbit.layer import nBitConv2dBase, nBitConvParameter

__all__ = ["nBitConv2dBase", "nBitConvParameter"]
