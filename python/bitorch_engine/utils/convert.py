"""Swaps nn.Linear and nn.Conv2d of a model for layers of BITorch Engine's names, with their weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

import bie
from bie.bitorch.mpq_config import get_mpq_config
from bie.conversion import ConversionReport, Converted, carry, collect_layers, replace_layers
from bitorch_engine.layers.qconv.binary.cutlass import BinaryConv2dCutlass
from bitorch_engine.layers.qconv.nbit.cutlass import Q4Conv2dCutlass, Q8Conv2d
from bitorch_engine.layers.qlinear.binary import BinaryLinear
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.nbit.cuda import MPQLinearCuda
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearCutlass, Q8LinearCutlass

__all__ = [
    "ConversionReport",
    "Converted",
    "carry",
    "collect_layers",
    "convert",
    "get_mpq_config",
    "quantize_linear_with_binary_linear_cuda",
    "quantize_linear_with_mpq_linear_cuda",
    "quantize_linear_with_q4_linear_cutlass",
    "replace_layers",
]

_NAMED = {
    "binary": {nn.Linear: BinaryLinear, nn.Conv2d: BinaryConv2dCutlass},
    "q4": {nn.Linear: Q4LinearCutlass, nn.Conv2d: Q4Conv2dCutlass},
    "q8": {nn.Linear: Q8LinearCutlass, nn.Conv2d: Q8Conv2d},
}


def convert(model: nn.Module, target: type | str | Mapping[type, type], **options: Any) -> ConversionReport:
    """:func:`bie.convert`; "binary", "q4" and "q8" are the layers of BITorch Engine's names."""
    return bie.convert(model, _NAMED.get(target, target) if isinstance(target, str) else target, **options)


def quantize_linear_with_mpq_linear_cuda(
    module: nn.Module,
    names_to_replace: Iterable[str],
    mpq_strategy: str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    parent_name: str = "",
) -> list[nn.Module]:
    """The named nn.Linear become ``MPQLinearCuda`` with their biases and their weights, rounded; returns them.

    A state dict of BITorch Engine's loads into them as into new ones.
    """
    options = {"dtype": dtype, **get_mpq_config(mpq_strategy)}
    return replace_layers(
        module, names_to_replace, MPQLinearCuda, lambda linear: carry(linear, MPQLinearCuda, **options), parent_name
    )


def quantize_linear_with_q4_linear_cutlass(
    module: nn.Module, names_to_replace: Iterable[str], parent_name: str = ""
) -> list[nn.Module]:
    """The named nn.Linear become ``Q4LinearCutlass`` with their weights and biases; returns them."""
    return replace_layers(
        module, names_to_replace, Q4LinearCutlass, lambda linear: carry(linear, Q4LinearCutlass), parent_name
    )


def quantize_linear_with_binary_linear_cuda(
    module: nn.Module, names_to_replace: Iterable[str], parent_name: str = ""
) -> list[nn.Module]:
    """The named nn.Linear become ``BinaryLinearCuda`` with their weights and biases; returns them."""
    return replace_layers(
        module, names_to_replace, BinaryLinearCuda, lambda linear: carry(linear, BinaryLinearCuda), parent_name
    )
