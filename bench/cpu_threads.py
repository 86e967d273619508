"""What a second thread gains: layers of 1, 8 and 4 bits on one thread and on several, in turns, in one run.

python bench/cpu_threads.py [--threads N] [--rounds N] [--markdown]

Wall time of a call, float32 in and out, weights prepacked, the median over the rounds; torch's float32 beside ours. The
results of one and of several threads are compared first: they are the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

import bie  # noqa: F401  loads the operators

# m, k, n; the first is what a call costs
LINEARS = [(1, 8, 8), (1, 1024, 1024), (1, 4096, 4096), (8, 1024, 1024), (8, 4096, 4096), (64, 4096, 4096)]
CONVS = [(64, 56), (128, 28), (256, 14), (512, 7)]  # channels in and out, height and width; 3x3, padding 1
INTERVAL_S = 0.02
Call = Callable[[], torch.Tensor]


def linears(m: int, k: int, n: int) -> dict[str, Call]:
    ops, x = torch.ops.bie, torch.randn(m, k)
    weight, one = torch.randn(n, k), torch.ones(())
    codes = (2 * weight).round().clamp(-8, 7).to(torch.int8)
    signs, nibbles = ops.pack_signs(codes), ops.pack_int4(codes)
    panels = [ops.binary_prepack(signs, k), ops.q8_prepack(codes), ops.q4_prepack(nibbles, k)]
    return {
        "float32": lambda: torch.nn.functional.linear(x, weight),
        "1 bit": lambda: ops.binary_linear(x, signs, one, one, in_features=k, panels=panels[0]),
        "8 bit": lambda: ops.q8_linear(x, codes, one, one, in_features=k, panels=panels[1]),
        "4 bit": lambda: ops.q4_linear(x, nibbles, one, one, in_features=k, panels=panels[2]),
    }


def convs(channels: int, side: int) -> dict[str, Call]:
    ops, x = torch.ops.bie, torch.randn(1, channels, side, side).contiguous(memory_format=torch.channels_last)
    weight, one = torch.randn(channels, channels, 3, 3), torch.ones(())
    codes = (2 * weight).round().clamp(-8, 7).to(torch.int8)
    signs, nibbles = ops.pack_signs(codes.flatten(1)), ops.pack_int4(codes.flatten(1))
    panels = [
        ops.binary_conv2d_prepack(signs, channels, [3, 3]),
        ops.q8_conv2d_prepack(codes),
        ops.q4_conv2d_prepack(nibbles, channels, [3, 3]),
    ]
    size = {"padding": [1, 1]}
    flat = {**size, "kernel_size": [3, 3]}
    return {
        "float32": lambda: torch.nn.functional.conv2d(x, weight, padding=1),
        "1 bit": lambda: ops.binary_conv2d(x, signs, one, one, **flat, panels=panels[0]),
        "8 bit": lambda: ops.q8_conv2d(x, codes, one, one, **size, panels=panels[1]),
        "4 bit": lambda: ops.q4_conv2d(x, nibbles, one, one, **flat, panels=panels[2]),
    }


def seconds(call: Call) -> float:
    """Of one call, over an interval that begins warm."""
    call()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < INTERVAL_S:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


def measure(calls: dict[str, Call], threads: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Name to medians with one thread and with all."""
    for name, call in calls.items():
        found = []
        for count in (1, threads):
            torch.set_num_threads(count)
            found.append(call())
        if name != "float32" and not torch.equal(*found):
            raise SystemExit(f"{name}: {threads} threads give another result")
    times: dict[tuple[str, int], list[float]] = {(name, count): [] for name in calls for count in (1, threads)}
    for _ in range(rounds):
        for (name, count), values in times.items():
            torch.set_num_threads(count)
            values.append(seconds(calls[name]))
    return {name: tuple(statistics.median(times[name, count]) for count in (1, threads)) for name in calls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--markdown", action="store_true", help="print a table")
    arguments = parser.parse_args()
    every = {f"{m}, {k}, {n}": linears(m, k, n) for m, k, n in LINEARS}
    every |= {f"{c} channels, {side}x{side}, 3x3": convs(c, side) for c, side in CONVS}
    names = ["float32", "1 bit", "8 bit", "4 bit"]
    if arguments.markdown:
        print(f"| us on 1 thread (times faster on {arguments.threads}) | " + " | ".join(names) + " |")
        print("| --- " * (1 + len(names)) + "|")
    with torch.no_grad():
        for title, calls in every.items():
            times = measure(calls, arguments.threads, arguments.rounds)
            cells = [f"{1e6 * one:.1f} ({one / several:.2f}x)" for one, several in (times[name] for name in names)]
            print(f"| {title} | {' | '.join(cells)} |" if arguments.markdown else f"{title:36s}{'  '.join(cells)}")


if __name__ == "__main__":
    sys.exit(main())
