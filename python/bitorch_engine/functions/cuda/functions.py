"""Packing of signs and 4-bit values."""

from bie.bitorch.packing import (
    fp32toint4,
    q4_pack_tensor,
    q4_unpack_and_scaling_tensor,
    q4_unpack_tensor,
    tensor_to_packed_uint8,
    unpack_uint8_tensor,
)

__all__ = [
    "fp32toint4",
    "q4_pack_tensor",
    "q4_unpack_and_scaling_tensor",
    "q4_unpack_tensor",
    "tensor_to_packed_uint8",
    "unpack_uint8_tensor",
]
