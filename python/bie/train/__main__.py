"""Trains a classifier with one process or, under torchrun, with several; takes options of `bie train`.

torchrun --nproc-per-node N -m bie.train --data mnist:DIR --bits 1 --run-folder DIR
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bie.checkpoint import prepare, save_checkpoint
from bie.distributed import reducer_of
from bie.train.data import Split, load
from bie.train.recipe import build, optimizer_of, schedule_of


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bie.train", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits", help="digits, or mnist:DIR (IDX files, .gz or not)")
    parser.add_argument("--arch", default="mlp", choices=["mlp", "lenet"])
    parser.add_argument("--bits", type=int, default=32, choices=[32, 8, 4, 1])
    parser.add_argument("--hidden", type=int, default=1024, help="outputs of the inner linears")
    parser.add_argument("--width", type=int, default=32, help="channels of lenet's first convolution")
    parser.add_argument("--depth", type=int, default=3, help="inner linears of an mlp")
    parser.add_argument("--weights", default="usual", choices=["usual", "int8", "float"])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64, help="images a step, of all ranks together")
    parser.add_argument("--lr", type=float, help="rate of the float parameters")
    parser.add_argument("--integer-lr", type=float, default=1e-3, help="rate of the int8 weights")
    parser.add_argument("--integer-memory", type=float, default=0.3, help="share of the steps DiodeMix remembers votes")
    parser.add_argument("--schedule", default="cosine", choices=["cosine", "linear", "constant"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, help="where to save the packed model (bie.load_checkpoint)")
    # torchrun takes --run for an option of its own.
    parser.add_argument("--run", "--run-folder", type=Path, help="a folder: checkpoint, model, report")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps between checkpoints; 0: once an epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    options = parser.parse_args(arguments)
    for name in ("hidden", "width", "depth", "epochs", "batch"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}, a positive number is wanted")
    if options.resume and options.run is None:
        parser.error("--resume wants --run, the folder to go on in")
    return options


def _write(path: Path, state: Any) -> None:
    """All or nothing: a rank may be killed at any time."""
    beside = path.with_name(path.name + ".part")
    torch.save(state, beside)
    os.replace(beside, path)


@torch.no_grad()
def _right(model: nn.Module, data: Split) -> float:
    """Share of images that the model names rightly."""
    model.eval()
    pairs = zip(data.images.split(500), data.labels.split(500), strict=True)
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in pairs)
    model.train()
    return right / len(data.labels)


class Run:
    """A training on one rank."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.together = "WORLD_SIZE" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
        cuda = torch.cuda.is_available()
        if self.together:
            dist.init_process_group("nccl" if cuda else "gloo")
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if self.together else (0, 1)
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if options.batch < self.world:
            raise ValueError(f"--batch is {options.batch}, at least one image for each of {self.world} ranks is wanted")
        self.train, self.test = (Split(*(t.to(device) for t in split)) for split in load(options.data))
        if options.batch > len(self.train.labels):
            raise ValueError(f"--batch is {options.batch}, there are {len(self.train.labels)} images")
        torch.manual_seed(options.seed)
        classes = int(self.train.labels.max()) + 1
        self.model = build(options, self.train.images.size(-1), classes).to(device)
        prepare(self.model)
        self.wrapped = DistributedDataParallel(self.model, broadcast_buffers=False) if self.together else self.model
        self.per_epoch = len(self.train.labels) // options.batch
        self.steps = self.per_epoch * options.epochs
        self.optimizer = optimizer_of(self.model, options, self.steps)
        self.schedule = schedule_of(self.optimizer, options, self.steps)
        self.step, self.history, self.seconds = 0, [], 0.0

    @property
    def checkpoint(self) -> Path:
        return self.options.run / "checkpoint.pt"

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(f"info: {text}", flush=True)

    def _same(self) -> dict[str, Any]:
        """What has to be the same for a run to go on."""
        apart = {"run", "out", "resume", "checkpoint_every"}
        return {name: value for name, value in vars(self.options).items() if name not in apart}

    def resume(self) -> None:
        """Goes on from the folder's checkpoint, where there is one: any number of ranks reads it."""
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, map_location=self.train.labels.device, weights_only=True)
        for name, value in self._same().items():
            if state["options"][name] != value:
                raise ValueError(f"{self.checkpoint} is of a run with {name} {state['options'][name]}, not {value}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.step, self.history = state["step"], state["history"]
        self.say(f"goes on after step {self.step}")

    def save(self) -> None:
        if self.rank != 0 or self.options.run is None:
            return
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        state = {name: part.state_dict() for name, part in parts.items()}
        _write(self.checkpoint, state | {"step": self.step, "history": self.history, "options": self._same()})

    def run(self) -> None:
        options, total = self.options, 0.0
        if options.run is not None:
            options.run.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        while self.step < self.steps:
            total += self._step()
            if options.checkpoint_every and self.step % options.checkpoint_every == 0:
                self.save()
            if self.step % self.per_epoch == 0:
                self._end_of_epoch(total / self.per_epoch, time.perf_counter() - begun)
                total, begun = 0.0, time.perf_counter()

    def _step(self) -> float:
        options, labels = self.options, self.train.labels
        begun = time.perf_counter()
        # What a step sees is a function of its number alone.
        order = torch.Generator().manual_seed(options.seed * 1_000_003 + self.step // self.per_epoch)
        whole = torch.randperm(len(labels), generator=order)
        first = self.step % self.per_epoch * options.batch
        own = whole[first : first + options.batch].tensor_split(self.world)[self.rank].to(labels.device)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.wrapped(self.train.images[own]), labels[own])
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        self.seconds += time.perf_counter() - begun
        return float(loss.detach())

    def _end_of_epoch(self, loss: float, seconds: float) -> None:
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} after step {self.step}, nothing is saved")
        epoch, right = self.step // self.per_epoch, _right(self.model, self.test) if self.rank == 0 else 0.0
        self.history.append({"epoch": epoch, "loss": loss, "accuracy": right})
        rate = self.optimizer.param_groups[0]["lr"]
        self.say(
            f"epoch {epoch}/{self.options.epochs}: loss {loss:.4f}, test accuracy {100 * right:.2f} %, "
            f"rate {rate:.2e}, {seconds:.1f} s"
        )
        self.save()

    def finish(self) -> None:
        """Compares the ranks, and saves model and report."""
        own = {"rank": self.rank, "seconds": round(self.seconds, 3), "images": self.options.batch // self.world}
        ranks: list[Any] = [own]
        if self.together:
            if (reducer := reducer_of(self.wrapped)) is not None:
                reducer.check()
                self.say(f"the integer weights of {self.world} ranks are the same")
            ranks = [None] * self.world
            dist.all_gather_object(ranks, own)
        if self.rank == 0:
            if self.options.run is not None:
                report = {"options": self._same(), "epochs": self.history, "ranks": ranks}
                (self.options.run / "report.json").write_text(json.dumps(report, indent=1))
                save_checkpoint(self.model, str(self.options.run / "model.pt"))
            if self.options.out is not None:
                save_checkpoint(self.model, str(self.options.out))
        if self.together:
            dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    try:
        run = Run(options)
        if options.resume:
            run.resume()
        run.run()
        run.finish()
    except (OSError, ValueError) as error:
        sys.exit(f"python -m bie.train: {error}")


if __name__ == "__main__":
    main()
