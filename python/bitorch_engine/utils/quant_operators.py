"""Quantisers on tensors and single packed words."""

from bie.bitorch.quant_operators import (
    bit_set,
    get_binary_col,
    get_binary_row,
    gptq_style_unpacking,
    gptq_style_zeros_packing,
    nv_tensor_quant,
    q4_quantization,
    q8_quantization,
)

__all__ = [
    "bit_set",
    "get_binary_col",
    "get_binary_row",
    "gptq_style_unpacking",
    "gptq_style_zeros_packing",
    "nv_tensor_quant",
    "q4_quantization",
    "q8_quantization",
]
