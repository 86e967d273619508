"""Nets and optimizers of ``python -m bie.train``, with the defaults of ``bie train``; docs/training.md."""

from __future__ import annotations

import argparse

import torch
from torch import nn

from bie.nn import BinaryConv2d, BinaryLinear, Q4Conv2d, Q4Linear, Q8Conv2d, Q8Linear
from bie.nn.state.quant_layer import QuantLayer, quant_layers
from bie.optim import DiodeMix

_LINEAR = {1: BinaryLinear, 4: Q4Linear, 8: Q8Linear}
_CONV = {1: BinaryConv2d, 4: Q4Conv2d, 8: Q8Conv2d}


def _latent(options: argparse.Namespace) -> dict[str, bool]:
    usual = {"usual": options.bits != 1, "int8": False, "float": True}
    return {} if options.bits == 32 else {"latent": usual[options.weights]}


def build(options: argparse.Namespace, side: int, classes: int) -> nn.Sequential:
    """``--arch mlp`` or ``lenet`` for images [1, side, side]: the first and the last layer are float."""
    linear, conv = _LINEAR.get(options.bits, nn.Linear), _CONV.get(options.bits, nn.Conv2d)
    more, hidden, width = _latent(options), options.hidden, options.width
    if options.arch == "mlp":
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(side * side, hidden), nn.BatchNorm1d(hidden), nn.PReLU()]
        for _ in range(options.depth):
            layers += [linear(hidden, hidden, **more), nn.BatchNorm1d(hidden), nn.PReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden, classes))
    after = 2 * width * (side // 4) ** 2
    centred = options.bits == 1  # what a pool leaves has one sign
    return nn.Sequential(
        *(nn.Conv2d(1, width, 5, padding=2), nn.BatchNorm2d(width), nn.PReLU(), nn.MaxPool2d(2)),
        *((nn.BatchNorm2d(width),) if centred else ()),
        *(conv(width, 2 * width, 5, padding=2, **more), nn.BatchNorm2d(2 * width), nn.PReLU(), nn.MaxPool2d(2)),
        *((nn.BatchNorm2d(2 * width),) if centred else ()),
        *(nn.Flatten(), linear(after, hidden, **more), nn.BatchNorm1d(hidden), nn.PReLU()),
        nn.Linear(hidden, classes),
    )


def optimizer_of(model: nn.Module, options: argparse.Namespace, steps: int) -> DiodeMix:
    """DiodeMix: floats, int8 weights and the step sizes of 1-bit layers at rates of their own."""
    layers: list[QuantLayer] = [layer for _, layer in quant_layers(model)]
    integers = [layer.weight for layer in layers if layer.weight_form == "int8"]
    scales = [layer.scale_a for layer in layers] if options.bits == 1 else []
    apart = {id(param) for param in (*integers, *scales)}
    floats = [param for param in model.parameters() if id(param) not in apart]
    rate = options.lr or (5e-3 if options.bits == 1 else 1e-3)
    groups = [{"params": floats, "lr": rate, "betas": (0.9, 0.999), "eps": 1e-8}]
    if scales:
        groups.append({"params": scales, "lr": rate / 100, "betas": (0.9, 0.999), "eps": 1e-8})
    if integers:
        memory = max(options.integer_memory * steps, 1.0)
        betas = (0.99, 1 - 1 / memory) if options.bits == 1 else (0.9, 0.999)
        groups.append({"params": integers, "lr": options.integer_lr, "betas": betas, "eps": 1e-8})
    return DiodeMix(groups, seed=options.seed)


def schedule_of(
    optimizer: torch.optim.Optimizer, options: argparse.Namespace, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Of all rates: a cosine or a line to 0, or constant."""
    if options.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    end = 0.0 if options.schedule == "linear" else 1.0
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, end, steps)
