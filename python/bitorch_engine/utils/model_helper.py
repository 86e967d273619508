"""Whole models: prepare, pack, save and load; and the small shape helpers of BITorch Engine."""

from bie.bitorch.model_helper import (
    binary_matmul_forward_post_processing,
    flatten_x,
    init_weight,
    pad_embedding_dim,
    pad_last_2_dims_to_multiple_of_128,
    unflatten_x,
)
from bie.checkpoint import load_checkpoint, packed_state_dict, save_checkpoint
from bie.checkpoint import pack as pack_bie_layers
from bie.checkpoint import prepare as prepare_bie_layers
from bie.weights.gptq import update_zeros
from bie.weights.update_rules import update as qweight_update_fn

__all__ = [
    "binary_matmul_forward_post_processing",
    "flatten_x",
    "init_weight",
    "load_checkpoint",
    "pack_bie_layers",
    "packed_state_dict",
    "pad_embedding_dim",
    "pad_last_2_dims_to_multiple_of_128",
    "prepare_bie_layers",
    "qweight_update_fn",
    "save_checkpoint",
    "unflatten_x",
    "update_zeros",
]
