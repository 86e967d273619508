"""Weight-only n-bit linears under BITorch Engine's names."""

from bitorch_engine.layers.qlinear.nbit.cuda.mbwq_layer import MBWQLinearCuda
from bitorch_engine.layers.qlinear.nbit.cuda.mpq_layer import MPQLinearCuda

__all__ = ["MBWQLinearCuda", "MPQLinearCuda"]
