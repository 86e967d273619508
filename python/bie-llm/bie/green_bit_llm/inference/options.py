"""Options that both commands have."""

from __future__ import annotations

import argparse
from typing import Any

from bie.green_bit_llm.common.model import say


def add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="folder of the model; nothing is fetched")
    parser.add_argument("--seqlen", type=int, default=2048, help="tokens of prompt and answer together, at most")
    parser.add_argument("--eos-token", help="a text that ends an answer, in place of the tokenizer's end token")
    for name, words in (("--gpus", {"type": str}), ("--num-gpus", {"type": int})):
        parser.add_argument(name, help="has no meaning here: the model runs on the CPU", **words)
    for name in ("--trust-remote-code", "--use-flash-attention-2"):
        parser.add_argument(name, action="store_true", help="has no meaning here")


def tell_meaningless(arguments: argparse.Namespace, *names: str) -> None:
    """One sentence for each option that was given and has no meaning."""
    for name in ("gpus", "num_gpus", "trust_remote_code", "use_flash_attention_2", *names):
        if getattr(arguments, name):
            say(f"--{name.replace('_', '-')} has no meaning here")


def tokenizer_config(arguments: argparse.Namespace) -> dict[str, Any]:
    return {} if arguments.eos_token is None else {"eos_token": arguments.eos_token}
