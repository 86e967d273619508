"""Passes that end early in several processes: gradients that were discarded, backward passes that raised."""

import pytest
import torch
from ranks import Ranks
from torch import nn

import bie
from bie.distributed import IntegerReducer
from bie.optim import wide_gradients

KINDS = ["binary", "q8", "wide", "w4", "table", "floats", "sparse"]


@pytest.fixture(scope="module")
def ranks():
    two = Ranks(2)
    yield two
    two.close()


class Bomb(torch.autograd.Function):
    """What raises in the backward pass, where it is armed."""

    @staticmethod
    def forward(ctx, x, armed):
        ctx.armed = armed
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if ctx.armed:
            raise FloatingPointError("a user's function raised")
        return grad, None


class Net(nn.Module):
    """Two layers of a kind with a bomb between them: the later one has its gradient when the earlier one has none."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(3)
        if kind in ("table", "sparse"):
            options = {"sparse": kind == "sparse"}
            self.first = bie.nn.WeightOnlyEmbedding(9, 12, bits=4, group_size=4, **options)
            self.first.set_weight_data(torch.randn(9, 12))
        else:
            self.first = nn.Linear(12, 12)
        if kind in ("w4", "table", "sparse"):
            self.last = bie.convert(nn.Sequential(nn.Linear(12, 12)), "w4", requires_grad=True).model[0]
        elif kind == "floats":
            self.last = nn.Linear(12, 12)
        else:
            self.last = bie.nn.Q8Linear(12, 12, latent=False) if kind == "q8" else bie.nn.BinaryLinear(12, 12)
        self.middle = bie.nn.BinaryLinear(12, 12)
        self.indices = kind in ("table", "sparse")
        self.train()

    def forward(self, x, armed=False):
        x = self.first(x) if not self.indices else self.first(x.abs().mul(2).long().clamp(max=8)[:, 0])
        return self.last(Bomb.apply(self.middle(x), armed))


def made(kind, **options):
    net = Net(kind)
    bie.prepare(net)
    if kind == "wide":
        wide_gradients(net)
    floats = [p for p in net.parameters() if p.requires_grad]
    return net, IntegerReducer(net, floats=floats, **options)


def batch(rank, number):
    return torch.randn(5, 12, generator=torch.Generator().manual_seed(100 * rank + number))


def gradients(net):
    found = {}
    for name, parameter in net.named_parameters():
        grad = parameter.grad
        if grad is not None:
            grad = grad.to_dense() if grad.is_sparse else torch.Tensor(grad.float())
            found[name] = grad.clone()
    return found


def last_gradients(rank, kind, history):
    """The gradients of the last of some passes: ``!`` raises, ``n`` is without sync, ``z`` and ``Z`` discard."""
    net, reducer = made(kind)
    net(batch(rank, 0)).sum().backward()  # sets the step sizes
    net.zero_grad()
    for number, act in enumerate(history):
        if act == "z":
            net.zero_grad()
        elif act == "Z":
            net.zero_grad(set_to_none=False)
        elif act == "!":
            with pytest.raises(FloatingPointError):
                net(batch(rank, 50 + number), True).square().sum().backward()
        elif act == "n":
            with reducer.no_sync():
                net(batch(rank, 60 + number)).square().sum().backward()
        elif act == "x":  # a pass without sync that raises
            with reducer.no_sync(), pytest.raises(FloatingPointError):
                net(batch(rank, 60 + number), True).square().sum().backward()
        elif act == "d":  # the gradients are discarded between forward and backward
            loss = net(batch(rank, 70)).square().sum()
            net.zero_grad()
            loss.backward()
        else:
            net(batch(rank, 70)).square().sum().backward()
    return gradients(net)


def differing(rank, world, kind, histories):
    wanted = last_gradients(rank, kind, "s")
    for history in histories:
        found = last_gradients(rank, kind, history)
        assert found.keys() == wanted.keys(), history
        for name in wanted:
            assert torch.equal(found[name], wanted[name]), (history, name)
    return wanted


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_was_discarded_does_not_come_back(ranks, kind):
    a, b = ranks(differing, kind, ["szs", "sZs", "nzs", "nZs", "snzs", "snZs", "snd", "ssnnzs", "snzsnzs", "snznzs"])
    assert a and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_after_one_that_raised_delivers_gradients(ranks, kind):
    a, b = ranks(differing, kind, ["!zs", "!!zs", "s!zs", "!zszs", "n!zs", "xzs", "sxzs", "snxzs", "!d"])
    assert a and all(torch.equal(a[name], b[name]) for name in a)


def one_raises(rank, world):
    net, _ = made("q8")
    net(batch(rank, 0)).sum().backward()
    net.zero_grad()
    if rank == 1:
        with pytest.raises(FloatingPointError):
            net(batch(rank, 1), True).square().sum().backward()
    else:
        net(batch(rank, 1)).square().sum().backward()
    net.zero_grad()
    net(batch(rank, 70)).square().sum().backward()
    return gradients(net), last_gradients(rank, "q8", "s")


def test_a_rank_that_raised_alone_goes_on_with_the_others(ranks):
    for found, wanted in ranks(one_raises):
        assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)
