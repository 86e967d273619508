"""Weight-only linears of 8-bit activations on CUDA: the CPU's integers, summed in another order."""

import pytest
import torch
from cuda_weight_only_test import on_gpu
from weight_only_linear_test import DTYPES, FORMS, Weight

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
INT8 = {"int8_activations": True}


def agrees_with_the_cpu(operators, w, x, bias=None, channel=None):
    """With panels, and without, where x and W are floats that hold the codes."""
    wanted = operators.weight_only_linear(x, *w.tensors, bias, **w.options, **INT8, channel_scale=channel).double()
    tensors, options = on_gpu(w)
    panels = operators.weight_only_prepack(*tensors, in_features=w.k, **options, **INT8)
    there = {"channel_scale": None if channel is None else channel.cuda(), **INT8}
    factors = 1 if channel is None else channel.double().view(-1)
    size = (x.double() * factors).abs() @ (w.values.abs() + w.scales.double().abs().max() * 2.0 ** int(w.width.max()))
    room = size * 2.0**-19 + wanted.abs() * torch.finfo(x.dtype).eps + 1e-6
    for given in (panels, None):
        y = operators.weight_only_linear(
            x.cuda(), *tensors, None if bias is None else bias.cuda(), **options, **there, panels=given
        )
        assert y.is_cuda and y.dtype == x.dtype
        difference = (y.cpu().double() - wanted).abs()
        assert (difference <= room).all(), float((difference / room).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_the_product(operators, bits, form, dtype):
    for k, n, group, rows in [(256, 72, 32, 1), (160, 33, 160, 9), (100, 130, 48, 4), (512, 64, 128, 170)]:
        w = Weight(k, n, bits, group, form, seed=k)
        agrees_with_the_cpu(operators, w, torch.randn(rows, k).to(dtype), torch.randn(n))


def test_forms_of_rows(operators):
    act_order = torch.randint(0, 5, (700,), generator=torch.Generator().manual_seed(3))
    act_order[0] = 4
    one_large = torch.arange(300) // 250
    mixed = torch.repeat_interleave(torch.arange(7), 10)
    for w in [
        Weight(700, 9, 4, g_idx=act_order),
        Weight(300, 9, 4, g_idx=one_large),
        Weight(70, 9, 4, 32, "value", perm=True),
        Weight(70, 9, [(8, 10), (6, 10), (5, 10), (4, 10), (3, 10), (2, 20)], form="value", g_idx=mixed, perm=True),
    ]:
        for rows in (1, 4, 100):
            agrees_with_the_cpu(operators, w, torch.randn(rows, w.k), channel=torch.rand(1, 1, w.k))


def test_a_row_that_is_not_finite_stays_in_its_row(operators):
    w = Weight(256, 64, 4, 64)
    tensors, options = on_gpu(w)
    panels = operators.weight_only_prepack(*tensors, in_features=256, **options, **INT8)
    for given in (panels, None):
        for rows in (3, 40):
            x = torch.randn(rows, 256, device="cuda")
            x[1, 77] = float("inf")
            y = operators.weight_only_linear(x, *tensors, **options, **INT8, panels=given)
            assert y[1].isnan().all() and y[0].isfinite().all() and y[2:].isfinite().all()


def test_gradients_are_those_of_x_as_it_is(operators):
    w = Weight(70, 33, 4, 16)
    tensors, options = on_gpu(w)
    x, g = torch.randn(6, 70, device="cuda"), torch.randn(6, 33, device="cuda")
    found = []
    for more in ({}, INT8):
        given, anchor = x.clone().requires_grad_(), torch.zeros((), device="cuda").expand(70, 33).requires_grad_()
        operators.weight_only_linear(given, *tensors, **options, **more, anchor=anchor).backward(g)
        found.append((given.grad, anchor.grad))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_panels_of_the_other_activations_are_refused(operators):
    w = Weight(256, 64)
    tensors, options = on_gpu(w)
    x = torch.randn(3, 256, device="cuda", dtype=torch.half)
    for made, called in (({}, INT8), (INT8, {})):
        panels = operators.weight_only_prepack(*tensors, in_features=256, **options, **made)
        with pytest.raises(ValueError, match="panels were made with int8_activations"):
            operators.weight_only_linear(x, *tensors, **options, **called, panels=panels)
