"""Options that both commands have, and what they mean here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from bie.green_bit_llm.common.model import say
from bie.llm import ArgumentError, FileError, LanguageModelError

_OPTIMIZERS = {"diodemix": "DiodeMix", "adamw8bit": "AdamW8bit"}
_KINDS = (".jsonl", ".txt", ".md", "")


def shared_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--model", required=True, help="folder or GGUF file of the model; nothing is fetched")
    parser.add_argument(
        "--dataset",
        required=True,
        nargs="+",
        metavar="FILE",
        help="texts, and JSON lines of text, messages, or instruction, input and output; nothing is fetched",
    )
    parser.add_argument("--seqlen", type=int, default=2048, help="tokens of a document, at most (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=4, help="documents of a step (%(default)s)")
    parser.add_argument("--save-dir", default="output/", help="folder of the results (%(default)s)")
    parser.add_argument("--save-step", type=int, default=500, help="steps between checkpoints (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of documents and of rounding (%(default)s)")
    parser.add_argument(
        "--optimizer", default="DiodeMix", help="DiodeMix, or AdamW8bit: DiodeMix with moments of 8 bits (%(default)s)"
    )
    parser.add_argument(
        "--dtype", choices=["float", "half"], default="half", help="of moments; half is bfloat16 (%(default)s)"
    )
    parser.add_argument("--weight_decay", type=float, default=0.0, help="share of the rate (%(default)s)")
    for name in ("--trust-remote-code", "--use-flash-attention-2"):
        parser.add_argument(name, action="store_true", help="has no meaning here")
    return parser


def check(arguments: argparse.Namespace) -> None:
    """Tells options without a meaning, and refuses values that cannot be.

    Raises:
        ArgumentError: a number out of range, or an optimizer of another name.
        FileError: a model or data that are not on this machine, or files of another kind.
    """
    for name in ("trust_remote_code", "use_flash_attention_2"):
        if getattr(arguments, name):
            say(f"--{name.replace('_', '-')} has no meaning here")
    for name, least in (("seqlen", 2), ("batch_size", 1), ("save_step", 1)):
        if getattr(arguments, name) < least:
            option = name.replace("_", "-")
            raise ArgumentError(f"--{option}: expected {least} or more, got {getattr(arguments, name)}")
    optimizer(arguments)
    if not Path(arguments.model).exists():
        raise FileError(
            f"--model: expected a folder or a GGUF file on this machine, got {arguments.model!r}; nothing is fetched: "
            "huggingface-cli download puts a repository into a folder"
        )
    for path in arguments.dataset:
        _check_data(path)


def _check_data(path: str) -> None:
    if not Path(path).is_file():
        raise FileError(
            f"--dataset: expected files on this machine, got {path!r}; nothing is fetched: "
            "datasets.load_dataset(NAME, split='train').to_json('data.jsonl') writes one"
        )
    if Path(path).suffix.lower() not in _KINDS:
        raise FileError(
            f"--dataset: expected texts (.txt) or JSON lines (.jsonl), got {path!r}; "
            "datasets.Dataset.to_json writes JSON lines"
        )


def optimizer(arguments: argparse.Namespace) -> str:
    """DiodeMix or AdamW8bit.

    Raises:
        ArgumentError: another name.
    """
    for part, name in _OPTIMIZERS.items():
        if part in arguments.optimizer.lower():
            return name
    raise ArgumentError(f"--optimizer: expected {' or '.join(_OPTIMIZERS.values())}, got {arguments.optimizer!r}")


def status_of(run: Callable[[argparse.Namespace], None], arguments: argparse.Namespace, name: str, wants: str) -> int:
    """Runs a command and returns its exit status: 1 with one sentence for what cannot be done."""
    try:
        check(arguments)
        run(arguments)
    except ImportError as error:
        say(f"{name} needs {wants}: {error}")
        return 1
    except (LanguageModelError, ValueError, OSError) as error:
        say(str(error))
        return 1
    return 0


def results(arguments: argparse.Namespace, kind: str) -> Path:
    """The folder of the results: --save-dir, the kind of training and the model's last name."""
    model = Path(arguments.model).resolve()
    return Path(arguments.save_dir) / kind / (model.name if model.is_dir() else model.stem)
