"""Trainings of several processes that are saved, loaded and sharded."""

import copy

import pytest
import torch
from rank_trainings import assert_same, batch, differences, mlp, state_of, step
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bie
from bie.distributed import IntegerReducer
from bie.optim import DiodeMix


@pytest.fixture(scope="module")
def ranks():
    two = Ranks(2)
    yield two
    two.close()


def save_and_go_on(rank, world, folder):
    """Trains 3 steps, saves twice, trains 2 more; what was saved and what came of it."""
    import torch.distributed.checkpoint as checkpoint

    torch.manual_seed(rank)
    model = DistributedDataParallel(mlp())
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99), seed=3)
    for number in range(3):
        step(model, optimizer, number, rank)
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(state, checkpoint_id=f"{folder}/shards")
    if rank == 0:
        torch.save(state, f"{folder}/whole.pt")
    for number in range(3, 5):
        step(model, optimizer, number, rank)
    return state_of(model, optimizer)


def load_and_go_on(rank, world, folder, kind):
    import torch.distributed.checkpoint as checkpoint

    torch.manual_seed(100 + rank)
    model = mlp()
    bie.prepare(model)
    optimizer = DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    saved = torch.load(f"{folder}/whole.pt", weights_only=True)
    if kind == "shards":
        state = copy.deepcopy(saved)
        for part in state["model"], *state["optimizer"]["state"].values():
            for value in part.values():
                value.zero_()
        state["optimizer"]["param_groups"] = saved["optimizer"]["param_groups"]
        checkpoint.load(state, checkpoint_id=f"{folder}/shards")
        assert differences(state, saved) == []
        saved = state
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    assert differences(state_of(model, optimizer), saved) == []
    if world > 1:
        model = DistributedDataParallel(model)
    for number in range(3, 5):
        step(model, optimizer, number, rank)
    return state_of(model, optimizer)


@pytest.mark.parametrize("kind", ["whole", "shards"])
def test_a_checkpoint_goes_on_to_the_bit(ranks, tmp_path, kind):
    went_on = ranks(save_and_go_on, str(tmp_path))
    assert_same(ranks(load_and_go_on, str(tmp_path), kind))
    loaded = ranks(load_and_go_on, str(tmp_path), kind)
    assert differences(went_on[0], loaded[0]) == []


def test_a_checkpoint_is_read_by_another_number_of_ranks(ranks, tmp_path):
    """To the bit: the loaded state is compared in the function."""
    ranks(save_and_go_on, str(tmp_path))
    load_and_go_on(0, 1, str(tmp_path), "whole")


# Sharded floats.


def train_sharded(rank, world):
    """fully_shard for the floats, the reducer for the rest; and the same training with everything replicated."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 24), bie.nn.BinaryLinear(24, 20), nn.Linear(20, 5))
        bie.prepare(model)
        return model

    sharded, whole = make(), make()
    mesh = init_device_mesh("cpu", (world,))
    kept = {weight for weight in sharded.parameters() if weight.dim() == 0 or not weight.is_floating_point()}
    reducer = IntegerReducer(sharded, floats=[weight for weight in kept if weight.requires_grad])
    for layer in (sharded[1], sharded):
        fully_shard(layer, mesh=mesh, ignored_params=kept)
    reducers = [
        reducer,
        IntegerReducer(whole, floats=[weight for weight in whole.parameters() if weight.requires_grad]),
    ]
    optimizers = [DiodeMix(model.parameters(), lr=1e-2, betas=(0.9, 0.99)) for model in (sharded, whole)]
    for number in range(4):
        for model, optimizer in zip((sharded, whole), optimizers, strict=True):
            step(model, optimizer, number, rank)
    for each in reducers:
        each.check()
    assert sharded[0].weight.to_local().size(0) == 24 // world and sharded[1].scale_a.dim() == 0
    full = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in sharded.state_dict().items()}
    return full, whole.state_dict()


def test_sharded_floats_beside_integers(ranks):
    answers = ranks(train_sharded)
    assert_same(answers)
    sharded, whole = answers[0]
    assert torch.equal(sharded["1.weight"], whole["1.weight"])
    torch.testing.assert_close(sharded, whole)


# Sharded moments.


def integer_and_float_optimizers(model):
    """torch's ZeroRedundancyOptimizer around DiodeMix for the integer weights, AdamW for the floats."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    integers = list(bie.optim.integer_parameters(model))
    known = {id(weight) for weight in integers}
    floats = [weight for weight in model.parameters() if id(weight) not in known]
    options = {"lr": 1e-2, "betas": (0.9, 0.99), "seed": 5}
    sharded = ZeroRedundancyOptimizer(integers, optimizer_class=DiodeMix, **options)
    return sharded, torch.optim.AdamW(floats, lr=1e-2)


def train_with_sharded_moments(rank, world, folder, load):
    """Trains 3 steps and saves, or loads; then trains 2 more."""
    torch.manual_seed(rank)
    model = DistributedDataParallel(mlp())
    optimizers = integer_and_float_optimizers(model)

    def train(numbers):
        for number in numbers:
            x, y = batch(number, rank)
            for optimizer in optimizers:
                optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            for optimizer in optimizers:
                optimizer.step()

    if load:
        saved = torch.load(f"{folder}/state.pt", weights_only=True)
        model.module.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
    else:
        train(range(3))
        optimizers[0].consolidate_state_dict(to=0)
        if rank == 0:
            states = [optimizer.state_dict() for optimizer in optimizers]
            torch.save({"model": model.module.state_dict(), "optimizers": states}, f"{folder}/state.pt")
    train(range(3, 5))
    bie.distributed.reducer_of(model).check()
    return model.module.state_dict(), len(optimizers[0].optim.state)


def test_a_rank_holds_the_moments_of_its_weights(ranks, tmp_path):
    whole = ranks(train_with_sharded_moments, str(tmp_path), False)
    assert [held for _, held in whole] == [1, 1]  # of two weights
    assert differences(whole[0][0], whole[1][0]) == []
    loaded = ranks(train_with_sharded_moments, str(tmp_path), True)
    assert differences(loaded, whole) == []
