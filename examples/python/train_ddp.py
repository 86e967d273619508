"""An MLP with integer weights trained by several processes; restarted, it goes on from its last checkpoint.

torchrun --nproc-per-node 2 --max-restarts 3 examples/python/train_ddp.py [--data FOLDER_OF_MNIST] [--bits 1|4|8]
    [--epochs N] [--batch N] [--out FILE] [--every STEPS]

The batch is the group's: a rank takes its share. Rank 0 writes FILE every so many steps; any number of ranks reads it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from datasets import accuracy, load
from mnist_mlp import LAYERS
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import bie


def mlp(inputs: int, width: int, bits: int) -> nn.Sequential:
    options = {} if bits == 1 else {"latent": False}  # 1-bit weights are integers unless asked otherwise
    layer = LAYERS[bits]
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.PReLU()),
        *(layer(width, width, **options), nn.BatchNorm1d(width), nn.PReLU()),
        *(layer(width, width, **options), nn.BatchNorm1d(width), nn.PReLU()),
        nn.Linear(width, 10),
    )


def save(path: Path, state: dict[str, Any]) -> None:
    """All or nothing: a process may be killed at any time."""
    beside = path.with_name(path.name + ".part")
    torch.save(state, beside)
    os.replace(beside, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of MNIST's four IDX files; the digits of scikit-learn without it")
    parser.add_argument("--bits", type=int, default=1, choices=sorted(LAYERS))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("mlp_ddp.pt"))
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    arguments = parser.parse_args()

    cuda = torch.cuda.is_available()
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    train, test = load(arguments.data)
    train, test = (TensorDataset(*(tensor.to(device) for tensor in part.tensors)) for part in (train, test))
    images, labels = train.tensors

    torch.manual_seed(0)
    model = mlp(images[0].numel(), arguments.width, arguments.bits).to(device)
    wrapped = DistributedDataParallel(model)
    optimizer = bie.optim.DiodeMix(wrapped.parameters(), lr=1e-3, betas=(0.9, 0.999))
    step, per_epoch = 0, len(labels) // arguments.batch
    if arguments.out.exists():
        state = torch.load(arguments.out, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        if rank == 0:
            print(f"goes on after step {step}", flush=True)
    while step < arguments.epochs * per_epoch:
        # The samples of a step are a function of its number alone.
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(step // per_epoch)).to(device)
        begin = step % per_epoch * arguments.batch
        own = order[begin : begin + arguments.batch].tensor_split(world)[rank]
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(images[own]), labels[own]).backward()
        optimizer.step()
        step += 1
        if rank == 0 and (step % arguments.every == 0 or step == arguments.epochs * per_epoch):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save(arguments.out, state)
        if rank == 0 and step % per_epoch == 0:
            print(f"epoch {step // per_epoch}: test accuracy {100 * accuracy(model, test):.2f} %", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
