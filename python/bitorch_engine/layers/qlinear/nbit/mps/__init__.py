"""BITorch Engine's layers for Apple's MLX: not part of this package."""

from bitorch_engine.layers.qlinear.nbit.mps.mpq_layer import MPQLinearMlx, MPQLinearMlxFunction

__all__ = ["MPQLinearMlx", "MPQLinearMlxFunction"]
