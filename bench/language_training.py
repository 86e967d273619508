"""Memory and time of the training of a language model on the CPU: what a process takes beside the model, by method.

    language_training.py MODEL.gguf [--steps 8] [--rows 2] [--context 64]

Each method runs in a process of its own on random tokens. Memory is the largest resident set after the steps, less
that after the model was read.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

#: Method, bits, 8-bit moments, steps in the backward pass, blocks computed anew.
RUNS = (
    ("float", "4", False, False, False),
    ("latent", "4", False, False, False),
    ("codes+rest16", "4", False, False, False),
    ("codes+rest8", "4", False, False, False),
    ("codes+rest8", "4", True, True, False),
    ("codes+rest8", "4", True, True, True),
    ("codes", "4", True, True, False),
    ("codes+rest8", "2", True, True, False),
)


def _one(options: argparse.Namespace) -> None:
    import torch

    from bie import hf
    from bie.lm.layers import make_trainable
    from bie.lm.trainer import Schedule, Trainer
    from bie.lm.widths import WIDTHS

    method, bits, small, in_backward, anew = json.loads(options.run)
    torch.set_num_threads(1)
    model = hf.load(options.model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    make_trainable(model, method, WIDTHS[bits], 64 if bits == "2" else 32)
    if anew:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    class Random:
        context, validation_rows = options.context, 0

        def __len__(self) -> int:
            return options.steps * options.rows

        def batch(self, epoch: int, index: int, size: int) -> dict[str, torch.Tensor]:
            generator = torch.Generator().manual_seed(index)
            ids = torch.randint(0, model.config.vocab_size, (size, options.context + 1), generator=generator)
            positions = torch.arange(options.context).expand(size, -1)
            return {"input_ids": ids[:, :-1], "labels": ids[:, 1:], "position_ids": positions}

    tokens = options.steps * options.rows * options.context
    schedule = Schedule(
        tokens=tokens, rows=options.rows, lr=1e-5, scale_lr=1e-4, small_moments=small, in_backward=in_backward
    )
    trainer, times, start = Trainer(model, Random(), schedule), [], time.perf_counter()
    for _ in trainer.run():
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"added": (after - before) / 1024, "seconds": statistics.median(times[1:] or times)}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        _one(options)
        return
    print("| method | bits | moments | steps | blocks | MiB beside the model | seconds a step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for run in RUNS:
        arguments = [sys.executable, *sys.argv, "--run", json.dumps(run)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        method, bits, small, in_backward, anew = run
        facts = ["8 bits" if small else "float32", "in backward" if in_backward else "after it"]
        facts.append("computed anew" if anew else "kept")
        print(
            f"| `{method}` | {bits} | {' | '.join(facts)} | {found['added']:,.0f} | {found['seconds']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
