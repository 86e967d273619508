"""Weights of packed codes as values: opened, packed, and moved by DiodeMix's step, against float64."""

import math

import pytest
import torch
from weight_only_linear_test import Weight

FORMS = ["none", "value", "zero"]
ADAM = {"lr": 0.02, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6}


@pytest.fixture(autouse=True)
def seed():
    """Whether a step moves any of the zeros depends on its numbers."""
    torch.manual_seed(0)


def numbers_of(w: Weight):
    """(s, z) of each packed row and the place of each packed row in W; z is the number that codes are counted from."""
    k = w.k
    group_of = w.options.get("g_idx")
    size = k if w.options.get("group_size", -1) == -1 else w.options["group_size"]
    group_of = torch.arange(k) // size if group_of is None else group_of.long()
    order = w.options.get("q_perm")
    return group_of, torch.arange(k) if order is None else order.long()


def whole_zeros(operators, zeros, bits, n):
    return operators.unpack_words(zeros, bits, n, 1) + 1


def positions(operators, w, values, zeros, form, bits):
    """Where float64 values lie among the codes, in the order of the packed rows."""
    group_of, order = numbers_of(w)
    s, v = w.scales.double()[group_of], values[order]
    if form == "value":
        return (v + zeros.double()[group_of]) / s
    return v / s + (whole_zeros(operators, zeros, bits, w.n)[group_of] if form == "zero" else 2.0 ** (bits - 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_open_and_pack(operators, form, bits):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        w = Weight(50, 37, bits, 16, form, dtype, perm=True)
        opened = operators.weight_only_open(*w.tensors, in_features=50, **w.options)
        assert opened.dtype == dtype
        # A 16-bit scale times a code is exact in float32; only the subtraction and the result are rounded.
        room = torch.finfo(dtype).eps * (w.values.abs() + 2**-20) + 2.0**-22 * (2**bits * w.scales.double().max() + 1)
        assert ((opened.double() - w.values).abs() <= room).all()
        exact = operators.weight_only_open(*w.tensors, in_features=50, **w.options, dtype=torch.float32)
        assert torch.equal(operators.weight_only_pack(exact, w.scales, w.zeros, **w.options), w.words)


@pytest.mark.parametrize("form", FORMS)
def test_values_between_codes_are_rounded_to_the_nearest(operators, form):
    w = Weight(64, 20, 4, 16, form, torch.float32, perm=True)
    values = w.values + (torch.rand(64, 20, dtype=torch.float64) - 0.5) * 0.4
    words = operators.weight_only_pack(values.float(), w.scales, w.zeros, **w.options)
    v = positions(operators, w, values, w.zeros, form, 4)
    wanted = v.round().clamp(0, 15)
    sure = ((v - v.floor()) - 0.5).abs() > 1e-3  # float32 may round the other way near a half
    assert sure.float().mean() > 0.9
    assert torch.equal(operators.unpack_words(words, 4, 64)[sure], wanted.int()[sure])


def test_a_scale_of_zero_packs_the_zero(operators):
    scales, words = torch.zeros(1, 3), torch.full((1, 3), 5, dtype=torch.int32)
    zeros = operators.pack_words(torch.tensor([[6, 6, 6]], dtype=torch.int32), 4, 1)
    ones = torch.ones(2, 3)
    packed = operators.weight_only_pack(ones, scales, zeros, bits=4)
    assert (operators.unpack_words(packed, 4, 2) == 7).all()
    packed = operators.weight_only_pack(ones, scales, torch.ones(1, 3), bits=4)
    assert (packed == 0).all() and words.shape == packed.shape


def test_random_rounding_keeps_the_mean_and_is_replayable(operators):
    scales = torch.full((1, 4096), 0.5)
    values = torch.full((8, 4096), 0.5 * 2.3)
    options = {"bits": 4, "at_random": True, "seed": 3, "stream": 5}
    packed = operators.weight_only_pack(values, scales, torch.zeros(1, 4096), step=7, **options)
    codes = operators.unpack_words(packed, 4, 8)
    assert set(codes.unique().tolist()) == {2, 3}
    assert abs(codes.double().mean() - 2.3) < 0.015  # 6 standard deviations
    again = operators.weight_only_pack(values, scales, torch.zeros(1, 4096), step=7, **options)
    other = operators.weight_only_pack(values, scales, torch.zeros(1, 4096), step=8, **options)
    assert torch.equal(packed, again) and not torch.equal(packed, other)


@pytest.mark.parametrize("moves_zeros", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_step(operators, bits, form, moves_zeros):
    """Moments, direction, zeros and codes of one step against float64."""
    k, n, step = 60, 70, 5
    w = Weight(k, n, bits, 16, form, torch.float32, perm=True)
    group_of, order = numbers_of(w)
    grad, first, s = torch.randn(k, n), torch.randn(k, n) * 0.1, torch.rand(k, n)
    before = w.values.clone()
    words, zeros = w.words.clone(), None if w.zeros is None else w.zeros.clone()
    l2, s2 = first.clone(), s.clone()
    version = words._version
    operators.diode_mix_weight_only_(
        words,
        w.scales,
        zeros,
        grad,
        l2,
        s2,
        step=step,
        weight_decay=0.1,
        moves_zeros=moves_zeros,
        seed=1,
        **w.options,
        **ADAM,
    )
    assert words._version > version
    a = 0.9 * first.double() + 0.1 * grad.double()
    b = 0.99 * s.double() + 0.01 * grad.double() ** 2
    assert torch.allclose(l2.double(), a, atol=1e-6) and torch.allclose(s2.double(), b, atol=1e-6)
    rate = 0.02 * math.sqrt(1 - 0.99**step) / (1 - 0.9**step)
    u = a / (b.sqrt() + 1e-6)
    moved = (before - rate * u) * (1 - 0.02 * 0.1)
    mean = torch.zeros(w.scales.shape, dtype=torch.float64).index_add_(0, group_of, u[order])
    mean /= torch.bincount(group_of).unsqueeze(1)
    if form == "value":
        wanted = w.zeros.double() + rate * mean * moves_zeros
        assert torch.allclose(zeros.double(), wanted, atol=1e-6)
    elif form == "zero":
        old, new = (whole_zeros(operators, z, bits, n) for z in (w.zeros, zeros))
        exact = (old + rate * mean / w.scales.double() * moves_zeros).clamp(1, 2**bits)
        assert ((new >= (exact - 1e-4).floor()) & (new <= (exact + 1e-4).ceil())).all()
        assert not moves_zeros or (new != old).any()
    v = positions(operators, w, moved, zeros, form, bits).clamp(0, 2**bits - 1)
    codes = operators.unpack_words(words, bits, k)
    assert ((codes >= (v - 2e-3).floor()) & (codes <= (v + 2e-3).ceil())).all()
    assert abs((codes - v).mean()) < 5 * 0.5 / math.sqrt(k * n)


@pytest.mark.parametrize("form", FORMS)
def test_the_rest_follows_the_floats(operators, form):
    """With a rest of 16 bits the weight is that of a float master but for bfloat16's rounding of what codes leave."""
    k, n = 48, 64
    w = Weight(k, n, 4, 16, form, torch.float32)
    words, zeros = w.words.clone(), None if w.zeros is None else w.zeros.clone()
    rest = torch.zeros(k, n, dtype=torch.bfloat16)
    master, moments = w.values.clone(), (torch.zeros(k, n), torch.zeros(k, n))
    for step in range(1, 41):
        grad = torch.randn(k, n, generator=torch.Generator().manual_seed(step)) + 0.5
        operators.diode_mix_weight_only_(words, w.scales, zeros, grad, *moments, rest, step=step, **w.options, **ADAM)
        rate = 0.02 * math.sqrt(1 - 0.99**step) / (1 - 0.9**step)
        master -= rate * (moments[0] / (moments[1].sqrt() + 1e-6)).double()
    opened = operators.weight_only_open(words, w.scales, zeros, in_features=k, **w.options, dtype=torch.float32)
    found = (opened + rest.float()).double()
    assert (found - master).abs().max() < 0.02 * w.scales.double().max() + 40 * 2.0**-8 * rest.abs().max().double()
    assert (opened.double() - w.values).abs().mean() > 0.01  # codes moved


def test_a_direction_without_moments(operators):
    w = Weight(32, 8, 8, 16, "value", torch.float32)
    words, zeros, u = w.words.clone(), w.zeros.clone(), torch.randn(32, 8)
    operators.diode_mix_weight_only_(
        words, w.scales, zeros, u, step=1, **w.options, **(ADAM | {"lr": 0.3}), correct_bias=False
    )
    v = positions(operators, w, w.values - 0.3 * u.double(), zeros, "value", 8).clamp(0, 255)
    codes = operators.unpack_words(words, 8, 32)
    assert ((codes >= (v - 2e-3).floor()) & (codes <= (v + 2e-3).ceil())).all()


def test_moments_of_16_bits_are_rounded_at_random(operators):
    k, n = 16, 4096
    w = Weight(k, n, 4, -1, "none", torch.float32)
    first = torch.full((k, n), 1.0, dtype=torch.bfloat16)
    s = torch.full((k, n), 1.0, dtype=torch.bfloat16)
    options = {"lr": 0.0, "beta1": 1 - 2.0**-11, "beta2": 1 - 2.0**-11, "eps": 1e-6}
    operators.diode_mix_weight_only_(
        w.words, w.scales, None, torch.full((k, n), 2.0), first, s, step=1, **w.options, **options
    )
    for moment, wanted in [(first, 1 + 2.0**-11), (s, 1 + 3 * 2.0**-11)]:
        assert set(moment.unique().tolist()) == {1.0, 1 + 2.0**-7}
        assert abs(moment.double().mean() - wanted) < 2e-4


def test_step_refusals(operators):
    w = Weight(64, 8, 4, 32, "value", torch.float16)
    q, s, z = w.tensors
    g, m = torch.zeros(64, 8), torch.zeros(64, 8)
    before = q.clone(), z.clone()
    step = operators.diode_mix_weight_only_
    cases = [
        ((q, s, z, g[8:]), {}, ValueError, "56 input features"),
        ((q, s, z, g.int()), {}, TypeError, "grad: expected float32, bfloat16 or float16, got Int"),
        ((q, s, z, g, m), {}, ValueError, "belong together"),
        ((q, s, z, g, m, m.bfloat16()), {}, TypeError, "two dtypes"),
        ((q, s, z, g, m[1:], m), {}, ValueError, "exp_avg_l: expected a dense tensor of"),
        ((q, s, z, g, m.half(), m.half()), {}, TypeError, "expected float32 or bfloat16, got"),
        ((q, s, z, g, m, m, m), {}, TypeError, "rest: expected bfloat16, got Float"),
        ((q, s, z, g, m, m), {"step": 0}, ValueError, "step: expected 1 or more, got 0"),
        (
            (q, s, z.float(), g, m, m),
            {"moves_zeros": True},
            ValueError,
            "zeros that move: expected Half, as the scales are, got Float",
        ),
        ((q.t().contiguous().t(), s, z, g, m, m), {}, ValueError, "qweight is not dense"),
        ((q, s / 0, z, g, m, m), {}, ValueError, "scales hold NaN or infinity"),
    ]
    for arguments, options, error, text in cases:
        with pytest.raises(error, match=text):
            step(*arguments, **({"step": 1} | w.options | ADAM | options))
    assert torch.equal(q, before[0]) and torch.equal(z, before[1])
