"""The integer weights of a model, which ``requires_grad`` does not tell."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from bie.nn.state.quant_layer import quant_layers
from bie.weights.parameters import QuantParameter


def integer_parameters(model: nn.Module) -> Iterator[QuantParameter]:
    """Every integer weight of a model that training moves, once each.

    They never require grad (``.grad`` is written all the same), so ``[p for p in model.parameters() if
    p.requires_grad]`` misses them. Packed weights (``qweight``) are not trained and not listed. Weights that a layer
    makes integer in its first training forward are listed from then on: call ``prepare_bie_layers`` before.

    Example::

        >>> model = torch.nn.Sequential(bie.nn.BinaryLinear(8, 4), bie.nn.Q8Linear(4, 2))
        >>> bie.prepare(model)
        >>> [weight is model[0].weight for weight in bie.optim.integer_parameters(model)]
        [True]
    """
    seen: set[int] = set()
    for _, layer in quant_layers(model):
        weight = layer.weight
        if weight is not None and not weight.is_floating_point() and layer.weight_trainable and id(weight) not in seen:
            seen.add(id(weight))
            yield weight


def wide_gradients(model: nn.Module, dtype: torch.dtype | None = torch.float32) -> None:
    """Gradients of the integer weights in a float dtype instead of int8; ``None`` goes back to int8.

    The gradient is then the unquantised sum: micro-batches add up without rounding, and ``clip_grad_norm_`` counts and
    clips it, which leaves int8 gradients alone. ``DiodeMix`` takes both. Present gradients are forgotten.

    Example::

        >>> layer = bie.nn.BinaryLinear(8, 4)
        >>> bie.prepare(layer)
        >>> bie.optim.wide_gradients(layer)
        >>> layer(torch.randn(3, 8)).sum().backward()
        >>> layer.weight.grad.dtype
        torch.float32
    """
    for weight in integer_parameters(model):
        weight.grad = None
        weight.grad_dtype = torch.int8 if dtype is None else dtype
