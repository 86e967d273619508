"""Layers with low-bit weights and activations, with low-bit weights alone, products of activations, attention."""

from bie.nn.attention import BinaryAttention
from bie.nn.binary_conv2d import BinaryConv2d, PlainBinaryConv2d
from bie.nn.binary_linear import BinaryLinear, PlainBinaryLinear
from bie.nn.conv1d import BinaryConv1d, Q4Conv1d, Q8Conv1d
from bie.nn.embedding import BinaryEmbedding, BinaryEmbeddingBag
from bie.nn.lora import LoRA, adapter_state, add_adapters, merge_adapters
from bie.nn.matmul import BinaryMatMul, Q4MatMul, Q8MatMul
from bie.nn.mbwq_linear import MBWQLinear
from bie.nn.mpq_linear import MPQLinear
from bie.nn.multihead_attention import MultiheadAttention
from bie.nn.nbit_conv2d import Q4Conv2d, Q8Conv2d
from bie.nn.nbit_linear import Q4Linear, Q8Linear
from bie.nn.state import registration as registration
from bie.nn.state.quant_layer import QuantLayer, quant_layers, set_compat, set_grad_mode
from bie.nn.weight_only import WeightOnlyLinear
from bie.nn.weight_only_embedding import WeightOnlyEmbedding

__all__ = [
    "BinaryAttention",
    "BinaryConv1d",
    "BinaryConv2d",
    "BinaryEmbedding",
    "BinaryEmbeddingBag",
    "BinaryLinear",
    "BinaryMatMul",
    "LoRA",
    "MBWQLinear",
    "MPQLinear",
    "MultiheadAttention",
    "PlainBinaryConv2d",
    "PlainBinaryLinear",
    "Q4Conv1d",
    "Q4Conv2d",
    "Q4Linear",
    "Q4MatMul",
    "Q8Conv1d",
    "Q8Conv2d",
    "Q8Linear",
    "Q8MatMul",
    "QuantLayer",
    "WeightOnlyEmbedding",
    "WeightOnlyLinear",
    "adapter_state",
    "add_adapters",
    "merge_adapters",
    "quant_layers",
    "set_compat",
    "set_grad_mode",
]
