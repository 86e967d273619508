"""Training on two GPUs through NCCL: the sums are the law's, and both ranks hold the same bits."""

import copy

import distributed_test as cases
import pytest
import torch
from distributed_sums_test import majority
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bie
from bie.distributed import RanksDifferError, reducer_of, sum_codes
from bie.distributed.exchange import majority_signs
from bie.optim import DiodeMix, wide_gradients

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.fixture(scope="module")
def ranks():
    two = Ranks(2, "nccl")
    yield two
    two.close()


def on_cpu(value):
    if isinstance(value, dict):
        return {key: on_cpu(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [on_cpu(part) for part in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value


def reduce_floats(rank, world, broken):
    generator = torch.Generator().manual_seed(5)
    parts = [torch.randn(world, size, generator=generator) * 10.0**power for size, power in ((5, 0), (3001, -30))]
    if broken is not None:
        parts[1][0, 7] = broken
    mine = [part[rank].cuda() for part in parts]
    return parts, on_cpu(sum_codes(mine, [5, 3001], torch.distributed.group.WORLD, "cuda"))


@pytest.mark.parametrize("broken", [None, float("nan"), float("inf")])
def test_a_sum_is_the_laws(ranks, broken):
    answers = ranks(reduce_floats, broken)
    cases.assert_same([answer[1] for answer in answers])
    for i, (part, codes) in enumerate(zip(*answers[0], strict=True)):
        if i == 1 and broken is not None:
            assert not codes.any()
            continue
        coded = sum(torch.ops.bie.amax_quantize(row, part.abs().max())[0] for row in part)
        assert torch.equal(codes, torch.ops.bie.int8_grad(coded))


def vote(rank, world, broken):
    generator = torch.Generator().manual_seed(6)
    parts = [torch.randn(world, size, generator=generator) for size in (5, 3001)]
    mine = [part[rank].cuda() for part in parts]
    if broken and rank == 1:
        mine[1][7] = float("nan")
    return parts, on_cpu(majority_signs(mine, [5, 3001], torch.distributed.group.WORLD, "cuda"))


@pytest.mark.parametrize("broken", [False, True])
def test_a_majority_is_the_laws(ranks, broken):
    answers = ranks(vote, broken)
    cases.assert_same([answer[1] for answer in answers])
    for i, (part, codes) in enumerate(zip(*answers[0], strict=True)):
        wanted = majority(part, None)
        assert torch.equal(codes, torch.zeros_like(wanted) if i == 1 and broken else wanted)


def step(model, optimizer, number, rank):
    x, y = (tensor.cuda() for tensor in cases.batch(number, rank))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def train(rank, world, kind, options, wide=False):
    torch.manual_seed(10 + rank)
    model = DistributedDataParallel(cases.mlp(kind, **options).cuda(), device_ids=[rank])
    if wide:
        wide_gradients(model)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99), seed=rank)
    before = copy.deepcopy(model.module.state_dict())
    for number in range(6):
        step(model, optimizer, number, rank)
    reducer_of(model).check()
    moved = not torch.equal(before["3.weight"], model.module.state_dict()["3.weight"])
    return on_cpu(cases.state_of(model, optimizer)), moved


@pytest.mark.parametrize(("kind", "options"), cases.CASES + cases.LATENT, ids=lambda value: str(value))
def test_both_hold_the_same_bits(ranks, kind, options):
    answers = ranks(train, kind, options)
    cases.assert_same(answers)
    assert answers[0][1]


def test_wide_gradients(ranks):
    cases.assert_same(ranks(train, "binary", {}, True))


def big(rank, world):
    """Several buckets, sent while the backward pass goes on."""
    torch.manual_seed(rank)
    layers = [bie.nn.BinaryLinear(2048, 2048) for _ in range(6)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[rank])
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    for number in range(5):
        generator = torch.Generator().manual_seed(10 * number + rank)
        optimizer.zero_grad()
        model(torch.randn(32, 2048, generator=generator).cuda()).square().mean().backward()
        optimizer.step()
    reducer_of(model).check()
    return [on_cpu(layer.weight.detach()) for layer in layers]


def test_several_buckets(ranks):
    cases.assert_same(ranks(big))


def tables(rank, world):
    torch.manual_seed(rank)
    model = DistributedDataParallel(cases.Tables().cuda(), device_ids=[rank])
    optimizer = DiodeMix(model.parameters(), lr=1e-1, betas=(0.5, 0.6))
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        x = torch.randint(1, 9, (4, 3), generator=generator).cuda()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(4).cuda()).backward()
        optimizer.step()
    return on_cpu(cases.state_of(model, optimizer))


def test_tables(ranks):
    cases.assert_same(ranks(tables))


def diverge(rank, world):
    torch.manual_seed(0)
    model = DistributedDataParallel(cases.mlp().cuda(), device_ids=[rank])
    optimizer = DiodeMix(model.parameters(), lr=1e-2)
    step(model, optimizer, 0, rank)
    if rank == 1:
        model.module[6].weight.data[0, 0].neg_()
    with pytest.raises(RanksDifferError, match=r"6\.weight: ranks \[1\] differ from rank 0"):
        reducer_of(model).check()


def test_divergence_is_named(ranks):
    ranks(diverge)
