"""Attention over binary linears."""

from bitorch_engine.layers.qmha.binary.layer import BMHA, LearnableBias

__all__ = ["BMHA", "LearnableBias"]
