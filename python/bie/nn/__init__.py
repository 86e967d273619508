"""Layers with 1-, 4- and 8-bit weights and activations, products of activations and attention."""

from bie.nn.attention import BinaryAttention
from bie.nn.binary_conv2d import BinaryConv2d, PlainBinaryConv2d
from bie.nn.binary_linear import BinaryLinear, PlainBinaryLinear
from bie.nn.embedding import BinaryEmbedding, BinaryEmbeddingBag
from bie.nn.matmul import BinaryMatMul, Q4MatMul, Q8MatMul
from bie.nn.nbit_conv2d import Q4Conv2d, Q8Conv2d
from bie.nn.nbit_linear import Q4Linear, Q8Linear
from bie.nn.state import registration as registration
from bie.nn.state.quant_layer import QuantLayer, quant_layers, set_compat, set_grad_mode

__all__ = [
    "BinaryAttention",
    "BinaryConv2d",
    "BinaryEmbedding",
    "BinaryEmbeddingBag",
    "BinaryLinear",
    "BinaryMatMul",
    "PlainBinaryConv2d",
    "PlainBinaryLinear",
    "Q4Conv2d",
    "Q4Linear",
    "Q4MatMul",
    "Q8Conv2d",
    "Q8Linear",
    "Q8MatMul",
    "QuantLayer",
    "quant_layers",
    "set_compat",
    "set_grad_mode",
]
