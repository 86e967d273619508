"""``python -m bie.lm.train``: trains a language model in the integers of its file."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._triton import has_triton

from bie._output_files import replacing
from bie.errors import ShapeError
from bie.lm.layers import METHODS, make_trainable
from bie.lm.models import load_model, write_folder
from bie.lm.rows import Rows
from bie.lm.teacher import Teacher
from bie.lm.texts import tokenize
from bie.lm.trainer import Schedule, StoppedError, Trainer
from bie.lm.widths import WIDTHS, Width

_DESCRIPTION = """Trains a language model whose weights are codes of 1 to 8 bits, without a float copy of them, or one
of its twins with float weights. The result is RUN/model.gguf, or the folder RUN/model if no type of GGUF fits."""
_CODES_LR = {"8": 3e-5, "4": 1e-4, "3": 5e-4, "2": 1e-3, "ternary": 1e-3, "1": 1e-3}
_FLOAT_LR = 1e-3
_OF_TEACHER = {"teacher_best": "best", "teacher_weight": "weight", "temperature": "temperature"}


def _count(text: str) -> int:
    """A number of tokens such as 500000, 20M or 1.5G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"expected a number such as 500000 or 20M, got {text!r}")
    return round(float(found[1]) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[found[2]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bie.lm.train", description=_DESCRIPTION)
    what = parser.add_argument_group("what is trained")
    what.add_argument("--model", help="a GGUF file, a folder, or llama:hidden=384,layers=6,heads=6")
    what.add_argument("--tokenizer", type=Path, help="a GGUF file or folder that holds one; a new model needs it")
    what.add_argument("--data", nargs="+", type=Path, help="texts, and JSON lines of `text` or `messages`")
    what.add_argument("--validation", type=float, default=0.02, help="share of the documents that is held out (0.02)")
    what.add_argument("--bits", default="4", choices=list(WIDTHS), help="of the weights in the blocks (4)")
    what.add_argument("--group", type=int, help="inputs that share a scale")
    what.add_argument("--method", default="codes+rest8", choices=METHODS, help="what a weight is (codes+rest8)")
    how = parser.add_argument_group("how")
    how.add_argument("--tokens", type=_count, help="tokens to read in all, such as 20M")
    how.add_argument("--context", type=int, default=1024, help="tokens of a row (1024)")
    how.add_argument("--rows", type=int, default=16, help="rows of a backward pass (16)")
    how.add_argument("--accumulate", type=int, default=1, help="backward passes of a step (1)")
    how.add_argument("--lr", type=float, help="largest rate of the weights in the blocks")
    how.add_argument("--scale-lr", type=float, help="of their scales, relative to each")
    how.add_argument("--float-lr", type=float, default=3e-4, help="of table, output layer and norms (3e-4)")
    how.add_argument("--warmup", type=float, default=0.05, help="share of the steps over which rates rise (0.05)")
    how.add_argument("--seed", type=int, default=0)
    how.add_argument("--no-pack", action="store_true", help="a row holds one document")
    how.add_argument("--moments", default="8bit", choices=["8bit", "float32"], help="of the codes (8bit)")
    how.add_argument("--keep-gradients", action="store_true", help="step after the backward pass, not in it")
    how.add_argument("--checkpointing", action="store_true", help="compute blocks anew in the backward pass")
    how.add_argument("--precision", choices=["float32", "bfloat16"], help="of products (bfloat16 on CUDA)")
    how.add_argument("--eager", action="store_true", help="on CUDA: no torch.compile, no CUDA graph")
    how.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    how.add_argument("--threads", type=int, help="of the CPU")
    taught = parser.add_argument_group("whom it learns from")
    taught.add_argument("--teacher", help="a GGUF file or a folder, whose best tokens have a share of the loss")
    taught.add_argument("--teacher-weight", type=float, metavar="SHARE", help="of the loss, 0 to 1 (0.5)")
    taught.add_argument("--teacher-best", type=int, metavar="TOKENS", help="that are shown behind each token (64)")
    taught.add_argument("--temperature", type=float, help="that both distributions are divided by (1)")
    out = parser.add_argument_group("what comes out")
    out.add_argument("--out", type=Path, help="folder of the run")
    out.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this folder")
    out.add_argument("--save-every", type=int, default=500, help="steps between checkpoints (500)")
    out.add_argument("--evaluate-every", type=int, default=0, help="steps between evaluations; 0: at the end")
    return parser


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume is not None:
        path = options.resume / "options.json"
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"--resume: {options.resume} is no folder of a run: {error}")
        asked = _parser()
        asked.argument_default = argparse.SUPPRESS
        for action in asked._actions:
            action.default = argparse.SUPPRESS
        given = vars(asked.parse_args(arguments))
        if other := [name for name in given if name not in ("resume", "device", "threads", "save_every")]:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in other)
            parser.error(f"--resume goes on with the options of its run, which {names} cannot change")
        kept = {name: getattr(options, name) for name in ("device", "threads", "save_every")}
        places = {"data": [Path(name) for name in told["data"]], "out": options.resume, "resume": options.resume}
        places["tokenizer"] = Path(told["tokenizer"]) if told["tokenizer"] else None
        return argparse.Namespace(**(told | kept | places))
    for name in ("model", "data", "tokens", "out"):
        if getattr(options, name) is None:
            parser.error(f"--{name} is missing")
    if (options.out / "checkpoint.pt").exists():
        parser.error(f"--out: {options.out} holds a run; --resume {options.out} goes on with it")
    if options.precision is None:
        options.precision = "bfloat16" if options.device.startswith("cuda") else "float32"
    if options.teacher is None and (alone := [name for name in _OF_TEACHER if getattr(options, name) is not None]):
        parser.error(f"--{alone[0].replace('_', '-')} wants a --teacher")
    width = WIDTHS[options.bits]
    if options.lr is None:
        by_method = {"codes": _CODES_LR[options.bits], "float": _FLOAT_LR}
        options.lr = by_method.get(options.method, width.lr)
    if options.scale_lr is None:
        options.scale_lr = width.scale_lr
    return options


def _keep(options: argparse.Namespace) -> None:
    """Writes the options beside the run, for --resume; paths are absolute, so that it may start elsewhere."""
    told = {name: value for name, value in vars(options).items() if name not in ("out", "resume")}
    told["data"] = [str(path.resolve()) for path in options.data]
    told["tokenizer"] = None if options.tokenizer is None else str(options.tokenizer.resolve())
    for name in ("model", "teacher"):
        if told[name] is not None and Path(told[name]).exists():
            told[name] = str(Path(told[name]).resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    with replacing(options.out / "options.json") as file:
        file.write((json.dumps(told, indent=1) + "\n").encode())


def _write(model: nn.Module, tokenizer: Any, out: Path, types: list[str]) -> Path:
    """Writes the model as GGUF, or as a folder where no type holds its codes."""
    from bie import hf

    if types:
        hf.save_gguf(model.cpu(), out / "model.gguf")
        return out / "model.gguf"
    write_folder(model.cpu(), tokenizer, out / "model")
    return out / "model"


class _Shares:
    """A line every few seconds while texts become tokens."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 5

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 5
            print(f"tokens of {done / total:.0%} of the texts", flush=True)


class _Lines:
    """A line of the terminal every few seconds."""

    def __init__(self, steps: int) -> None:
        self._steps, self._next = steps, 0.0

    def __call__(self, report: dict[str, Any]) -> None:
        now = time.monotonic()
        if now < self._next and "validation" not in report:
            return
        self._next = now + 5
        line = f"step {report['step']} of {self._steps}: loss {report['loss']:.4f}"
        line += f", {report['tokens_per_second']:,.0f} tokens/s"
        if "validation" in report:
            line += f", validation {report['validation']:.4f}"
        print(line, flush=True)


def _teacher(options: argparse.Namespace, tokenizer: Any) -> Teacher | None:
    if options.teacher is None:
        return None
    from bie import hf

    try:
        its_tokenizer = hf.load_tokenizer(options.teacher)
    except ValueError:
        if options.tokenizer is None:
            raise
        its_tokenizer = tokenizer  # --tokenizer is for files without one
    model, _ = load_model(options.teacher, options.tokenizer)
    if its_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise ValueError(f"--teacher: {options.teacher} has another tokenizer than the model")
    numbers = {name: getattr(options, key) for key, name in _OF_TEACHER.items() if getattr(options, key) is not None}
    return Teacher(model.to(options.device), **numbers)


def _train(options: argparse.Namespace) -> None:
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    width: Width = WIDTHS[options.bits]
    model, tokenizer = load_model(options.model, options.tokenizer, options.seed)
    teacher = _teacher(options, tokenizer)
    vocabulary, folder = model.config.vocab_size, options.out / "tokens"
    asked = {"validation": options.validation, "vocab_size": vocabulary}
    texts = tokenize(options.data, tokenizer, folder, **asked, progress=_Shares())
    types = make_trainable(model, options.method, width, options.group, device=options.device)
    place = f"GGUF, {' and '.join(types)}" if types else "a folder of bie: no type of GGUF holds these codes"
    print(f"weights: {options.method}, {options.bits} bits; the result is {place}", flush=True)
    if options.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    rows = Rows(texts, options.context, options.seed, pack=not options.no_pack)
    compiled = options.device.startswith("cuda") and not options.eager and not options.checkpointing
    captured = compiled and options.accumulate == 1
    schedule = Schedule(
        tokens=options.tokens,
        rows=options.rows,
        accumulate=options.accumulate,
        lr=options.lr,
        scale_lr=options.scale_lr,
        float_lr=options.float_lr,
        warmup=options.warmup,
        seed=options.seed,
        small_moments=options.moments == "8bit",
        in_backward=not (options.keep_gradients or captured) and options.accumulate == 1,
        bfloat16=options.precision == "bfloat16",
    )
    how = {"compiled": compiled and has_triton(), "captured": captured, "teacher": teacher}
    trainer = Trainer(model, rows, schedule, options.out, **how)
    counts = f"{len(texts.training.tokens):,} tokens of text, {len(rows):,} rows; {trainer.steps:,} steps"
    print(f"data: {counts}", flush=True)
    if options.resume is not None and (options.out / "checkpoint.pt").exists():
        trainer.resume(options.out / "checkpoint.pt")
        print(f"resumed behind step {trainer.step}", flush=True)
    lines = _Lines(trainer.steps)
    try:
        for report in trainer.run(save_every=options.save_every, evaluate_every=options.evaluate_every):
            lines(report)
    except KeyboardInterrupt:
        known = (options.out / "checkpoint.pt").exists()
        print(
            f"stopped behind step {trainer.step}; "
            + (f"--resume {options.out} goes on from its last checkpoint" if known else "there is no checkpoint yet"),
            flush=True,
        )
        raise
    trainer.finish()
    if rows.validation_rows:
        print(f"validation as the file holds it: {trainer.evaluate():.4f}", flush=True)
    print(_write(model, tokenizer, options.out, types), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 1 with one sentence for what cannot be done, 130 after Ctrl-C."""
    options = _options(arguments)
    try:
        if options.resume is None:
            _keep(options)
        _train(options)
    except (ValueError, ShapeError, OSError, StoppedError, torch.OutOfMemoryError) as error:
        print(f"bie.lm.train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    sys.exit(main())
