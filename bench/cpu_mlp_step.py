"""A training step of an MLP on CPU threads: layers of 1, 8 and 4 bits against nn.Linear in float32 and in bfloat16.

python bench/cpu_mlp_step.py [--batch N] [--width N] [--depth N] [--rounds N] [--parts] [--markdown]

784 inputs, hidden layers of one width with PReLU between them, 10 classes: forward, loss, backward and optimizer, in
float32. The last layer is nn.Linear. Rivals are stepped by fused Adam, one under autocast to bfloat16. Of ours
"8 bit, latent" has float weights and fused Adam, the others are stepped by DiodeMix. Milliseconds of a step on
one pinned thread, all taking turns, the median over the rounds. --parts adds those of forward, backward and optimizer.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import bie

INPUTS, CLASSES = 784, 10
PARTS = ("forward", "backward", "optimizer")


class Contestant:
    def __init__(self, layer: Callable[[int, int], nn.Module], own: bool, autocast: bool, args) -> None:
        layers: list[nn.Module] = []
        for i in range(args.depth):
            layers += [layer(INPUTS if i == 0 else args.width, args.width), nn.PReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(args.width, CLASSES)).train()
        self.x, self.y = torch.randn(args.batch, INPUTS), torch.randint(0, CLASSES, (args.batch,))
        self.cast = (lambda: torch.autocast("cpu", dtype=torch.bfloat16)) if autocast else contextlib.nullcontext
        self.model(self.x)
        if own:
            bie.prepare(self.model)
            self.optimizer: torch.optim.Optimizer = bie.optim.DiodeMix(self.model.parameters(), lr=1e-3)
        else:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def step(self) -> list[float]:
        """Seconds of the parts."""
        times = [time.perf_counter()]
        with self.cast():
            loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        times.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss.backward()
        times.append(time.perf_counter())
        self.optimizer.step()
        times.append(time.perf_counter())
        return [end - begin for begin, end in itertools.pairwise(times)]


def contestants(args) -> dict[str, Contestant]:
    latent = lambda k, n: bie.nn.Q8Linear(k, n, latent=True)  # noqa: E731
    return {
        "float32": Contestant(nn.Linear, False, False, args),
        "bfloat16 autocast": Contestant(nn.Linear, False, True, args),
        "1 bit": Contestant(bie.nn.BinaryLinear, True, False, args),
        "4 bit": Contestant(bie.nn.Q4Linear, True, False, args),
        "8 bit": Contestant(bie.nn.Q8Linear, True, False, args),
        "8 bit, latent": Contestant(latent, False, False, args),
        "1 bit, autocast": Contestant(bie.nn.BinaryLinear, True, True, args),
        "4 bit, autocast": Contestant(bie.nn.Q4Linear, True, True, args),
        "8 bit, autocast": Contestant(bie.nn.Q8Linear, True, True, args),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--core", type=int, help="run there (default: the first that the process may use)")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0)) if args.core is None else args.core})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    racers = contestants(args)
    times: dict[str, list[list[float]]] = {name: [] for name in racers}
    for round_ in range(args.rounds + 2):
        for name, racer in racers.items():
            found = racer.step()
            if round_ >= 2:
                times[name].append(found)
    rows = [["", "ms", "of float32", "of autocast", *(PARTS if args.parts else ())]]
    whole = {name: 1e3 * statistics.median(map(sum, found)) for name, found in times.items()}
    for name, ms in whole.items():
        parts = [f"{1e3 * statistics.median(t[i] for t in times[name]):.2f}" for i in range(3)] if args.parts else []
        ratios = [f"{whole[rival] / ms:.2f}x" for rival in ("float32", "bfloat16 autocast")]
        rows.append([name, f"{ms:.2f}", *ratios, *parts])
    for i, row in enumerate(rows):
        print(f"| {' | '.join(row)} |" if args.markdown else "".join(f"{cell:20s}" for cell in row))
        if args.markdown and i == 0:
            print("| --- " * len(row) + "|")


if __name__ == "__main__":
    sys.exit(main())
