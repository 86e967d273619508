"""Backward passes on one CPU core: layers of 1, 8 and 4 bits against torch's float32 products of the same shape.

python bench/cpu_backward.py [--core N] [--rounds N] [--markdown]

A linear layer's rival is the two products of its backward pass, g @ weight and g.T @ x; a convolution's is
aten::convolution_backward in channels_last. Ours is the operator's whole backward pass: opening the weight, the two
products, the straight-through estimator and the gradient of the step size. Wall time of a call on one pinned thread,
all taking turns, the median over the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

import torch
from backward_calls import BITS, Call, convs, linears
from cpu_threads import seconds

LINEARS = [(8, 1024, 1024), (64, 1024, 1024), (512, 1024, 1024), (64, 4096, 4096), (512, 4096, 4096), (256, 784, 128)]
CONVS = [(8, 64, 56), (8, 128, 28), (8, 256, 14), (8, 512, 7)]  # batch, channels in and out, height and width; 3x3


def measure(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, help="run there (default: the first that the process may use)")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--markdown", action="store_true", help="print a table")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0)) if arguments.core is None else arguments.core})
    torch.set_num_threads(1)
    if arguments.markdown:
        print("| backward pass, us | float32 | " + " | ".join(f"{name} (of float32)" for name in BITS) + " |")
        print("| --- " * (2 + len(BITS)) + "|")
    every = {f"{m}, {k}, {n}": (linears, m, k, n) for m, k, n in LINEARS}
    every |= {f"{b} images, {c} channels, {side}x{side}, 3x3": (convs, b, c, side) for b, c, side in CONVS}
    with torch.no_grad():
        for title, (make, *sizes) in every.items():
            us = {name: 1e6 * s for name, s in measure(make("float32", *sizes), arguments.rounds).items()}
            cells = [f"{us[name]:,.0f} ({us['float32'] / us[name]:.2f}x)" for name in BITS]
            line = [title, f"{us['float32']:,.0f}", *cells]
            print(f"| {' | '.join(line)} |" if arguments.markdown else f"{title:44s}{'  '.join(line[1:])}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
