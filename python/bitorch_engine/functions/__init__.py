"""Packing functions on plain tensors."""
