"""The warning of an integer gradient that nobody takes, and its silence where somebody does."""

import copy
import io
import warnings

import pytest
import torch
from kinds import INTEGER

from bie.optim import DiodeMix, integer_parameters

every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)


def train(layer, kind, optimizers, *, passes=1, steps=3, zero=None):
    for step in range(steps):
        for number in range(passes):
            layer(kind.batch(10 * step + number)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if zero is not None:
            zero()


@every_integer
def test_a_gradient_that_nobody_takes_warns_once(kind):
    layer = kind.trained()
    floats = [param for param in layer.parameters() if param.requires_grad]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        train(layer, kind, [torch.optim.AdamW(floats)], steps=5)
    (warning,) = found
    assert "none its integer weight" in str(warning.message)


@every_integer
def test_gradients_that_are_taken_do_not_warn(kind):
    def two(layer):
        floats = [param for param in layer.parameters() if param.requires_grad]
        return [torch.optim.AdamW(floats), DiodeMix(integer_parameters(layer), lr=1e-2)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = kind.trained()
        train(layer, kind, [DiodeMix(layer.parameters(), lr=1e-2)], passes=3)
        layer = kind.trained()
        train(layer, kind, two(layer), passes=2)
        layer = kind.trained()
        floats, integers = two(layer)
        for _ in range(3):  # the integers at another pace
            train(layer, kind, [floats])
            integers.step()
            integers.zero_grad()
        layer = kind.trained()
        for number in range(4):  # no step at all
            layer(kind.batch(number)).square().sum().backward()
        layer = kind.trained().requires_grad_(False)
        layer.bias_a.requires_grad_(True)
        train(layer, kind, [torch.optim.SGD([layer.bias_a], lr=0.1)])
        layer = kind.trained()
        layer(kind.batch()).square().sum().backward()
        layer.load_state_dict(kind.trained(seed=5).state_dict())
        layer(kind.batch()).square().sum().backward()
        copied = copy.deepcopy(layer)
        copied(kind.batch())


class WritesData(torch.optim.Optimizer):
    """Steps through ``.data``, of which no version tells."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                param.data.copy_(-param.data)

    def zero_grad(self):
        super().zero_grad(set_to_none=False)


@every_integer
def test_a_gradient_that_any_optimizer_takes_does_not_warn(kind):
    def two(layer, weights):
        return [torch.optim.AdamW([param for param in layer.parameters() if param.requires_grad]), WritesData(weights)]

    layer, other = kind.trained(), kind.trained()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(layer, kind, two(layer, [layer.weight]), passes=2)
    with pytest.warns(UserWarning, match="none its integer weight"):
        train(other, kind, two(other, [layer.weight]), passes=2)


@every_integer
def test_a_copy_awaits_no_gradient(kind):
    layer, x = kind.trained(), kind.batch(1)
    layer(x)
    for twin in (copy.deepcopy(layer), torch.load(_saved(layer), weights_only=False)):
        optimizer = DiodeMix(twin.parameters())
        twin.bias_a.grad = torch.zeros_like(twin.bias_a)
        optimizer.step()


def _saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return file
