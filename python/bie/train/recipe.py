"""Optimizers and rates, with the defaults of ``bie train``; docs/training.md#defaults."""

from __future__ import annotations

import dataclasses
import math

import torch

from bie.nn.state.quant_layer import quant_layers
from bie.optim import DiodeMix
from bie.train.config import NetConfig
from bie.train.nets import Net

_BINARY_SCALE_RATE = 0.01  # the BatchNorm behind a binary layer makes the loss blind to its scale_a


def default_batch(images: int) -> int:
    """64; of a small data set the largest power of two, from 8 on, that gives an epoch six steps."""
    batch = 8
    while batch < 64 and 2 * batch * 6 <= images:
        batch *= 2
    return batch


@dataclasses.dataclass
class Recipe:
    """``optimizer`` moves the floats: diodemix, adam or sgd. A field that is None has the net's default."""

    optimizer: str = "diodemix"
    lr: float | None = None
    weight_decay: float | None = None
    integer_lr: float | None = None
    integer_memory: float | None = None
    schedule: str = "cosine"
    warmup: float | None = None

    def filled(self, config: NetConfig) -> Recipe:
        sgd, own = self.optimizer == "sgd", config.architecture
        narrow_signs = own.narrow and config.bits == 1
        of_sgd = 0.1 if own.deep else 0.05 if config.norm else 0.01
        defaults = {
            "lr": of_sgd if sgd else 5e-3 if config.bits == 1 else 1e-3,
            "weight_decay": 5e-4 if sgd else 0.0,
            "integer_lr": 1e-2 if narrow_signs else 1e-3,
            "integer_memory": 0.1 if narrow_signs else 0.3,
            "warmup": 0.02 if sgd else 0.0,
        }
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    def factor(self, step: int, steps: int) -> float:
        """What all rates are multiplied by in a step, counted from 0."""
        rising = self.warmup * steps
        if step < rising:
            return (step + 1) / (rising + 1)
        share = (step - rising) / (steps - rising)
        return {"constant": 1.0, "linear": 1 - share, "cosine": 0.5 * (1 + math.cos(math.pi * share))}[self.schedule]


class Optimizers:
    """DiodeMix for the integer weights, and for the floats unless torch's AdamW or SGD moves those."""

    def __init__(
        self, net: Net, recipe: Recipe, steps: int, seed: int, renew_scale_every: int, dtype: torch.dtype
    ) -> None:
        self._recipe, self._steps = recipe, steps
        layers = [layer for _, layer in quant_layers(net)]
        scales = {id(layer.scale_a) for layer in layers if layer._bits == 1}
        signs = {id(layer.weight) for layer in layers if layer._bits == 1 and layer.weight_form == "int8"}
        codes = {id(layer.weight) for layer in layers if layer._bits > 1 and layer.weight_form == "int8"}
        parts: dict[str, list[torch.nn.Parameter]] = {}
        for param in net.parameters():
            kind = "scales" if id(param) in scales else "signs" if id(param) in signs else ""
            kind = kind or ("codes" if id(param) in codes else "weights" if param.dim() > 1 else "others")
            parts.setdefault(kind, []).append(param)
        self.moves_integers = any(layer.weight_form == "int8" and layer.weight_trainable for layer in layers)
        memory = max(recipe.integer_memory * steps, 1.0)
        integers = {"lr": recipe.integer_lr, "betas": (0.9, 0.999), "renew_scale_every": renew_scale_every}
        options = {
            "weights": {"lr": recipe.lr, "weight_decay": recipe.weight_decay},
            "others": {"lr": recipe.lr},
            "scales": {"lr": recipe.lr * _BINARY_SCALE_RATE},
            "signs": integers | {"betas": (0.99, min(max(1 - 1 / memory, 0.9), 0.99999))},
            "codes": integers,
        }
        floats = [{"params": parts[k], **options[k]} for k in ("weights", "others", "scales") if k in parts]
        ours = [{"params": parts[k], **options[k]} for k in ("signs", "codes") if k in parts]
        self._all: list[torch.optim.Optimizer] = []
        if recipe.optimizer == "sgd":
            self._all.append(torch.optim.SGD(floats, lr=recipe.lr, momentum=0.9, nesterov=True))
        elif recipe.optimizer == "adam":
            self._all.append(torch.optim.AdamW(floats, lr=recipe.lr, weight_decay=0.0))
        else:
            ours = floats + ours
        if ours:
            self._all.append(DiodeMix(ours, betas=(0.9, 0.999), eps=1e-8, dtype=dtype, seed=seed))
        for group in self._groups():
            group["base_lr"] = group["lr"]

    def _groups(self) -> list[dict]:
        return [group for optimizer in self._all for group in optimizer.param_groups]

    def zero_grad(self) -> None:
        for optimizer in self._all:
            optimizer.zero_grad()

    def step(self, number: int) -> None:
        factor = self._recipe.factor(number, self._steps)
        for group in self._groups():
            group["lr"] = group["base_lr"] * factor
        for optimizer in self._all:
            optimizer.step()

    def state_dict(self) -> list[dict]:
        return [optimizer.state_dict() for optimizer in self._all]

    def load_state_dict(self, state: list[dict]) -> None:
        for optimizer, own in zip(self._all, state, strict=True):
            optimizer.load_state_dict(own)
