"""Parameters that a conversion took out of a model: an optimizer made before it trains none of the new ones."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

_parameters = WeakIdKeyDictionary()
_told: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
_hook: Any = None


def remember(layers: Iterable[nn.Module], model: nn.Module) -> None:
    """Notes the parameters of layers that others took the place of in a model, but for those that it still has."""
    global _hook
    held = {id(parameter) for parameter in model.parameters()}
    for layer in layers:
        for parameter in layer.parameters():
            if id(parameter) not in held:
                _parameters[parameter] = True
    if _hook is None:
        _hook = register_optimizer_step_pre_hook(_look)


def _look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Warns once where an optimizer holds such a parameter and nothing gives it a gradient."""
    if torch.compiler.is_compiling() or not len(_parameters) or optimizer in _told:
        return
    held = (parameter for group in optimizer.param_groups for parameter in group["params"])
    count = sum(parameter in _parameters and parameter.grad is None for parameter in held)
    if count:
        _told.add(optimizer)
        warnings.warn(
            f"{type(optimizer).__name__}: {count} of its parameters are of layers that a conversion has replaced, so "
            "the new layers do not train: make the optimizer after bie.convert",
            stacklevel=3,
        )
