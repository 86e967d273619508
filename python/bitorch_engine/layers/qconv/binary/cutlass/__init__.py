"""The binary convolution with learned activation scale and bias."""

from bitorch_engine.layers.qconv.binary.cutlass.layer import BinaryConv2dCutlass, BinaryConv2dForward

__all__ = ["BinaryConv2dCutlass", "BinaryConv2dForward"]
