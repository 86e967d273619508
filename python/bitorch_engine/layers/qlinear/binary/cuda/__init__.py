from bitorch_engine.layers.qlinear.binary.cuda.bmm import BMM
from bitorch_engine.layers.qlinear.binary.cuda.layer import BinaryLinearCuda, BinaryLinearForward

__all__ = ["BMM", "BinaryLinearCuda", "BinaryLinearForward"]
