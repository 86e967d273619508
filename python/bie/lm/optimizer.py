"""The optimizer of a language model that trains in codes: one ``DiodeMix`` with a rate for each kind of weight."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bie.optim.diode_mix import DiodeMix
from bie.weights.parameters import CodeRowsParameter, WeightOnlyParameter

_BETAS, _EPS = (0.9, 0.95), 1e-10


def make_optimizer(
    model: nn.Module,
    lr: float,
    *,
    scale_lr: float = 0.0,
    float_lr: float | None = None,
    betas: tuple[float, float] = _BETAS,
    eps: float = _EPS,
    small_moments: bool = False,
    seed: int = 0,
) -> DiodeMix:
    """A ``DiodeMix`` over all that trains of a model, which the trainers of others take as their optimizer.

    ============  ====================================================================
    ``lr``        codes of linears and tables; latent and float weights in the blocks
    ``scale_lr``  the scales of codes of linears, relative to each scale; 0 keeps them
    ``float_lr``  other floats: tables, output layers, norms, biases, adapters
    ============  ====================================================================

    Args:
        model: of transformers, also within a model of peft.
        float_lr: ``lr`` where it is None.
        betas, eps: of all groups.
        small_moments: moments of codes of linears in 8 bits.
        seed: of the random numbers with which codes are rounded.

    Raises:
        ValueError: a model of which nothing trains; a number that ``DiodeMix`` refuses.

    Example::

        model = bie.hf.load("model.gguf")
        make_trainable(model, "codes+rest8", WIDTHS["4"])
        optimizer = make_optimizer(model, 1e-3, scale_lr=0.003, float_lr=3e-4)
        Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, None)).train()
    """
    kinds: dict[str, list[nn.Parameter]] = {"linears": [], "tables": [], "blocks": [], "others": []}
    for name, parameter in model.named_parameters():
        if (kind := _kind(name, parameter, model)) is not None:
            kinds[kind].append(parameter)
    if not any(kinds.values()):
        raise ValueError(
            "make_optimizer: expected a model that trains, got one whose parameters are frozen: call make_trainable, "
            "or model.requires_grad_(True), before"
        )
    rates: dict[str, dict[str, Any]] = {
        "linears": {"lr": lr, "scale_lr": scale_lr},
        "tables": {"lr": lr},
        "blocks": {"lr": lr},
        "others": {"lr": lr if float_lr is None else float_lr},
    }
    groups = [{"params": kinds[kind], **numbers} for kind, numbers in rates.items() if kinds[kind]]
    dtype = torch.int8 if small_moments else torch.float32
    return DiodeMix(groups, betas=betas, eps=eps, dtype=dtype, seed=seed)


def _kind(name: str, parameter: nn.Parameter, model: nn.Module) -> str | None:
    """Which rate a parameter takes; None where it does not train."""
    if isinstance(parameter, WeightOnlyParameter | CodeRowsParameter):
        kind = "linears" if isinstance(parameter, WeightOnlyParameter) else "tables"
        return kind if parameter.trainable else None
    if not parameter.requires_grad:
        return None
    return "blocks" if _is_block_weight(name, model) else "others"


def _is_block_weight(name: str, model: nn.Module) -> bool:
    """Whether a parameter is a float weight of a linear in a block, or its scales; an adapter is none."""
    parts = name.split(".")
    if "layers" not in parts or parts[-1] not in ("weight", "scales") or "lora_" in name:
        return False
    return isinstance(model.get_submodule(".".join(parts[:-1])), nn.Linear)
