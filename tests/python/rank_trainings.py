"""What ranks of tests train, and how their answers are compared."""

import copy

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bie
from bie.distributed.checks import checksum


def differences(first, other, place=""):
    """Where what two ranks returned differs, to the bit."""
    if isinstance(first, dict) and first.keys() == other.keys():
        return [found for key in first for found in differences(first[key], other[key], f"{place}.{key}")]
    if isinstance(first, list | tuple) and len(first) == len(other):
        pairs = enumerate(zip(first, other, strict=True))
        return [found for i, (one, two) in pairs for found in differences(one, two, f"{place}[{i}]")]
    if isinstance(first, torch.Tensor):
        equal = other.dtype == first.dtype and first.shape == other.shape and checksum(first) == checksum(other)
    else:
        equal = first == other
    return [] if equal else [place]


def same(answers):
    return not any(differences(answers[0], answer) for answer in answers[1:])


def assert_same(answers):
    for answer in answers[1:]:
        assert differences(answers[0], answer) == []


def state_of(model, optimizer):
    model = model.module if isinstance(model, DistributedDataParallel) else model
    return {
        "model": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "optimizer": copy.deepcopy(optimizer.state_dict()),
    }


def mlp(kind="binary", **options):
    if kind == "binary":
        inner = [bie.nn.BinaryLinear(24, 20, **options), bie.nn.BinaryLinear(20, 16, **options)]
    else:
        layer = {"q8": bie.nn.Q8Linear, "q4": bie.nn.Q4Linear}[kind]
        inner = [layer(24, 20, **options), layer(20, 16, **options)]
    return nn.Sequential(
        *(nn.Linear(12, 24), nn.BatchNorm1d(24, track_running_stats=False), nn.PReLU()),
        *(inner[0], nn.BatchNorm1d(20, track_running_stats=False), nn.PReLU()),
        *(inner[1], nn.BatchNorm1d(16, track_running_stats=False), nn.PReLU()),
        nn.Linear(16, 5),
    )


def batch(number, rank, rows=16):
    generator = torch.Generator().manual_seed(1000 * number + rank)
    return torch.randn(rows, 12, generator=generator), torch.randint(0, 5, (rows,), generator=generator)


def step(model, optimizer, number, rank):
    x, y = batch(number, rank)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
