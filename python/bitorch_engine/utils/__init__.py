"""Quantisers on tensors, conversion of models, checkpoints."""
