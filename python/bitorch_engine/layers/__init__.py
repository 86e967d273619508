"""Layers with low-bit weights."""
