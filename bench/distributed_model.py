"""Bytes and seconds of a gradient's reduction by arithmetic, from 8 to 1,024 ranks, and a simulation with stragglers.

python bench/distributed_model.py [--weights N] [--gigabits G] [--latency US] [--compute MS] [--jitter S] [--slow P]
    [--check FOLDER_OF_MNIST]

The model: W ranks, N weights, a link of B bytes a second into and out of each rank, a us of latency a message. A ring
sends 2 (W-1)/W of the bytes in 2 (W-1) messages one after another. Ours sends N (W-1)/W bytes twice: shards to their
ranks, W-1 messages at once of which one's latency counts, and a ring of W-1 messages that gathers; besides two
reductions of a few bytes a bucket, 2 log2(W) latencies each. Links are full duplex and no switch is a bottleneck.

The simulation: a rank's backward pass takes `compute` times a lognormal factor (sigma `jitter`), and is slower by half
with probability `slow`; a bucket is reduced once the last rank has it and the bucket before is through; nothing else is
in the way. Mean of 200 steps. `--check` counts the bytes of 2, 4 and 8 processes here beside the model's.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch

BYTES = {"float32": 4, "bf16": 2, "int8": 1}
WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024)


def bytes_of_a_rank(method: str, world: int, weights: float) -> float:
    """What a rank sends in a step."""
    return 2 * BYTES[method] * weights * (world - 1) / world


def seconds_of_a_bucket(method: str, world: int, weights: float, rate: float, latency: float) -> float:
    wire = bytes_of_a_rank(method, world, weights) / rate
    if method == "int8":
        return wire + latency * (1 + (world - 1) + 2 * 2 * math.log2(world))
    return wire + latency * 2 * (world - 1)


def simulate(method: str, world: int, a: argparse.Namespace, steps: int = 200) -> float:
    """Mean seconds from the start of the backward pass to the last gradient on the last rank."""
    generator = torch.Generator().manual_seed(0)
    size = a.bucket * 1e6
    buckets = max(1, round(a.weights / size))
    once = seconds_of_a_bucket(method, world, a.weights / buckets, a.gigabits * 1e9 / 8, a.latency * 1e-6)
    factor = torch.empty(steps, world).log_normal_(0, a.jitter, generator=generator)
    factor *= 1 + 0.5 * (torch.rand(steps, world, generator=generator) < a.slow)
    slowest = a.compute * 1e-3 * factor.amax(1)  # the last rank to have any bucket
    end = torch.zeros(steps)
    for bucket in range(buckets):
        end = torch.maximum(end, slowest * (bucket + 1) / buckets) + once
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
            job |= {"backend": "gloo", "net": "mlp-1"}
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
    parser.add_argument("--check", metavar="FOLDER_OF_MNIST")
    arguments = parser.parse_args()
    if arguments.check:
        import distributed_training as training

        training.own_network()
        check(arguments.check)
        return
    print("| ranks | " + " | ".join(f"{m}: GB a rank, ms alone, ms in a step" for m in BYTES) + " |")
    print("| --- " * (1 + len(BYTES)) + "|")
    for world in WORLDS:
        cells = []
        for method in BYTES:
            sent = bytes_of_a_rank(method, world, arguments.weights) / 1e9
            buckets = max(1, round(arguments.weights / (arguments.bucket * 1e6)))
            rate, latency = arguments.gigabits * 1e9 / 8, arguments.latency * 1e-6
            alone = buckets * seconds_of_a_bucket(method, world, arguments.weights / buckets, rate, latency)
            cells.append(f"{sent:.2f}, {1e3 * alone:,.0f}, {1e3 * simulate(method, world, arguments):,.0f}")
        print(f"| {world} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
