"""Training in several processes: all ranks hold the same bits, whatever users do between forward and step."""

import contextlib
import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from rank_trainings import assert_same, batch, mlp, same, state_of, step
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bie
from bie.distributed import IntegerReducer, RanksDifferError, reducer_of
from bie.distributed.checks import checksum
from bie.optim import DiodeMix, wide_gradients


@pytest.fixture(scope="module")
def ranks():
    two = Ranks(2)
    yield two
    two.close()


def train(rank, world, kind, options, when, steps=6):
    """Every rank begins with another seed, of the model and of the optimizer."""
    torch.manual_seed(10 + rank)
    model = mlp(kind, **options)
    if when == "before":
        bie.prepare(model)
    model = DistributedDataParallel(model, broadcast_buffers=False)
    if when == "after":
        bie.prepare(model)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99), seed=rank)
    before = copy.deepcopy(model.module.state_dict())
    for number in range(steps):
        step(model, optimizer, number, rank)
    state = state_of(model, optimizer)
    moved = [not torch.equal(before[name], state["model"][name]) for name in ("3.weight", "6.weight")]
    return state, moved, state["model"]["3.weight"].dtype


CASES = [("binary", {}), ("q8", {"latent": False}), ("q4", {"latent": False})]
LATENT = [("binary", {"latent": True}), ("q8", {}), ("q4", {})]


@pytest.mark.parametrize("when", ["before", "after", "never"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=lambda value: str(value))
def test_all_ranks_hold_the_same_bits(ranks, kind, options, when):
    answers = ranks(train, kind, options, when)
    assert_same(answers)
    _, moved, dtype = answers[0]
    assert dtype == torch.int8 and any(moved)


@pytest.mark.parametrize(("kind", "options"), LATENT, ids=lambda value: str(value))
def test_latent_layers_take_the_groups_step_sizes(ranks, kind, options):
    answers = ranks(train, kind, options, "never")
    assert_same(answers)
    assert answers[0][2] == torch.float32


def first_scales(rank, world):
    """The step sizes after a first step with a rate of 0, and the mean of each rank's inputs."""
    layer = bie.nn.BinaryLinear(12, 7)
    product = bie.nn.Q8MatMul()

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.product = layer, product

        def forward(self, x):
            y = self.layer(x)
            return self.product(y[None], y[None] + 1), y

    model = DistributedDataParallel(Both())
    x = batch(0, rank, rows=5 + 4 * rank)[0] * (1 + rank)
    out, y = model(x)
    out.sum().backward()
    scales = [layer.scale_a.detach().clone(), product.x_clip.detach().clone(), product.y_clip.detach().clone()]
    layer.scale_a.data.zero_()
    layer._guard_scales()  # the floor is a share of the group's value
    return scales, layer.scale_a.detach().clone(), x, y.detach()


def test_the_first_batch_is_the_groups(ranks):
    answers = ranks(first_scales)
    assert_same([answer[0] for answer in answers])
    xs, ys = ([answer[i] for answer in answers] for i in (2, 3))

    def mean(parts):
        return sum(part.double().abs().sum() for part in parts) / sum(part.numel() for part in parts)

    wanted = [2 * mean(xs), 2 / 11.269 * mean(ys), 2 / 11.269 * mean([y + 1 for y in ys])]
    assert [float(scale) for scale in answers[0][0]] == [float(value.float()) for value in wanted]
    assert float(answers[0][1]) == pytest.approx(0.03 * float(answers[0][0][0]))


# Operations of users between forward and step.


class TwoPaths(nn.Module):
    """A layer that a rank may skip, one that is shared, and a frozen one."""

    def __init__(self):
        super().__init__()
        self.first, self.shared = nn.Linear(12, 24), bie.nn.BinaryLinear(24, 24)
        self.twin = bie.nn.BinaryLinear(24, 24)
        self.skipped, self.never = bie.nn.BinaryLinear(24, 24), bie.nn.BinaryLinear(24, 24)
        self.frozen = bie.nn.BinaryLinear(24, 5)
        self.twin.weight = self.shared.weight
        self.frozen.weight_trainable = False

    def forward(self, x, skip):
        x = self.twin(self.shared(self.first(x)))
        x = x if skip else self.skipped(x)
        return self.frozen(x)


def train_two_paths(rank, world):
    torch.manual_seed(rank)
    model = TwoPaths()
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = DiodeMix(wrapped.parameters(), lr=1e-2, betas=(0.9, 0.99))
    frozen, never = model.frozen.weight.clone(), model.never.weight.clone()
    grads = []
    for number in range(4):
        x, y = batch(number, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(x, skip=(number + rank) % 2 == 0), y).backward()
        grads.append([None if w.grad is None else w.grad.clone() for w in (model.skipped.weight, model.never.weight)])
        optimizer.step()
    reducer_of(wrapped).check()
    kept = torch.equal(model.frozen.weight, frozen) and torch.equal(model.never.weight, never)
    return state_of(wrapped, optimizer), grads, kept, model.twin.weight is model.shared.weight


def test_unused_shared_and_frozen_layers(ranks):
    answers = ranks(train_two_paths)
    assert_same(answers)
    _, grads, kept, shared = answers[0]
    assert kept and shared
    assert all(skipped.dtype == torch.int8 and skipped.any() and never is None for skipped, never in grads)


def accumulate(rank, world, wide):
    torch.manual_seed(0)
    # Without batch statistics the sum of micro-batches is the batch.
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), bie.nn.BinaryLinear(24, 20), nn.Linear(20, 5)))
    layer = model.module[1]
    if wide:
        wide_gradients(model)
    x, y = batch(0, rank)
    model(x).sum().backward()  # the first batch, whose step sizes become the group's
    model.zero_grad()
    whole = nn.functional.cross_entropy(model(x), y, reduction="sum")
    whole.backward()
    wanted = layer.weight.grad.clone()
    model.zero_grad()
    for part, context in ((slice(0, 8), model.no_sync()), (slice(8, 16), contextlib.nullcontext())):
        with context:
            nn.functional.cross_entropy(model(x[part]), y[part], reduction="sum").backward()
    found = layer.weight.grad.clone()
    if wide:
        total = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        return wanted, found, float(total), layer.weight.grad.norm()
    return wanted, found


@pytest.mark.parametrize("wide", [False, True])
def test_micro_batches_add_up_before_they_are_reduced(ranks, wide):
    answers = ranks(accumulate, wide)
    assert_same(answers)
    wanted, found = answers[0][:2]
    if wide:
        torch.testing.assert_close(found, wanted)
        assert answers[0][2] > 1e-3 > float(answers[0][3])
    else:
        assert found.dtype == torch.int8 and (found.int() - wanted).abs().max() <= 1


def two_passes_without_zero_grad(rank, world):
    torch.manual_seed(0)
    model = DistributedDataParallel(bie.nn.BinaryLinear(12, 5))
    weight, grads = model.module.weight, []
    model(batch(0, rank)[0]).sum().backward()  # the first batch, whose step sizes become the group's
    for number in range(2):
        weight.grad = None
        model(batch(number, rank)[0]).square().sum().backward()
        grads.append(weight.grad.clone())
    weight.grad = None
    for number in range(2):
        model(batch(number, rank)[0]).square().sum().backward()
    return grads, weight.grad


def test_gradients_that_nobody_took_add_up_and_saturate(ranks):
    answers = ranks(two_passes_without_zero_grad)
    assert_same(answers)
    (first, second), both = answers[0]
    assert torch.equal(both, (first.int() + second).clamp(-128, 127).to(torch.int8))


def second_backward(rank, world):
    model = DistributedDataParallel(bie.nn.BinaryLinear(12, 5))
    loss = model(batch(0, rank)[0]).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward pass"):
        loss.backward()


def test_a_second_backward_pass_is_refused(ranks):
    ranks(second_backward)


def uneven(rank, world):
    torch.manual_seed(rank)
    model = DistributedDataParallel(mlp(), broadcast_buffers=False)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99), seed=rank)
    steps = [0, 5][rank] if world == 2 else rank
    with model.join():
        for number in range(steps):
            step(model, optimizer, number, rank)
    state = state_of(model, optimizer)
    step(model, optimizer, 9, rank)
    reducer_of(model).check()
    return state, {name: w.detach().clone() for name, w in model.module.named_parameters()}


def test_uneven_batches_join(ranks):
    answers = ranks(uneven)
    assert_same([answer[1] for answer in answers])
    assert_same([answer[0] for answer in answers])


def diverge(rank, world):
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp())
    reducer_of(model).check_every = 2
    optimizer = DiodeMix(model.parameters(), lr=1e-2)
    step(model, optimizer, 0, rank)
    if rank == 1:
        model.module[6].weight.data[0, 0].neg_()
    with pytest.raises(RanksDifferError, match=r"6\.weight: ranks \[1\] differ from rank 0"):
        step(model, optimizer, 1, rank)
    assert checksum(torch.tensor([1, 2], dtype=torch.int8)) != checksum(torch.tensor([2, 1], dtype=torch.int8))


def test_divergence_is_named(ranks):
    ranks(diverge)


def other_models(rank, world):
    """A layer is wider, missing or of another width on one rank."""
    for model in (
        nn.Sequential(bie.nn.BinaryLinear(12, 5 + rank)),
        nn.Sequential(bie.nn.BinaryLinear(12, 5), *([bie.nn.BinaryLinear(5, 3)] * rank)),
        nn.Sequential(bie.nn.BinaryLinear(12, 5) if rank else bie.nn.Q8Linear(12, 5, latent=False)),
    ):
        for wrap in (DistributedDataParallel, IntegerReducer):
            with pytest.raises(RanksDifferError, match=r"rank 0 has .* where rank 1 has"):
                wrap(model)


def test_ranks_with_other_models_are_told_so(ranks):
    ranks(other_models)


def two_models(rank, world):
    """One for both ranks, one for each by itself, and one in a group of its own."""
    torch.manual_seed(rank)
    alone = torch.distributed.new_group([rank], use_local_synchronization=True)
    models = [
        DistributedDataParallel(mlp(), broadcast_buffers=False),
        DistributedDataParallel(mlp(), process_group=alone),
    ]
    bie.distributed.train_alone(models[1])
    models.append(mlp())
    bie.distributed.train_alone(models[2])
    optimizers = [DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99)) for model in models]
    for number in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            step(model, optimizer, number, rank)
    return [(model.module if i < 2 else model)[3].weight.clone() for i, model in enumerate(models)]


def test_two_models_and_a_rank_by_itself(ranks):
    answers = ranks(two_models)
    both, *others = zip(*answers, strict=True)
    assert_same(both)
    assert not any(same(other) for other in others)


def wrap_twice(rank, world):
    """The wrapper that was made last reduces; the one before says so."""
    torch.manual_seed(rank)
    model = mlp()
    wrappers = [DistributedDataParallel(model, broadcast_buffers=False) for _ in range(2)]
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    for number in range(3):
        step(wrappers[1], optimizer, number, rank)
    with pytest.raises(RuntimeError, match="given to another reducer since"):
        wrappers[0](batch(3, rank)[0])
    return state_of(model, optimizer)


def test_a_model_that_is_wrapped_again(ranks):
    assert_same(ranks(wrap_twice))


def wrap_around(rank, world):
    """A wrapped model inside of another one."""
    torch.manual_seed(rank)
    inner = DistributedDataParallel(mlp(), broadcast_buffers=False)
    model = DistributedDataParallel(nn.Sequential(inner, nn.Linear(5, 5)), broadcast_buffers=False)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    for number in range(3):
        step(model, optimizer, number, rank)
    return state_of(model, optimizer)


def test_a_wrapper_around_a_wrapper(ranks):
    assert_same(ranks(wrap_around))


def train_in_threads(rank, world):
    """A model a thread, each in a group of its own."""
    torch.manual_seed(0)
    groups = [torch.distributed.new_group() for _ in range(2)]
    models = [DistributedDataParallel(mlp(), process_group=group) for group in groups]
    optimizers = [DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99)) for model in models]

    def train(model, optimizer):
        for number in range(4):
            step(model, optimizer, number, rank)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(train, *pair) for pair in zip(models, optimizers, strict=True)]:
            done.result()
    for model in models:
        reducer_of(model).check()
    return [model.module[3].weight.clone() for model in models]


def test_models_in_threads(ranks):
    assert_same(ranks(train_in_threads))


def train_by_hand(rank, world):
    """Without DistributedDataParallel: the reducer averages the floats too."""
    torch.manual_seed(rank)
    model = mlp()
    bie.prepare(model)
    floats = [weight for weight in model.parameters() if weight.requires_grad]
    reducer = IntegerReducer(model, floats=floats)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99), seed=rank)
    for number in range(4):
        step(model, optimizer, number, rank)
    reducer.check()
    with reducer.no_sync():
        nn.functional.cross_entropy(model(batch(7, rank)[0]), batch(7, rank)[1]).backward()
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def test_a_reducer_made_by_hand(ranks):
    assert_same(ranks(train_by_hand))


def train_by_majority(rank, world):
    """With accumulated passes, and one pass by codes between the others."""
    torch.manual_seed(rank)
    model = DistributedDataParallel(mlp(), broadcast_buffers=False)
    reducer = reducer_of(model)
    reducer.binary = "majority"
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99), seed=rank)
    grads = []
    for number in range(6):
        reducer.binary = "codes" if number == 4 else "majority"
        with model.no_sync():
            nn.functional.cross_entropy(model(batch(100 + number, rank)[0]), batch(100 + number, rank)[1]).backward()
        nn.functional.cross_entropy(model(batch(number, rank)[0]), batch(number, rank)[1]).backward()
        grads.append(model.module[3].weight.grad.clone())
        optimizer.step()
        optimizer.zero_grad()
    reducer.check()
    with pytest.raises(ValueError, match="binary: expected 'codes' or 'majority', got"):
        reducer.binary = "votes"
    return state_of(model, optimizer), grads


def test_signs_by_majority(ranks):
    answers = ranks(train_by_majority)
    assert_same(answers)
    *votes, codes, last = answers[0][1]
    for grad in (*votes, last):
        assert set(grad.unique().tolist()) == {-127, 127}
    assert len(codes.unique()) > 10


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.bag = bie.nn.BinaryEmbedding(9, 13, padding_idx=0), bie.nn.BinaryEmbeddingBag(9, 24)
        self.codes = bie.nn.WeightOnlyEmbedding(9, 13, bits=4, group_size=8)
        self.codes.set_weight_data(torch.randn(9, 13))
        self.weight_only = bie.nn.WeightOnlyLinear(13, 24, w_bit=4, dtype=torch.float32)
        self.weight_only.set_weight_data(torch.randn(24, 13))
        self.last = nn.Linear(24, 5)

    def forward(self, x):
        found = self.weight_only((self.table(x) + self.codes(x)).mean(1))
        return self.last(found + self.bag(x))


def train_tables(rank, world):
    torch.manual_seed(rank)
    model = DistributedDataParallel(Tables())
    optimizer = DiodeMix(model.parameters(), lr=1e-1, betas=(0.5, 0.6))
    generator = torch.Generator().manual_seed(rank)
    grads = []
    for _ in range(3):
        x = torch.randint(1, 6, (4, 3), generator=generator) + (rank if _ else 0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(4)).backward()
        tables = (model.module.table.qweight, model.module.bag.weight)
        grads.append([table.grad.to_dense() for table in tables] + [model.module.weight_only.qweight.grad.clone()])
        optimizer.step()
    return state_of(model, optimizer), grads


def test_tables_vote_and_weight_only_weights_take_the_mean(ranks):
    answers = ranks(train_tables)
    assert_same(answers)
    for votes in answers[0][1][0][:2]:
        assert set(votes.unique().tolist()) <= {-2.0, -1.0, 0.0, 1.0, 2.0} and votes.any()


def refuse(rank, world):
    layer = bie.nn.BinaryLinear(16, 8)
    layer(torch.randn(2, 16)).sum().backward()
    with pytest.raises(RuntimeError, match="would drift apart"):
        DiodeMix(layer.parameters()).step()


def test_gradients_that_nobody_reduces_are_refused(ranks):
    ranks(refuse)


def copies(rank, world):
    """A copy of a wrapped model is in no group, and its gradients are int8."""
    model = DistributedDataParallel(mlp())
    optimizer = DiodeMix(model.parameters(), lr=1e-2)
    step(model, optimizer, 0, rank)
    twin = copy.deepcopy(model.module)
    assert reducer_of(twin) is None and reducer_of(model) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin(batch(0, rank)[0]).sum().backward()
    assert twin[3].weight.grad.dtype == torch.int8


def test_copies_are_in_no_group(ranks):
    ranks(copies)
