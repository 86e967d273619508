"""Bytes and seconds of a gradient's reduction by arithmetic, from 8 to 1,024 ranks, and a simulation with stragglers.

python bench/distributed_model.py [--weights N] [--gigabits G] [--latency US] [--compute MS] [--jitter S] [--slow P]
    [--shape A] [--check FOLDER_OF_MNIST]

The model: W ranks, N weights, a link of B bytes a second into and out of each rank, a us of latency a message. A ring
sends 2 (W-1)/W of the bytes in 2 (W-1) messages one after another. Ours sends N (W-1)/W bytes twice (int8), or N/8
(1-bit weights by majority): shards to their ranks, W-1 messages at once of which one's latency counts, and a ring of
W-1 messages that gathers; besides two reductions of a few bytes a bucket, 2 log2(W) latencies each. Links are full
duplex and no switch is a bottleneck.

The simulation: a rank's backward pass takes `compute` times a lognormal factor (sigma `jitter`) and, by the kind of
stragglers, times 1 (`none`), 1.5 with probability `slow` (`rare`), or a Pareto number F >= 1, P(F > f) = f^-shape
(`heavy`), drawn anew for each rank and step; a bucket is reduced once the last rank has it and the bucket before is
through; nothing else is in the way. Mean of the steps. `--check` counts the bytes of 2, 4 and 8 processes here beside
the model's.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import torch

BYTES = {"float32": 4, "bf16": 2, "int8": 1, "majority": 1 / 8}  # of a weight, each way
OURS = ("int8", "majority")
STRAGGLERS = ("none", "rare", "heavy")
WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass
class Cluster:
    """What the model knows of a training and its machines; seconds, bytes a second."""

    weights: float = 1e9
    bucket: float = 25e6
    rate: float = 100e9 / 8
    latency: float = 10e-6
    compute: float = 0.4
    jitter: float = 0.02
    slow: float = 0.001
    shape: float = 10

    @property
    def buckets(self) -> int:
        return max(1, round(self.weights / self.bucket))


def bytes_of_a_rank(method: str, world: int, weights: float) -> float:
    """What a rank sends in a step."""
    return 2 * BYTES[method] * weights * (world - 1) / world


def seconds_of_a_bucket(method: str, world: int, c: Cluster) -> float:
    if world == 1:
        return 0.0
    wire = bytes_of_a_rank(method, world, c.weights / c.buckets) / c.rate
    messages = 1 + (world - 1) + 2 * 2 * math.log2(world) if method in OURS else 2 * (world - 1)
    return wire + c.latency * messages


def factors(stragglers: str, world: int, c: Cluster, steps: int) -> torch.Tensor:
    """[steps, world]: what a rank's backward pass takes, in units of `compute`."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.empty(steps, world).log_normal_(0, c.jitter, generator=generator) if c.jitter else torch.ones(1)
    drawn = torch.rand(steps, world, generator=generator, dtype=torch.float64)
    if stragglers == "rare":
        return factor * (1 + 0.5 * (drawn < c.slow))
    return factor * ((1 - drawn) ** (-1 / c.shape) if stragglers == "heavy" else torch.ones_like(drawn))


def simulate(method: str, world: int, c: Cluster, stragglers: str, steps: int = 200) -> float:
    """Mean seconds from the start of the backward pass to the last gradient on the last rank."""
    once = seconds_of_a_bucket(method, world, c)
    slowest = c.compute * factors(stragglers, world, c, steps).amax(1)  # the last rank to have any bucket
    end = torch.zeros(steps, dtype=torch.float64)
    for bucket in range(c.buckets):
        end = torch.maximum(end, slowest * (bucket + 1) / c.buckets) + once
    return float(end.mean())


def check(folder: str) -> None:
    """The counted bytes of two inner layers of 512 x 512, and the model's."""
    import distributed_training as training

    width = 512
    weights = 2 * width * width
    print("| processes | method | counted, bytes a step | model | counted / model |\n" + "| --- " * 5 + "|")
    for world in (2, 4, 8):
        for method, name in (("ours", "int8"), ("float32", "float32")):
            job: dict[str, Any] = {"data": folder, "epochs": 1, "steps": 13, "batch": 64, "width": width, "seed": 0}
            job |= {"backend": "gloo", "net": "mlp-1", "test": False}
            all_of_it, rest = (training.run(world, job | {"method": m})["bytes"] for m in (method, "frozen"))
            model = world * bytes_of_a_rank(name, world, weights)
            found = all_of_it - rest
            print(f"| {world} | {name} | {found:,.0f} | {model:,.0f} | {found / model:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=float, default=1e9)
    parser.add_argument("--bucket", type=float, default=25, help="millions of weights")
    parser.add_argument("--gigabits", type=float, default=100, help="a second, of a rank's link")
    parser.add_argument("--latency", type=float, default=10, help="us a message")
    parser.add_argument("--compute", type=float, default=400, help="ms of a backward pass")
    parser.add_argument("--jitter", type=float, default=0.02)
    parser.add_argument("--slow", type=float, default=0.001, help="share of ranks that are slower by half in a step")
    parser.add_argument("--shape", type=float, default=10, help="of the heavy tail")
    parser.add_argument("--check", metavar="FOLDER_OF_MNIST")
    a = parser.parse_args()
    if a.check:
        import distributed_training as training

        training.own_network()
        check(a.check)
        return
    rate, latency, compute = a.gigabits * 1e9 / 8, a.latency * 1e-6, a.compute * 1e-3
    c = Cluster(a.weights, a.bucket * 1e6, rate, latency, compute, a.jitter, a.slow, a.shape)
    columns = [f"{method}: GB a rank, ms alone" for method in BYTES]
    columns += [f"ms in a step, {stragglers}: {', '.join(BYTES)}" for stragglers in STRAGGLERS]
    print("| ranks | " + " | ".join(columns) + " |\n" + "| --- " * (1 + len(columns)) + "|")
    for world in WORLDS:
        cells = []
        for method in BYTES:
            alone = c.buckets * seconds_of_a_bucket(method, world, c)
            cells.append(f"{bytes_of_a_rank(method, world, c.weights) / 1e9:.2f}, {1e3 * alone:,.0f}")
        for stragglers in STRAGGLERS:
            cells.append(", ".join(f"{1e3 * simulate(method, world, c, stragglers):,.0f}" for method in BYTES))
        print(f"| {world} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
