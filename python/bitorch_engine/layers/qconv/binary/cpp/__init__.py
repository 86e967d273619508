"""The plain binary convolution, without scales."""

from bitorch_engine.layers.qconv.binary.cpp.layer import BinaryConv2dCPP, BinaryConv2dForward

__all__ = ["BinaryConv2dCPP", "BinaryConv2dForward"]
