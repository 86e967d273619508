"""What a group of ranks computes of given gradients: sums of codes, majorities of signs."""

import pytest
import torch
from rank_trainings import assert_same
from ranks import Ranks
from torch import nn

from bie.distributed import sum_codes
from bie.distributed.exchange import majority_signs


@pytest.fixture(scope="module")
def ranks():
    two = Ranks(2)
    yield two
    two.close()


SPLITS = [[1, 0], [0, 1], [0.5, 0.5], [0.25, 0.75]]


def reduce_parts(rank, world, split):
    """Sums given integers, of which this rank has its share."""
    generator = torch.Generator().manual_seed(3)
    found = []
    for size in (1, 7, 64, 1000):
        whole = torch.randint(-126, 127, (size,), generator=generator)
        first = (whole * split[0]).int() if split[0] < 1 else whole
        found.append((whole, (first if rank == 0 else whole - first).to(torch.int8)))
    wholes, parts = zip(*found, strict=True)
    return list(wholes), sum_codes(parts, [part.numel() for part in parts], torch.distributed.group.WORLD)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_a_sum_does_not_depend_on_how_it_is_split(ranks, split):
    answers = ranks(reduce_parts, split)
    assert_same(answers)
    for whole, codes in zip(*answers[0], strict=True):
        assert torch.equal(codes, torch.ops.bie.int8_grad(whole.float()))


def reduce_floats(rank, world, seed, broken):
    generator = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(world, size, generator=generator) * 10.0**power for size, power in ((5, 0), (300, -30), (9, 3))
    ]
    for part in parts:
        if broken is not None:
            part[0, 0] = broken
    group = torch.distributed.group.WORLD
    return parts, sum_codes([part[rank].clone() for part in parts], [part.size(1) for part in parts], group)


@pytest.mark.parametrize("seed", [0, 1])
def test_float_parts_are_coded_by_the_largest_magnitude_of_the_group(ranks, seed):
    answers = ranks(reduce_floats, seed, None)
    assert_same(answers)
    for part, codes in zip(*answers[0], strict=True):
        amax = part.abs().max()
        coded = sum(torch.ops.bie.amax_quantize(row, amax)[0] for row in part)
        assert torch.equal(codes, torch.ops.bie.int8_grad(coded))
        exact = torch.ops.bie.int8_grad(part.sum(0)).float()
        assert nn.functional.cosine_similarity(codes.float(), exact, dim=0) > 0.999


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_on_one_rank_is_no_step(ranks, broken):
    answers = ranks(reduce_floats, 0, broken)
    assert_same(answers)
    assert not any(codes.any() for codes in answers[0][1])


SIZES = [3, 64, 1000, 8]


def vote(rank, world, seed, absent, broken):
    """The ranks' float parts, one of which a rank has not, and what the majority is."""
    parts = [torch.randn(world, size, generator=torch.Generator().manual_seed(seed + size)) for size in SIZES]
    own = [part[rank].clone() for part in parts]
    if rank == absent:
        own[1] = None
    if rank == 1 and broken:
        own[2][5] = float("nan")
    return parts, majority_signs(own, SIZES, torch.distributed.group.WORLD)


def majority(parts, absent):
    """The formula, element by element, in float64."""
    world, size = parts.shape
    votes = torch.where(parts >= 0, 1.0, -1.0).double()
    if absent is not None:
        votes[absent] = 0
    extra = votes[torch.arange(size) % world, torch.arange(size)]
    return torch.where(2 * votes.sum(0) + extra >= 0, 127, -127).to(torch.int8)


@pytest.mark.parametrize("absent", [None, 0, 1])
@pytest.mark.parametrize("broken", [False, True])
def test_signs_are_what_most_ranks_vote(ranks, absent, broken):
    answers = ranks(vote, 0, absent, broken)
    assert_same(answers)
    for i, (parts, codes) in enumerate(zip(*answers[0], strict=True)):
        wanted = majority(parts, absent if i == 1 else None)
        assert torch.equal(codes, torch.zeros_like(wanted) if broken and i == 2 else wanted)


@pytest.mark.parametrize("world", [3, 4])
def test_signs_of_more_ranks(world):
    more = Ranks(world)
    try:
        answers = more(vote, 1, None, False)
    finally:
        more.close()
    assert_same(answers)
    for parts, codes in zip(*answers[0], strict=True):
        assert torch.equal(codes, majority(parts, None))
