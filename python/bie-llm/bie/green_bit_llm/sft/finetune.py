"""Trains the codes of a model: `python -m bie.green_bit_llm.sft.finetune --model FOLDER --dataset data.jsonl`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bie.green_bit_llm.common.model import say
from bie.green_bit_llm.sft import options
from bie.llm import ArgumentError

#: Rates of codes where none is given: without and with --galore.
_RATES = {"DiodeMix": (5e-6, 5e-5), "AdamW8bit": (1e-3, 5e-3)}
_EPS = {"DiodeMix": 1e-6, "AdamW8bit": 1e-8}
_BETAS = (0.9, 0.99)


def setup_arg_parser() -> argparse.ArgumentParser:
    parser = options.shared_parser("finetune", "Trains the codes of a model, and its floats, without a float copy.")
    parser.add_argument("--tune-qweight-only", action="store_true", help="train the codes of linears and nothing else")
    parser.add_argument("--lr-2bit", type=float, default=-1.0, help="rate of codes of 1 to 3 bits")
    parser.add_argument("--lr-4bit", type=float, default=-1.0, help="rate of codes of 4 to 8 bits")
    parser.add_argument("--lr-fp", type=float, default=5e-6, help="rate of all other weights (%(default)s)")
    parser.add_argument("--galore", action="store_true", help="moments in GaLore's space of low rank")
    parser.add_argument("--galore-rank", type=int, default=256, help="of that space (%(default)s)")
    parser.add_argument("--galore-update-proj-gap", type=int, default=200, help="steps between spaces (%(default)s)")
    parser.add_argument("--galore-scale", type=float, default=0.25, help="factor of a step (%(default)s)")
    parser.add_argument("--galore-proj-type", default="std", help="std, reverse_std, right, left or full (%(default)s)")
    return parser


def _rates(arguments: argparse.Namespace) -> tuple[float, float]:
    """Those of codes of few and of more bits."""
    usual = _RATES[options.optimizer(arguments)][arguments.galore]
    few, more = (rate if rate > 0 else usual for rate in (arguments.lr_2bit, arguments.lr_4bit))
    return few, more


def param_groups(model: Any, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Codes of 1 to 3 bits, codes of more, and, without --tune-qweight-only, all else; what is in none is frozen.

    Raises:
        ArgumentError: a model without codes.
    """
    from bie.nn.weight_only import WeightOnlyLinear

    layers = [layer for layer in model.modules() if isinstance(layer, WeightOnlyLinear)]
    if not layers:
        raise ArgumentError("--model: expected layers of codes, got a model of floats; bie convert makes codes of them")
    few, more = _rates(arguments)
    codes = {id(layer.qweight) for layer in layers}
    own: dict[str, Any] = {"betas": _BETAS}
    if arguments.galore:
        own |= {"rank": arguments.galore_rank, "update_proj_gap": arguments.galore_update_proj_gap}
        own |= {"scale": arguments.galore_scale, "proj_type": arguments.galore_proj_type}
    groups = [
        {"params": [layer.qweight for layer in layers if layer.w_bit < 4], "lr": few, **own},
        {"params": [layer.qweight for layer in layers if layer.w_bit >= 4], "lr": more, **own},
    ]
    others = [parameter for parameter in model.parameters() if id(parameter) not in codes]
    model.requires_grad_(True)
    if arguments.tune_qweight_only:
        for parameter in others:
            parameter.requires_grad_(False)
    else:
        groups.append({"params": others, "lr": arguments.lr_fp, "betas": _BETAS})
    return [group for group in groups if group["params"]]


def _has_small_moments(model: Any, arguments: argparse.Namespace) -> bool:
    """Whether moments are of 8 bits; a sentence tells why not."""
    import torch

    from bie.nn import MPQLinear
    from bie.nn.weight_only import WeightOnlyLinear

    if options.optimizer(arguments) != "AdamW8bit":
        return False
    if arguments.galore:
        say("--optimizer AdamW8bit: with --galore moments are of --dtype")
        return False
    for layer in model.modules():
        if isinstance(layer, WeightOnlyLinear):
            order = torch.arange(layer.in_channels) // layer.group_size
            if not isinstance(layer, MPQLinear) or not torch.equal(layer.g_idx.cpu().long(), order):
                say("--optimizer AdamW8bit: moments are of --dtype, as rows of the model have an order of their own")
                return False
    return True


def make_optimizer(model: Any, arguments: argparse.Namespace) -> Any:
    """The DiodeMix that the options ask for."""
    import torch

    from bie.optim import DiodeMix

    moments = torch.int8 if _has_small_moments(model, arguments) else getattr(torch, arguments.dtype)
    numbers = {"eps": _EPS[options.optimizer(arguments)], "weight_decay": arguments.weight_decay}
    return DiodeMix(param_groups(model, arguments), **numbers, dtype=moments, seed=arguments.seed)


def _counts(model: Any) -> tuple[int, int]:
    """How many weights train, and how many there are; codes count as weights."""
    from bie.nn.weight_only import WeightOnlyLinear
    from bie.nn.weight_only_embedding import WeightOnlyEmbedding

    sizes = {}
    for layer in model.modules():
        if isinstance(layer, WeightOnlyLinear):
            sizes[id(layer.qweight)] = layer.in_channels * layer.out_channels
        elif isinstance(layer, WeightOnlyEmbedding):
            sizes[id(layer.qweight)] = layer.num_embeddings * layer.embedding_dim
    trained = total = 0
    for parameter in model.parameters():
        size = sizes.get(id(parameter), parameter.numel())
        trains = parameter.requires_grad if parameter.is_floating_point() else parameter.trainable
        trained, total = trained + size * trains, total + size
    return trained, total


def run(arguments: argparse.Namespace) -> None:
    from bie.green_bit_llm.sft.training import check_device, documents, train, without_future_warnings

    from bie.lm.models import load_model, write_folder

    check_device()
    folder = options.results(arguments, "finetune/galore" if arguments.galore else "finetune/common")
    model, tokenizer = load_model(arguments.model)
    optimizer = make_optimizer(model, arguments)
    rows = documents(arguments, model, tokenizer, folder)
    print("{:,} of {:,} weights train".format(*_counts(model)), flush=True)
    with without_future_warnings():
        train(arguments, model, rows, optimizer, folder, lr_scheduler_type="cosine", save_total_limit=3)
    write_folder(model.cpu().eval(), tokenizer, folder, arguments.model)
    print(folder, flush=True)


def main(arguments: argparse.Namespace) -> int:
    """Trains, and returns the exit status: 1 with one sentence for what cannot be done."""
    return options.status_of(run, arguments, "finetune", "bitorch_engine, transformers and accelerate")


if __name__ == "__main__":
    sys.exit(main(setup_arg_parser().parse_args()))
