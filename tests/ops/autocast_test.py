"""Under torch.autocast layers take activations in autocast's dtype, and gradients of 16 bits lose nothing."""

from __future__ import annotations

import pytest
import torch

SCALE = torch.tensor(0.05)


def calls(o):
    """(name, operator of activations, those activations) of every operator of layers."""
    drawn = torch.Generator().manual_seed(0)
    x, w = torch.randn(33, 40, generator=drawn), torch.randn(21, 40, generator=drawn)
    image, filters = torch.randn(2, 8, 7, 7, generator=drawn), torch.randn(5, 8, 3, 3, generator=drawn)
    left, right = torch.randn(2, 6, 40, generator=drawn), torch.randn(2, 9, 40, generator=drawn)
    conv = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    return [
        ("binary_linear", lambda v: o.binary_linear(v, w, SCALE, SCALE), [x]),
        ("q8_linear", lambda v: o.q8_linear(v, w, SCALE, None), [x]),
        ("q4_linear", lambda v: o.q4_linear(v, w, SCALE, None), [x]),
        ("binary_conv2d", lambda v: o.binary_conv2d(v, filters, SCALE, SCALE, **conv), [image]),
        ("q8_conv2d", lambda v: o.q8_conv2d(v, filters, SCALE, None, **conv), [image]),
        ("q4_conv2d", lambda v: o.q4_conv2d(v, filters, SCALE, None, **conv), [image]),
        ("binary_matmul", lambda v, u: o.binary_matmul(v, u, SCALE, SCALE), [left, right]),
        ("q8_matmul", lambda v, u: o.q8_matmul(v, u, SCALE, SCALE), [left, right]),
        ("q4_matmul", lambda v, u: o.q4_matmul(v, u, SCALE, SCALE), [left, right]),
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_activations_become_of_autocasts_dtype(operators, dtype):
    for name, call, inputs in calls(operators):
        wanted = call(*(x.to(dtype) for x in inputs))
        with torch.autocast("cpu", dtype):
            found = call(*inputs)
            with torch.autocast("cpu", enabled=False):
                plain = call(*inputs)
        assert found.dtype == wanted.dtype and torch.equal(found, wanted), name
        assert torch.equal(plain, call(*inputs)), name


def test_codes_stay_codes(operators):
    codes = torch.arange(-60, 60, dtype=torch.int8).view(3, 40)
    weight = torch.arange(-40, 40, dtype=torch.int8).view(2, 40)
    wanted = operators.q8_linear(codes, weight, SCALE, SCALE)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(operators.q8_linear(codes, weight, SCALE, SCALE), wanted)


@pytest.mark.parametrize("shape", [(64, 96, 48), (7, 5, 3), (33, 130, 70)])
@pytest.mark.parametrize("width", [8, 4])
def test_gradients_of_bfloat16_have_the_accuracy_of_float32(operators, width, shape):
    """Products of a gradient of 16 bits and codes are exact but for their sums: float64 within 2^-20 of the terms."""
    m, k, n = shape
    drawn = torch.Generator().manual_seed(m)
    x, g = torch.randn(m, k, generator=drawn), torch.randn(m, n, generator=drawn).bfloat16()
    weight = (torch.randn(n, k, generator=drawn) * 0.3).requires_grad_()
    x = x.bfloat16().requires_grad_()
    op, (lo, hi) = (operators.q8_linear, (-128, 127)) if width == 8 else (operators.q4_linear, (-8, 7))
    step_a, step_w = torch.tensor(0.3), torch.tensor(0.1)
    op(x, weight, step_a, step_w, eps=1e-6).backward(g)
    wide = g.double()
    a = (x.detach().double() / 0.3).float()
    codes_a = (x.detach().float() / step_a).round().clamp(lo, hi).double() * step_a.double()
    place = weight.detach() / step_w
    codes_w = place.round().clamp(lo, hi).double() * step_w.double()
    inside = (place >= lo) & (place <= hi)
    wanted, terms = (wide.mT @ codes_a) * inside, wide.abs().mT @ codes_a.abs()
    assert ((weight.grad.double() - wanted).abs() <= 2.0**-20 * terms + 1e-12).all()
    grad_x, size = wide @ codes_w, wide.abs() @ codes_w.abs()
    passes = (a >= lo) & (a <= hi)
    error = (x.grad.double() - grad_x * passes).abs()
    assert (error <= 2.0**-8 * grad_x.abs() + 2.0**-20 * size).all()  # rounded to bfloat16 at the end


@pytest.mark.parametrize("width", [8, 4])
def test_a_weight_that_changed_between_the_passes_is_refused(operators, width):
    """Though its codes are those of the forward pass: its mask would be of another weight."""
    op = operators.q8_linear if width == 8 else operators.q4_linear
    x, weight = torch.randn(20, 24, requires_grad=True), torch.randn(16, 24, requires_grad=True)
    y = op(x, weight, SCALE, None)
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
