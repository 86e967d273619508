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
from collections.abc import Callable

import torch
from cpu_threads import seconds

import bitorch_engine  # noqa: F401  loads the operators

LINEARS = [(8, 1024, 1024), (64, 1024, 1024), (512, 1024, 1024), (64, 4096, 4096), (512, 4096, 4096), (256, 784, 128)]
CONVS = [(8, 64, 56), (8, 128, 28), (8, 256, 14), (8, 512, 7)]  # batch, channels in and out, height and width; 3x3
NAMES = ["float32", "1 bit", "8 bit", "4 bit"]
Call = Callable[[], object]


def linears(m: int, k: int, n: int) -> dict[str, Call]:
    ops, g, x, weight = torch.ops.bie, torch.randn(m, n), torch.randn(m, k), torch.randn(n, k)
    step, one = torch.tensor(0.05), torch.ones(())
    signs = torch.where(weight >= 0, 1, -1).to(torch.int8)
    codes = (2 * weight).round().clamp(-8, 7).to(torch.int8)
    nbit = {"eps": 1e-5, "reference_grad": False, "plain_codes": True, "weight_grad": torch.float32}
    return {
        "float32": lambda: (g @ weight, g.T @ x),
        "1 bit": lambda: ops.binary_linear_backward(g, x, signs, one, one, None, weight_grad=torch.float32),
        "8 bit": lambda: ops.q8_linear_backward(g, x, codes, step, one, None, **nbit),
        "4 bit": lambda: ops.q4_linear_backward(g, x, codes, step, one, None, **nbit),
    }


def convs(batch: int, channels: int, side: int) -> dict[str, Call]:
    ops, last = torch.ops.bie, torch.channels_last
    g = torch.randn(batch, channels, side, side).contiguous(memory_format=last)
    x = torch.randn(batch, channels, side, side).contiguous(memory_format=last)
    weight = torch.randn(channels, channels, 3, 3)
    rival_weight = weight.contiguous(memory_format=last)
    step, one = torch.tensor(0.05), torch.ones(())
    signs = torch.where(weight >= 0, 1, -1).to(torch.int8)
    codes = (2 * weight).round().clamp(-8, 7).to(torch.int8)
    size = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "kernel_size": [3, 3]}
    nbit = {"eps": 1e-5, "reference_grad": False, "weight_grad": torch.float32}
    backward = torch.ops.aten.convolution_backward
    same = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    return {
        "float32": lambda: backward(g, x, rival_weight, None, *same),
        "1 bit": lambda: ops.binary_conv2d_backward(
            g, x, signs, one, one, None, **size, padding_value=-1, weight_grad=torch.float32
        ),
        "8 bit": lambda: ops.q8_conv2d_backward(g, x, codes, step, one, None, **size, **nbit),
        "4 bit": lambda: ops.q4_conv2d_backward(g, x, codes, step, one, None, **size, **nbit),
    }


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
        print("| backward pass, us | float32 | " + " | ".join(f"{name} (of float32)" for name in NAMES[1:]) + " |")
        print("| --- " * (1 + len(NAMES)) + "|")
    every = {f"{m}, {k}, {n}": (linears, m, k, n) for m, k, n in LINEARS}
    every |= {f"{b} images, {c} channels, {side}x{side}, 3x3": (convs, b, c, side) for b, c, side in CONVS}
    with torch.no_grad():
        for title, (make, *sizes) in every.items():
            us = {name: 1e6 * s for name, s in measure(make(*sizes), arguments.rounds).items()}
            cells = [f"{us[name]:,.0f} ({us['float32'] / us[name]:.2f}x)" for name in NAMES[1:]]
            line = [title, f"{us['float32']:,.0f}", *cells]
            print(f"| {' | '.join(line)} |" if arguments.markdown else f"{title:44s}{'  '.join(line[1:])}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
