from bitorch_engine.layers.qlinear.binary.cpp.layer import BinaryLinearCPP, BinaryLinearForward

__all__ = ["BinaryLinearCPP", "BinaryLinearForward"]
