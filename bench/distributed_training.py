"""Trainings in several processes: accuracy, bytes on the wire, seconds, beside torch's own DistributedDataParallel.

python bench/distributed_training.py [--data FOLDER_OF_MNIST] [--nets mlp-1,mlp-8,lenet-4,vgg-1] [--ranks 1,2,4]
    [--methods ours,majority,frozen,float32,bf16,powersgd] [--seeds N] [--epochs N] [--steps N]
    [--untested] [--backend gloo|nccl] [--markdown]

A net is an architecture and the width of its inner layers in bits, which DiodeMix trains as integers (method `ours`;
`majority`: 1-bit ones by votes; `frozen` leaves them as they are); the other methods train its float twin with AdamW.
The batch is the group's: a rank takes its share. Each process has one thread. Bytes are those that /proc/net/dev counts
on the loopback of a network namespace of the run's own, a step, all ranks together, after the first 3 steps; where no
namespace can be had they are left out. Milliseconds are the median step's on the slowest rank, the least of the seeds;
CPU milliseconds are what all threads of the busiest rank computed, a step, whatever else the machine did.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "python"))
from datasets import accuracy, load

import bie
from bie.train import nets
from bie.train.config import NetConfig

WARM = 3
OURS = ("ours", "majority", "frozen")
LINEAR = {1: bie.nn.BinaryLinear, 4: bie.nn.Q4Linear, 8: bie.nn.Q8Linear}
CONV = {1: bie.nn.BinaryConv2d, 4: bie.nn.Q4Conv2d, 8: bie.nn.Q8Conv2d}


def mlp(linear: Any, conv: Any, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(784, width), nn.BatchNorm1d(width), nn.PReLU()),
        *(linear(width, width), nn.BatchNorm1d(width), nn.PReLU()),
        *(linear(width, width), nn.BatchNorm1d(width), nn.PReLU()),
        nn.Linear(width, 10),
    )


def lenet(linear: Any, conv: Any, width: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.BatchNorm2d(32), nn.PReLU(), nn.MaxPool2d(2)),
        *(conv(32, 64, 5, padding=2), nn.BatchNorm2d(64), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(linear(64 * 49, width), nn.BatchNorm1d(width), nn.PReLU()),
        nn.Linear(width, 10),
    )


def vgg(net: str, width: int, integers: bool) -> nn.Module:
    bits = int(net) if integers else 32
    weights = "int8" if integers else "usual"
    return nets.build(NetConfig("vgg-small", bits, (1, 28, 28), width=width, weights=weights))


def build(net: str, method: str, width: int) -> nn.Module:
    architecture, _, bits = net.partition("-")
    if architecture == "vgg":
        return vgg(bits, width, method in OURS)
    make = {"mlp": mlp, "lenet": lenet}[architecture]
    if method in OURS:
        more = {} if bits == "1" else {"latent": False}
        return make(
            lambda *sizes: LINEAR[int(bits)](*sizes, **more),
            lambda *sizes, **options: CONV[int(bits)](*sizes, **options, **more),
            width,
        )
    return make(nn.Linear, nn.Conv2d, width)


def inner(model: nn.Module) -> list[nn.Module]:
    """The layers between the first and the last that have a weight matrix."""
    found = [m for m in model.modules() if isinstance(getattr(m, "weight", None), torch.Tensor) and m.weight.dim() > 1]
    return found[1:-1]


def optimizer_of(model: nn.Module, method: str) -> torch.optim.Optimizer:
    if method not in OURS:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    signs = [m.weight for m in inner(model) if isinstance(m, bie.nn.BinaryLinear | bie.nn.BinaryConv2d)]
    others = [p for p in model.parameters() if all(p is not sign for sign in signs)]
    groups = [{"params": others, "lr": 1e-3, "betas": (0.9, 0.999)}]
    if signs:
        groups.append({"params": signs, "lr": 1e-2, "betas": (0.99, 0.999)})
    return bie.optim.DiodeMix(groups)


def wire_bytes() -> int | None:
    """What the loopback has sent so far, in a network namespace of our own."""
    if "BIE_OWN_NETWORK" not in os.environ:
        return None
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[9])


def work(rank: int, world: int, job: dict[str, Any], store: str, answers: str) -> None:
    torch.set_num_threads(1)
    cuda = job["backend"] == "nccl"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        job["backend"],
        store=torch.distributed.FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=300),
    )
    torch.manual_seed(job["seed"])
    train, test = load(job["data"])
    images, labels = (tensor.to(device) for tensor in train.tensors)
    model = build(job["net"], job["method"], job["width"]).to(device)
    bie.prepare(model)
    if job["method"] == "frozen":
        for layer in inner(model):
            layer.weight.requires_grad_(False)
    optimizer = optimizer_of(model, job["method"])
    # PowerSGD's collectives of several buckets overtake each other on Gloo.
    buckets = {"bucket_cap_mb": 1000} if job["method"] == "powersgd" else {}
    wrapped: nn.Module = DistributedDataParallel(model, broadcast_buffers=False, **buckets) if world > 1 else model
    if world > 1 and job["method"] == "majority":
        bie.distributed.reducer_of(wrapped).binary = "majority"
    if world > 1 and job["method"] == "bf16":
        wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if world > 1 and job["method"] == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=WARM)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    share = job["batch"] // world
    steps = len(labels) // job["batch"] * job["epochs"]
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order, times, sent, number, busy = torch.Generator().manual_seed(job["seed"]), [], None, 0, 0.0
    for _ in range(job["epochs"]):
        for batch in torch.randperm(len(labels), generator=order)[: steps // job["epochs"] * job["batch"]].split(
            job["batch"]
        ):
            if job["steps"] and number == job["steps"]:
                break
            if number == WARM:
                busy = time.process_time()
            if number == WARM and world > 1:
                torch.distributed.barrier()
                sent = wire_bytes()
                torch.distributed.barrier()
            own = batch[rank * share : (rank + 1) * share].to(device)
            begin = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(images[own]), labels[own]).backward()
            optimizer.step()
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
            scheduler.step()
            number += 1
    answer: dict[str, Any] = {"seconds": statistics.median(times[WARM:] or times), "steps": number}
    answer["busy"] = (time.process_time() - busy) / max(number - WARM, 1)
    if world > 1:
        torch.distributed.barrier()
        if sent is not None:
            answer["bytes"] = (wire_bytes() - sent) / max(number - WARM, 1)
        if (reducer := bie.distributed.reducer_of(wrapped)) is not None:
            reducer.check()
    if rank == 0 and job["test"]:
        answer["accuracy"] = 100 * accuracy(model.cpu(), test)
    Path(f"{answers}.{rank}").write_text(json.dumps(answer))
    torch.distributed.destroy_process_group()


def run(world: int, job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = (world, job, f"{folder}/store", f"{folder}/answer")
        torch.multiprocessing.start_processes(work, arguments, nprocs=world, start_method="spawn")
        answers = [json.loads(Path(f"{folder}/answer.{rank}").read_text()) for rank in range(world)]
    return answers[0] | {name: max(answer[name] for answer in answers) for name in ("seconds", "busy")}


def own_network() -> None:
    """Goes on in a network namespace of its own, whose loopback carries nothing else."""
    if "BIE_OWN_NETWORK" in os.environ:
        return
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        print("no network namespace: bytes are left out", file=sys.stderr)
        return
    os.environ |= {"BIE_OWN_NETWORK": "1", "GLOO_SOCKET_IFNAME": "lo"}
    again = 'ip link set lo up && exec "$@"'
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", again, "sh", sys.executable, *sys.argv])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of MNIST's four IDX files")
    parser.add_argument("--nets", default="mlp-1,mlp-4,mlp-8,lenet-4")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--methods", default="ours")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="no more than so many steps of a training")
    parser.add_argument("--batch", type=int, default=256, help="of the whole group")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--untested", dest="test", action="store_false", help="leave the accuracy out")
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"])
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    if arguments.backend == "gloo":
        own_network()
    if arguments.markdown:
        print("| net | method | ranks | accuracy, % | bytes a step | ms a step | CPU ms |\n" + "| --- " * 7 + "|")
    common = {
        name: getattr(arguments, name) for name in ("data", "epochs", "steps", "batch", "width", "backend", "test")
    }
    for net in arguments.nets.split(","):
        for method in arguments.methods.split(","):
            for world in map(int, arguments.ranks.split(",")):
                found = [run(world, common | {"net": net, "method": method, "seed": s}) for s in range(arguments.seeds)]
                row = {
                    "net": net,
                    "method": method,
                    "ranks": world,
                    "accuracy": [round(answer["accuracy"], 2) for answer in found if "accuracy" in answer],
                    "bytes": found[0].get("bytes"),
                    "ms": 1e3 * min(answer["seconds"] for answer in found),
                    "cpu ms": 1e3 * min(answer["busy"] for answer in found),
                }
                if arguments.markdown:
                    sent = "" if row["bytes"] is None else f"{row['bytes']:,.0f}"
                    right = ", ".join(f"{a:.2f}" for a in row["accuracy"])
                    print(
                        f"| {net} | {method} | {world} | {right} | {sent} | {row['ms']:.1f} | {row['cpu ms']:.1f} |",
                        flush=True,
                    )
                else:
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
