"""Weight-only linears with int8 activations: forward against the law of the spec, bit for bit, gradients
against those of exact activations, what panels serve, every refusal.
"""

import numpy as np
import pytest
import torch
from weight_only_linear_test import DTYPES, FORMS, Weight, close


def fma(a, b, c):
    """Of float32 numbers, rounded once: their product is exact in float64, and numpy's longdouble holds the sum of it
    and c but for what is far below half a unit of float32.
    """
    exact = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    return (exact.astype(np.longdouble) + np.asarray(c, np.longdouble)).astype(np.float32)


def law(x: torch.Tensor, w: Weight, bias=None, factor=None) -> torch.Tensor:
    """[m, n] float32 of x [m, k] as docs/spec/weight-only.md#int8-activations has it."""
    f32 = np.float32
    xs = x.float().numpy()
    if factor is not None:
        xs = (xs * factor.float().numpy()).astype(f32)
    xs = xs[:, w.order.numpy()]
    scales, codes, n = w.scales.float().numpy(), w.codes.numpy().astype(np.int64), w.n
    y = np.zeros((x.shape[0], n), f32)
    for g in range(scales.shape[0]):
        rows = (w.group_of == g).nonzero().flatten().numpy()
        h = 2 ** (int(w.width[rows[0]]) - 1) if len(rows) else 1
        part = xs[:, rows]
        a = np.abs(part).max(1, initial=0)
        live = np.isfinite(a) & (a >= f32(2.0**-100))
        r = np.where(live, f32(127) / np.where(live, a, f32(1)), f32(0)).astype(f32)
        d = np.where(live, a / f32(127), np.where(np.isfinite(a), f32(0), f32("nan"))).astype(f32)
        u = np.rint(np.where(live[:, None], part, f32(0)) * r[:, None]).astype(np.int64)
        assert np.abs(u).max(initial=0) <= 127
        products, total = u @ (codes[rows] - h), u.sum(1)
        t = (products.astype(f32) * scales[g]).astype(f32)
        offset = None
        if w.whole_zeros is not None:
            offset = (scales[g] * (h - w.whole_zeros[g].numpy()).astype(f32)).astype(f32)
        elif w.zeros is not None:
            offset = fma(f32(h), scales[g], -w.zeros[g].float().numpy())
        if offset is not None:
            t = fma(total.astype(f32)[:, None], offset[None], t)
        y = fma(d[:, None], t, y)
    return torch.from_numpy(y if bias is None else y + bias.float().numpy())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_forward_is_the_law(operators, bits, form):
    for k, n, group, m in [(96, 40, 32, 3), (100, 7, 32, 1), (5, 3, 32, 2), (64, 130, -1, 17), (33, 64, 8, 70)]:
        w, bias = Weight(k, n, bits, group, form, seed=k), torch.randn(n)
        for dtype in DTYPES:
            x = (torch.randn(m, k) * 3).to(dtype)
            options = w.options | {"int8_activations": True}
            panels = operators.weight_only_prepack(*w.tensors, in_features=k, **options)
            for b in (None, bias):
                y = operators.weight_only_linear(x, *w.tensors, b, **options)
                assert y.dtype == dtype and y.shape == (m, n)
                assert torch.equal(y, law(x, w, b).to(dtype))
                assert torch.equal(operators.weight_only_linear(x, *w.tensors, b, **options, panels=panels), y)


def test_forms_of_rows(operators):
    act_order = torch.randint(0, 5, (70,), generator=torch.Generator().manual_seed(3))
    act_order[0] = 4
    mixed = torch.repeat_interleave(torch.arange(7), 10)
    cases = [
        Weight(70, 9, 4, g_idx=act_order),
        Weight(70, 9, 4, 32, "value", perm=True),
        Weight(70, 9, [(8, 10), (6, 10), (5, 10), (4, 10), (3, 10), (2, 20)], form="value", g_idx=mixed, perm=True),
        Weight(70, 9, [(5, 30), (3, 40)], form="none", g_idx=mixed),
    ]
    for w in cases:
        x, channel = torch.randn(4, 70), torch.rand(1, 1, 70)
        y = operators.weight_only_linear(x, *w.tensors, **w.options, channel_scale=channel, int8_activations=True)
        assert torch.equal(y, law(x, w, factor=channel.view(-1)))


def test_it_is_near_the_exact_product(operators):
    """Of codes by a largest of 127: at most half a step a term."""
    w = Weight(256, 40, 4, 64)
    x = torch.randn(6, 256)
    y = operators.weight_only_linear(x, *w.tensors, **w.options, int8_activations=True)
    exact = x.double() @ w.values
    half_steps = x.double().view(6, 4, 64).abs().amax(2).repeat_interleave(64, 1) / 127 / 2
    room = half_steps @ w.values.abs()
    error = (y - exact).abs()
    assert (error <= room * 1.001).all() and error.max() > 0


def test_numbers_at_the_edges(operators):
    w = Weight(64, 9, 4, 16, "value")
    x = torch.randn(8, 64)
    x[0, 16:32] = 0
    x[1, 16:32] = 2.0**-101
    x[2, 16:32] *= 2.0**-98
    x[3] = 0
    x[4, 20], x[5, 3], x[6, 63] = float("nan"), float("inf"), -float("inf")
    y = operators.weight_only_linear(x, *w.tensors, **w.options, int8_activations=True)
    wanted = law(x, w)
    assert wanted[4:7].isnan().all() and not wanted[:4].isnan().any() and (wanted[3] == 0).all()
    assert torch.equal(y.nan_to_num(7.0), wanted.nan_to_num(7.0)) and y.isnan().sum() == 27


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_those_of_x_as_it_is(operators, dtype):
    w = Weight(70, 33, 4, 16, "value", perm=True)
    x, channel, g = torch.randn(2, 3, 70).to(dtype), torch.rand(70), torch.randn(2, 3, 33).to(dtype)
    found = []
    for int8 in (False, True):
        leaf, bias = x.clone().requires_grad_(), torch.zeros(33, requires_grad=True)
        anchor = torch.zeros(()).expand(70, 33).requires_grad_()
        options = {"channel_scale": channel, "anchor": anchor, "int8_activations": int8}
        operators.weight_only_linear(leaf, *w.tensors, bias, **w.options, **options).backward(g)
        found.append((leaf.grad, bias.grad, anchor.grad))
    for exact, int8 in zip(*found, strict=True):
        assert torch.equal(exact, int8)
    g2 = g.double().view(6, 33)
    wanted = (g2 @ w.values.t() * channel.double()).view(2, 3, 70)
    close(found[1][0], wanted, (g2.abs() @ w.values.abs().t()).view(2, 3, 70), 33)


def test_rows_do_not_depend_on_their_number(operators):
    w = Weight(200, 150, 4, 64)
    x = torch.randn(37, 200)
    options = w.options | {"int8_activations": True}
    y = operators.weight_only_linear(x, *w.tensors, **options)
    for rows in (1, 2, 5, 13):
        assert torch.equal(operators.weight_only_linear(x[:rows], *w.tensors, **options), y[:rows])
    strided = torch.cat([x, x], 1)[:, :200]
    assert torch.equal(operators.weight_only_linear(strided, *w.tensors, **options), y)


def test_panels_serve_calls_of_their_kind_alone(operators):
    w = Weight(64, 8)
    x = torch.randn(5, 64)
    for made in (False, True):
        panels = operators.weight_only_prepack(*w.tensors, in_features=64, **w.options, int8_activations=made)
        with pytest.raises(
            ValueError, match=f"panels were made with int8_activations={made}, the call has it {not made}"
        ):
            operators.weight_only_linear(x, *w.tensors, **w.options, panels=panels, int8_activations=not made)


def test_stale_panels_are_not_read(operators):
    w = Weight(64, 8, form="value")
    x, options = torch.randn(5, 64), w.options | {"int8_activations": True}
    panels = operators.weight_only_prepack(*w.tensors, in_features=64, **options)
    for tensor in w.tensors:
        tensor.copy_(tensor.roll(1, 0))
        y = operators.weight_only_linear(x, *w.tensors, **options, panels=panels)
        assert torch.equal(y, operators.weight_only_linear(x, *w.tensors, **options))


def test_rows_of_a_group_are_counted(operators):
    k = 131073
    words, scales = torch.zeros(4097, 1, dtype=torch.int32), torch.ones(1, 1)
    x = torch.ones(1, k)
    for op, arguments in [
        (operators.weight_only_linear, {}),
        (operators.weight_only_prepack, {"in_features": k}),
    ]:
        given = (words, scales) if arguments else (x, words, scales)
        with pytest.raises(ValueError, match="a group has 131073 rows, at most 131072 are taken with int8_activations"):
            op(*given, bits=1, int8_activations=True, **arguments)
        with pytest.raises(ValueError, match="a group has 131073 rows"):
            index = torch.zeros(k, dtype=torch.int32)
            op(*given, bits=1, g_idx=index, int8_activations=True, **arguments)
    index = torch.zeros(k, dtype=torch.int32)
    index[7] = 1
    two = torch.tensor([[1.0], [3.0]])
    y = operators.weight_only_linear(x, words, two, bits=1, g_idx=index, int8_activations=True)
    assert torch.equal(y, torch.tensor([[-131072.0 - 3.0]]))
