"""Random orders of forward, zero_grad and backward: weights of packed codes get the gradients of a float leaf."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional

import bie


def linear():
    layer = bie.convert(nn.Sequential(nn.Linear(24, 10)), "w4", requires_grad=True).model[0]
    return layer, lambda: torch.randn(5, 24), lambda x, w: x @ w, (24, 10)


def table(make):
    def made():
        layer = make()
        # The rows of signs have scales, by which their gradients are multiplied.
        size = (
            layer(torch.arange(30)).detach().abs() if isinstance(layer, bie.nn.BinaryEmbedding) else torch.ones(30, 16)
        )
        return layer, lambda: torch.randint(0, 30, (7,)), lambda x, w: functional.embedding(x, w * size), (30, 16)

    return made


def weight_only_table():
    return bie.convert(nn.Sequential(nn.Embedding(30, 16)), "w4", requires_grad=True).model[0]


def sparse_table():
    return bie.convert(nn.Sequential(nn.Embedding(30, 16, sparse=True)), "w4", requires_grad=True).model[0]


def signs_table():
    layer = bie.nn.BinaryEmbedding(30, 16)
    layer.prepare_params()
    return layer


KINDS = {
    "linear": linear,
    "table": table(weight_only_table),
    "sparse table": table(sparse_table),
    "table of signs": table(signs_table),
}


def packed_of(layer):
    (packed,) = [p for p in layer.parameters() if isinstance(p, bie.weights.parameters.AnchoredParameter)]
    return packed


def dense(grad):
    return None if grad is None else grad.to_dense() if grad.is_sparse else grad


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["FzB", "FnB", "zFB", "nFB", "FFzBnB", "FBzFB", "FBFB", *range(40)])
def test_any_order_gives_the_gradients_of_a_float_leaf(kind, order):
    torch.manual_seed(1)
    layer, inputs, formula, shape = KINDS[kind]()
    layer.train()
    packed, twin = packed_of(layer), torch.zeros(shape, requires_grad=True)
    steps = order * 4 if isinstance(order, str) else "".join(random.Random(order).choices("FFBBzn", k=30))
    waiting = []
    for place, step in enumerate(steps):
        if step == "F":
            x = inputs()
            y = layer(x)
            loss = torch.randn_like(y)
            waiting.append(((y * loss).sum(), (formula(x, twin) * loss).sum()))
        elif step == "B" and waiting:
            for one in waiting.pop(0):
                one.backward()
        elif step in "zn":
            layer.zero_grad(set_to_none=step == "n")
            if step == "n":
                twin.grad = None
            elif twin.grad is not None:
                twin.grad.zero_()
        ours, theirs = dense(packed.grad), twin.grad
        if theirs is None or not theirs.any():
            assert ours is None or not ours.any(), f"{steps[:place]}[{step}]"
        else:
            assert ours is not None, f"{steps[:place]}[{step}]: no gradient"
            torch.testing.assert_close(ours, theirs, msg=lambda text, at=place: f"{steps[:at]}[{steps[at]}]: {text}")


def test_a_gradient_that_is_given_is_the_one_that_is_read():
    layer, _, _, shape = linear()
    layer(torch.randn(5, 24)).sum().backward()
    packed = packed_of(layer)
    given = torch.full(shape, 2.0)
    packed.grad = given
    assert torch.equal(packed.grad, given)
    packed.grad = odd = torch.ones(3)
    assert packed.grad is odd
    layer(torch.randn(5, 24)).sum().backward()
    assert packed.grad.shape == shape, "what fits no weight is dropped by the next forward pass"
