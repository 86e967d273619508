"""Layers with low-bit weights."""

from bitorch_engine.layers import registration as registration
