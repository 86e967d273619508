"""Weight-only linears on CUDA: the product of float64 within float32's rounding, gradients, panels and refusals."""

import pytest
import torch
from both_devices import moved
from weight_only_linear_test import DTYPES, FORMS, Weight

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_gpu(w):
    return [None if t is None else t.cuda() for t in w.tensors], moved_options(w.options)


def moved_options(options):
    return {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in options.items()}


def close(found, wanted, size, rounds_weight=False):
    """Within float32's rounding of `size`, the sum of magnitudes, and one rounding to the result's dtype.

    Many rows of 16 bits are multiplied with the weight rounded to 16 bits.
    """
    eps = torch.finfo(found.dtype).eps
    room = size * (eps / 2 if rounds_weight and found.dtype != torch.float32 else 2.0**-19) + wanted.abs() * eps + 1e-6
    assert ((found.cpu().double() - wanted).abs() <= room).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_the_product(operators, bits, form, dtype):
    for k, n, group, rows in [
        (256, 72, 32, 1),
        (160, 33, 160, 9),
        (100, 130, 48, 4),
        (512, 64, 128, 70),
        (64, 7, 8, 0),
    ]:
        w = Weight(k, n, bits, group, form, seed=k)
        tensors, options = on_gpu(w)
        x, bias = torch.randn(rows, k).to(dtype), torch.randn(n)
        wanted = x.double() @ w.values + bias.double()
        size = x.double().abs() @ (w.values.abs() + w.scales.double().max() * 2**bits) + 3
        panels = operators.weight_only_prepack(*tensors, in_features=k, **options)
        for given in (None, panels):
            y = operators.weight_only_linear(x.cuda(), *tensors, bias.cuda(), **options, panels=given)
            assert y.is_cuda and y.dtype == dtype and y.shape == (rows, n)
            close(y, wanted, size, rounds_weight=given is None or rows > 64)
        apart = torch.cat([x, x], 1)[:, :k].cuda()
        again = operators.weight_only_linear(apart, *tensors, bias.cuda(), **options, panels=panels)
        assert torch.equal(
            again, operators.weight_only_linear(x.cuda(), *tensors, bias.cuda(), **options, panels=panels)
        )


def test_forms_of_rows(operators):
    act_order = torch.randint(0, 5, (70,), generator=torch.Generator().manual_seed(3))
    act_order[0] = 4
    mixed = torch.repeat_interleave(torch.arange(7), 10)
    for w in [
        Weight(70, 9, 4, g_idx=act_order),
        Weight(64, 9, 4, g_idx=torch.arange(64) // 32),
        Weight(70, 9, 4, 32, "value", perm=True),
        Weight(70, 9, [(8, 10), (6, 10), (5, 10), (4, 10), (3, 10), (2, 20)], form="value", g_idx=mixed, perm=True),
        Weight(70, 9, [(5, 30), (3, 40)], form="none", g_idx=mixed),
    ]:
        tensors, options = on_gpu(w)
        panels = operators.weight_only_prepack(*tensors, in_features=w.k, **options)
        for rows in (1, 4, 100):
            x, channel = torch.randn(rows, w.k), torch.rand(1, 1, w.k)
            xs = (x * channel.view(-1)).double()
            for given in (None, panels):
                y = operators.weight_only_linear(
                    x.cuda(), *tensors, **options, channel_scale=channel.cuda(), panels=given
                )
                close(y, xs @ w.values, xs.abs() @ (w.values.abs() + 30))
        opened = operators.weight_only_open(*tensors, in_features=w.k, **options, dtype=torch.float32)
        on_cpu = operators.weight_only_open(*w.tensors, in_features=w.k, **w.options, dtype=torch.float32)
        assert torch.equal(opened.cpu(), on_cpu)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_gradients(operators, form, dtype):
    w = Weight(70, 33, 4, 16, form, perm=True)
    tensors, options = on_gpu(w)
    for channel in (None, torch.rand(70)):
        x, g = torch.randn(2, 3, 70).to(dtype).cuda().requires_grad_(), torch.randn(2, 3, 33).to(dtype)
        anchor = torch.zeros((), device="cuda").expand(70, 33).requires_grad_()
        scale = None if channel is None else channel.cuda()
        y = operators.weight_only_linear(x, *tensors, **options, channel_scale=scale, anchor=anchor)
        y.backward(g.cuda())
        by = torch.ones(70, dtype=torch.float64) if channel is None else channel.double()
        g2, x2 = g.double().view(6, 33), x.detach().cpu().double().view(6, 70) * by
        close(x.grad, (g2 @ w.values.t() * by).view(2, 3, 70), (g2.abs() @ w.values.abs().t()).view(2, 3, 70), True)
        assert anchor.grad.dtype == torch.float32
        close(anchor.grad, x2.t() @ g2, x2.abs().t() @ g2.abs())


def test_a_graph_captures_a_call_with_panels(operators):
    w = Weight(256, 64)
    tensors, options = on_gpu(w)
    panels = operators.weight_only_prepack(*tensors, in_features=256, **options)
    x = torch.randn(3, 256, device="cuda", dtype=torch.half)
    wanted = operators.weight_only_linear(x, *tensors, **options, panels=panels)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = operators.weight_only_linear(x, *tensors, **options, panels=panels)
    graph.replay()
    assert torch.equal(y, wanted)


def test_refusals(operators):
    w = Weight(256, 64)
    tensors, options = on_gpu(w)
    x = torch.randn(3, 256, device="cuda", dtype=torch.half)
    panels = operators.weight_only_prepack(*tensors, in_features=256, **options)
    other = Weight(128, 64)
    there, others = on_gpu(other)
    of_other = operators.weight_only_prepack(*there, in_features=128, **others)
    for wrong in (panels.cpu(), panels.flatten(), panels.char(), of_other, panels[:, :, ::2]):
        with pytest.raises(ValueError, match=r"panels: expected .*, got|expected one device, got"):
            operators.weight_only_linear(x, *tensors, **options, panels=wrong)
    with pytest.raises(ValueError, match=r"g_idx: expected 0 \.\.\. \d+, got 9"):
        index = torch.full((256,), 9, dtype=torch.int32, device="cuda")
        operators.weight_only_prepack(*tensors, in_features=256, bits=4, g_idx=index)


def test_moved_layers_agree_with_the_cpu(operators):
    w = Weight(96, 40, 4, 32, "value")
    tensors, options = on_gpu(w)
    x = torch.randn(5, 96)
    on_cpu = operators.weight_only_linear(x, *w.tensors, **w.options)
    here = operators.weight_only_linear(moved(x), *tensors, **options)
    assert (here.cpu() - on_cpu).abs().max() < 1e-4
