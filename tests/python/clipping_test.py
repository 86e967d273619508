"""What torch's tools for gradients do with int8 ones: clipping by norm and value, GradScaler, other operations."""

import copy
import pickle

import pytest
import torch
from torch import nn

import bie


def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), bie.nn.BinaryLinear(16, 8), bie.nn.Q8Linear(8, 3, latent=False))
    model(torch.randn(5, 12)).square().sum().backward()
    return model


def codes(model):
    return [weight.grad.clone() for weight in bie.optim.integer_parameters(model)]


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clipping_by_norm_is_that_of_the_floats(norm, foreach):
    model = trained()
    before = codes(model)
    twin = copy.deepcopy(model)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        theirs.grad = None if not ours.is_floating_point() or ours.grad is None else ours.grad.clone()
    total = nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type=norm, foreach=foreach)
    wanted = nn.utils.clip_grad_norm_([p for p in twin.parameters() if p.is_floating_point()], 0.5, norm_type=norm)
    assert torch.allclose(total, wanted) and total > 0.5
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert not ours.is_floating_point() or ours.grad is None or torch.allclose(ours.grad, theirs.grad)
    assert all(torch.equal(a, b) for a, b in zip(codes(model), before, strict=True))


def test_the_codes_of_a_clipped_gradient_are_those_it_had():
    g = torch.randn(7, 9)
    assert torch.equal(torch.ops.bie.int8_grad(0.01 * g), torch.ops.bie.int8_grad(g))


@pytest.mark.parametrize("foreach", [None, False])
def test_clipping_by_value_leaves_codes_alone(foreach):
    model = trained()
    before = codes(model)
    nn.utils.clip_grad_value_(model.parameters(), 1e-3, foreach=foreach)
    assert float(model[0].weight.grad.abs().max()) <= 1.0001e-3
    assert all(torch.equal(a, b) for a, b in zip(codes(model), before, strict=True))


def test_grad_scaler_steps_integer_weights():
    model = trained()
    model.zero_grad()
    optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    before = model[2].weight.detach().clone()
    scaler.scale(model(torch.randn(5, 12)).square().sum()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model[2].weight, before)


def test_wide_gradients_count_in_the_norm():
    model = trained()
    bie.optim.wide_gradients(model)
    model(torch.randn(5, 12)).square().sum().backward()
    total = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    grads = [p.grad.flatten().double() for p in model.parameters() if p.grad is not None]
    assert torch.allclose(total.double(), torch.cat(grads).norm())


def test_other_operations_are_those_of_int8():
    weight = trained()[1].weight
    grad = weight.grad
    assert weight.grad is grad and grad.dtype == torch.int8
    assert type(grad + 1) is torch.Tensor and type(grad.float().norm()) is torch.Tensor
    mask = torch.zeros_like(grad)
    grad.mul_(mask)
    assert not grad.any()
    with pytest.raises(RuntimeError, match="result type Float"):
        grad.add_(0.5)
    again = pickle.loads(pickle.dumps(grad))
    assert torch.equal(again, grad)
    weight.grad = None
    assert weight.grad is None
    weight.grad = torch.ones_like(weight.detach())
    assert int(weight.grad.sum()) == weight.numel()
    del weight.grad
    assert weight.grad is None


def test_gradients_add_up_in_place():
    model = trained()
    first = model[1].weight.grad
    kept = first.clone()
    model(torch.randn(5, 12)).square().sum().backward()
    assert model[1].weight.grad is first and not torch.equal(first, kept)
