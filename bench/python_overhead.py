"""What a call of a small layer costs from Python: 64x64 at batch 1, one thread, pinned, interleaved, medians.

python bench/python_overhead.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import timeit
from collections.abc import Callable

import torch
from torch import nn

from bie.nn import BinaryLinear, Q4Linear, Q8Linear

CALLS = 500


class Identity(nn.Module):
    """What torch itself takes to call a module that does nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def contestants(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    linear = nn.Linear(64, 64).eval()
    calls: dict[str, Callable[[], object]] = {"nn.Linear": lambda: linear(x)}
    for kind in (BinaryLinear, Q8Linear, Q4Linear):
        layer = kind(64, 64)
        layer(x)  # sets the scales
        layer.eval()(x)  # packs
        calls[kind.__name__] = lambda layer=layer: layer(x)
    nothing = Identity()
    weight, bias = linear.weight, linear.bias
    calls["(nn.functional.linear)"] = lambda: nn.functional.linear(x, weight, bias)
    calls["(an empty module)"] = lambda: nothing(x)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=101)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with torch.no_grad():
        calls = contestants(torch.randn(1, 64))
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                times[name].append(timeit.timeit(call, number=CALLS) / CALLS * 1e6)
    base = statistics.median(times["nn.Linear"])
    print(f"{'call at batch 1':24s}{'us':>8s}{'of nn.Linear':>14s}")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:24s}{middle:8.2f}{middle / base:13.2f}x")


if __name__ == "__main__":
    main()
