from bitorch_engine.layers.qlinear.nbit.cutlass.q4_layer import (
    Q4LinearCutlass,
    Q4LinearFunction,
    Q4MatMul,
    Q4MatMulFunction,
)
from bitorch_engine.layers.qlinear.nbit.cutlass.q8_layer import (
    Q8LinearCutlass,
    Q8LinearFunction,
    Q8MatMul,
    Q8MatMulFunction,
)

__all__ = [
    "Q4LinearCutlass",
    "Q4LinearFunction",
    "Q4MatMul",
    "Q4MatMulFunction",
    "Q8LinearCutlass",
    "Q8LinearFunction",
    "Q8MatMul",
    "Q8MatMulFunction",
]
