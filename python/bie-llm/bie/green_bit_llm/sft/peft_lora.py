"""Trains adapters beside codes: `python -m bie.green_bit_llm.sft.peft_lora --model FOLDER --dataset data.jsonl`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bie.green_bit_llm.common.model import say
from bie.green_bit_llm.sft import options

_BETAS = (0.9, 0.999)
_EPS = {"DiodeMix": 1e-6, "AdamW8bit": 1e-8}
_TARGETS = ("q_proj", "v_proj", "out_proj", "down_proj", "up_proj")


def setup_arg_parser() -> argparse.ArgumentParser:
    parser = options.shared_parser("peft_lora", "Trains adapters of peft beside the codes of a model, which stay.")
    parser.add_argument("--lr-fp", type=float, default=1e-6, help="rate of the adapters (%(default)s)")
    parser.add_argument("--lora-rank", type=int, default=64, help="of the adapters (%(default)s)")
    parser.add_argument("--lora-alpha", type=int, default=32, help="over the rank: their factor (%(default)s)")
    parser.add_argument("--lora-dropout", type=float, default=0.01, help="share of inputs left out (%(default)s)")
    return parser


def adapted(model: Any, arguments: argparse.Namespace) -> Any:
    """A model of peft with an adapter beside each of the layers that 0.2.6 puts some to."""
    from peft import LoraConfig, get_peft_model

    import bie.peft  # noqa: F401  which makes peft know our layers

    if Path(arguments.model).is_dir():
        model.name_or_path = arguments.model  # which the adapter's folder names
    config = LoraConfig(
        r=arguments.lora_rank,
        lora_alpha=arguments.lora_alpha,
        lora_dropout=arguments.lora_dropout,
        target_modules=list(_TARGETS),
        bias="none",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def make_optimizer(model: Any, arguments: argparse.Namespace) -> Any:
    """A DiodeMix, which steps floats as Adam does, over the adapters."""
    import torch

    from bie.optim import DiodeMix

    name = options.optimizer(arguments)
    if name == "AdamW8bit":
        say("--optimizer AdamW8bit: moments of adapters, which are floats, are of --dtype")
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    numbers = {"lr": arguments.lr_fp, "betas": _BETAS, "eps": _EPS[name], "weight_decay": arguments.weight_decay}
    return DiodeMix(params, **numbers, dtype=getattr(torch, arguments.dtype), seed=arguments.seed)


def run(arguments: argparse.Namespace) -> None:
    from bie.green_bit_llm.sft.training import check_device, documents, train, without_future_warnings

    from bie.lm.models import load_model

    check_device()
    folder = options.results(arguments, "lora")
    model, tokenizer = load_model(arguments.model)
    rows = documents(arguments, model, tokenizer, folder)
    with without_future_warnings():
        model = adapted(model, arguments)
        count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        print(f"{count:,} weights of adapters train", flush=True)
        train(arguments, model, rows, make_optimizer(model, arguments), folder)
    model.save_pretrained(folder)
    print(folder, flush=True)


def main(arguments: argparse.Namespace) -> int:
    """Trains, and returns the exit status: 1 with one sentence for what cannot be done."""
    return options.status_of(run, arguments, "peft_lora", "bitorch_engine, transformers, accelerate and peft")


if __name__ == "__main__":
    sys.exit(main(setup_arg_parser().parse_args()))
