"""Modules of torch that read a layer's tensors past its ``forward``: what happens when a layer is put into one."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim import swa_utils

from bie.nn.state.quant_layer import QuantLayer
from bie.nn.state.weight_only_state import WeightOnlyState
from bie.weights.parameters import AnchoredParameter


def _has_integers(layer: nn.Module) -> bool:
    """Whether the layer has an integer weight of its own, or will have one when training begins."""
    if isinstance(layer, QuantLayer):
        return layer.weight_form != "float" or not layer._latent
    return any(isinstance(param, AnchoredParameter) for param in layer._parameters.values())


def check_parent(parent: nn.Module, name: str, child: nn.Module) -> None:
    """``TypeError`` where a parent would never call the child."""
    if isinstance(parent, nn.MultiheadAttention) and isinstance(child, (QuantLayer, WeightOnlyState)):
        raise TypeError(
            f"nn.MultiheadAttention never calls its {name}, it reads the weight itself: a {type(child).__name__} would "
            "run as a float layer; bie.nn.BinaryAttention is one of quantised layers"
        )


def _put(parent: nn.Module, name: str, child: nn.Module) -> None:
    check_parent(parent, name, child)
    if isinstance(parent, nn.TransformerEncoderLayer) and isinstance(child, (QuantLayer, WeightOnlyState)):
        # Its own switch of the path that reads the weights of its linears in evaluation.
        parent.activation_relu_or_gelu = 0
    if isinstance(parent, swa_utils.AveragedModel) and not getattr(parent, "averages_integers", False):
        for layer in child.modules():
            if _has_integers(layer):
                raise TypeError(
                    "torch.optim.swa_utils.AveragedModel would truncate averages of integer weights, such as those of "
                    f"a {type(layer).__name__}: bie.optim.AveragedModel takes its place"
                )


register_module_module_registration_hook(_put)
