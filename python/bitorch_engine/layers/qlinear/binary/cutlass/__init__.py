from bitorch_engine.layers.qlinear.binary.cutlass.layer import (
    BinaryLinearCutlass,
    BinaryLinearForward,
    BinaryMatMul,
    BinaryMatMulFunction,
)

__all__ = ["BinaryLinearCutlass", "BinaryLinearForward", "BinaryMatMul", "BinaryMatMulFunction"]
