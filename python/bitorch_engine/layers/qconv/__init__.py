"""Convolutions with quantised weights and activations."""

from bitorch_engine.layers.qconv.binary import BinaryConv2dBase, BinaryConvParameter

__all__ = ["BinaryConv2dBase", "BinaryConvParameter"]
