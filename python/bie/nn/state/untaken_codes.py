"""A warning of packed weights whose gradients no optimizer takes."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from bie._weak_sets import members
from bie.weights.parameters import QuantParameter, integer_optimizers

# Weight-only layers alive that have run in training, but for those that were told of.
trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def watch(layer: nn.Module) -> None:
    """Notes a layer that runs in training."""
    if not layer._told_of_gradient:
        trained.add(layer)


def _after_a_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Warns once of the layers whose codes have a gradient, where an optimizer of floats alone has stepped."""
    if torch.compiler.is_compiling() or not len(trained):
        return
    params = (param for group in optimizer.param_groups for param in group["params"])
    if any(isinstance(param, QuantParameter) and not param.is_floating_point() for param in params):
        return
    waiting = [layer for layer in members(trained) if layer.qweight.grad is not None]
    if not waiting:
        return
    groups = [group for each in members(integer_optimizers) for group in each.param_groups]
    held = {id(param) for group in groups for param in group["params"]}
    untaken = [layer for layer in waiting if id(layer.qweight) not in held]
    for layer in untaken:
        layer._told_of_gradient = True
        trained.discard(layer)
    if untaken:
        warnings.warn(
            f"{type(optimizer).__name__} steps floats, and no optimizer holds the codes of {len(untaken)} layers that "
            "have gradients: codes do not require grad, so a list of parameters that do leaves them out; give "
            "bie.optim.DiodeMix model.parameters(), or freeze the codes by requires_grad_(False)",
            stacklevel=3,
        )


register_optimizer_step_post_hook(_after_a_step)
