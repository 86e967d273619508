"""GPTQ against the published formula with explicit inverses, against round to nearest, and through a whole model."""

import copy

import pytest
import torch
from torch import nn

import bie
from bie.nn import MPQLinear
from bie.quantization import CodedWeight, Hessian, gptq, output_error, quantize, round_to_nearest


def generator(seed):
    return torch.Generator().manual_seed(seed)


def correlated(rows, k, seed=0, rank=None):
    """Inputs whose features depend on each other and differ in size."""
    g = generator(seed)
    mixing = torch.randn(rank or max(1, k // 3), k, generator=g, dtype=torch.float64)
    size = torch.logspace(-1, 1, k, dtype=torch.float64)[torch.randperm(k, generator=g)]
    x = torch.randn(rows, mixing.size(0), generator=g, dtype=torch.float64) @ mixing
    return (x + 0.1 * torch.randn(rows, k, generator=g, dtype=torch.float64)) * size


def hessian_of(x):
    hessian = Hessian(x.size(1))
    hessian.add(x)
    return hessian.matrix()


def range_of(rows, bits, whole_zeros):
    """(scale, offset) [n] of rows [m, n], by the formulas of the specification, in float32 as files hold them."""
    rows = rows.float()
    if bits == 1:
        mean = rows.mean(0)
        distance = (rows - mean).abs().mean(0)
        scale, zero = 2 * distance, distance - mean
    else:
        scale, zero = (rows.amax(0) - rows.amin(0)) / (2**bits - 1), -rows.amin(0)
    if whole_zeros:
        zero = torch.where(scale == 0, 1.0, zero / scale).round().clamp(1, 2**bits) * scale.double()
    return scale.double(), zero.double()


def one_by_one(weight, h, coded, shrinkage=1.0, damping=0.05):
    """Optimal brain quantisation on given grids: after each input the inverse of what is left, made anew."""
    w = weight.double().t().clone()
    scales = coded.scales.double()[coded.g_idx.long()]
    offsets = coded.codes * scales - coded.values().t()
    order = h.diagonal().argsort(descending=True, stable=True).tolist()
    h = h + shrinkage * h.diagonal().diag() + damping * h.diagonal().mean() * torch.eye(len(h), dtype=torch.float64)
    value = torch.zeros_like(w)
    for place, i in enumerate(order):
        left = order[place:]
        code = torch.where(scales[i] == 0, 0.0, (w[i] + offsets[i]) / scales[i]).round().clamp(0, 2**coded.bits - 1)
        value[i] = code * scales[i] - offsets[i]
        inverse = torch.linalg.inv(h[left][:, left])
        w[left] -= inverse[:, :1] * ((w[i] - value[i]) / inverse[0, 0])
    return value.t()


OPTIONS = [
    {"bits": 4, "group_size": 8},
    {"bits": 2, "group_size": -1},
    {"bits": 1, "group_size": 8},
    {"bits": 8, "group_size": 5},
    {"bits": 3, "group_size": 8, "whole_zeros": True},
    {"bits": 5, "group_size": 16},
    {"bits": 2, "group_size": 7, "shrinkage": 0.0},
    {"bits": 4, "group_size": 8, "whole_zeros": True},
    {"bits": 2, "group_size": 8, "whole_zeros": True, "damping": 0.1},
]


@pytest.mark.parametrize("k", [19, 150])  # fewer inputs than are updated at once, and more
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gptq_is_the_formula(options, k):
    weight, h = torch.randn(6, k, generator=generator(k)), hessian_of(correlated(300, k))
    coded = gptq(weight, h, **options)
    size = k if options["group_size"] == -1 else options["group_size"]
    assert coded.g_idx.tolist() == [i // size for i in range(k)]
    wanted = one_by_one(
        weight, h, coded, **{name: options[name] for name in ("shrinkage", "damping") if name in options}
    )
    # A weight between two codes may go either way by the rounding of float64, and what comes after it with it.
    same = (coded.values() - wanted).abs().amax(1) < 1e-4
    assert same.double().mean() >= 5 / 6, same


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_grids_lose_less_than_those_from_the_least_number_to_the_largest(options, dtype):
    """Of independent inputs the costs of errors are those of their squares, and codes are the nearest."""
    weight, sizes = torch.randn(7, 40, generator=generator(5)), torch.logspace(0, 2, 40, dtype=torch.float64)
    coded = gptq(weight, sizes.diag(), **options, dtype=dtype)
    assert coded.scales.dtype == dtype and (options.get("whole_zeros") or coded.zeros.dtype == dtype)
    numbers = {name: options[name] for name in ("bits", "group_size", "whole_zeros") if name in options}
    lost, nearest = (
        output_error(weight, found, sizes.diag()) for found in (coded, round_to_nearest(weight, **numbers, dtype=dtype))
    )
    assert lost < nearest
    scales = coded.scales.double()[coded.g_idx.long()].t()
    inner = (coded.codes > 0) & (coded.codes < 2**coded.bits - 1)
    away = (coded.values() - weight.double()).abs()
    assert (away <= scales / 2 * 1.0001)[inner.t()].all()


def test_a_hessian_does_not_depend_on_how_rows_are_divided():
    x = correlated(100, 37).float()
    whole, parts = Hessian(37), Hessian(37)
    whole.add(x)
    for part in x.split([1, 60, 0, 39]):
        parts.add(part.reshape(1, -1, 37))
    assert torch.equal(whole.matrix(), parts.matrix())
    assert torch.allclose(whole.matrix(), x.double().t() @ x.double() / 100, rtol=1e-12)
    assert torch.equal(whole.matrix(), whole.matrix().t())


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("whole_zeros", [False, True])
def test_round_to_nearest(bits, whole_zeros):
    weight = torch.randn(5, 20, generator=generator(bits))
    coded = round_to_nearest(weight, bits, 8, whole_zeros=whole_zeros)
    assert coded.codes.shape == (20, 5) and coded.g_idx.tolist() == [i // 8 for i in range(20)]
    for start in (0, 8, 16):
        rows = weight[:, start : start + 8].double().t()
        scale, zero = range_of(rows, bits, whole_zeros)
        levels = torch.arange(2**bits, dtype=torch.float64)[:, None, None] * scale - zero
        nearest = (levels - rows).abs().amin(0)
        assert torch.allclose((coded.values().t()[start : start + 8] - rows).abs(), nearest, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_errors_cancel_each_other_on_correlated_inputs(options):
    better = 0
    for seed in range(5):
        weight, h = torch.randn(16, 64, generator=generator(seed)), hessian_of(correlated(512, 64, seed))
        nearest = {name: options[name] for name in ("bits", "group_size", "whole_zeros") if name in options}
        share = output_error(weight, gptq(weight, h, **options), h)
        share /= output_error(weight, round_to_nearest(weight, **nearest), h)
        better += share < (0.95 if options["bits"] == 1 else 0.8)
    assert better == 5


def test_more_of_the_products_of_inputs_that_depend_on_few_others():
    weight, h = torch.randn(16, 64, generator=generator(1)), hessian_of(correlated(4096, 64, rank=8))
    sure, usual = (output_error(weight, gptq(weight, h, 4, 16, shrinkage=share), h) for share in (0.0, 1.0))
    assert sure < 0.7 * usual


def test_the_error_is_that_of_the_outputs():
    x, weight = correlated(200, 12), torch.randn(7, 12, generator=generator(0))
    coded = round_to_nearest(weight, 2, 6)
    wanted = (x @ (weight.double() - coded.values()).t()).norm() / (x @ weight.double().t()).norm()
    assert output_error(weight, coded, hessian_of(x)) == pytest.approx(float(wanted), rel=1e-9)
    assert output_error(torch.zeros(7, 12), coded, hessian_of(x)) == 0.0


def test_what_calibration_leaves_open():
    weight = torch.randn(4, 10, generator=generator(0))
    unseen = correlated(50, 10)
    unseen[:, 3] = 0  # an input that is always 0
    coded = gptq(weight, hessian_of(unseen), 8, -1)
    assert (coded.values()[:, 3] - weight[:, 3]).abs().max() < 0.02, "its weight stays"
    assert torch.equal(gptq(weight, torch.zeros(10, 10), 4, 5).codes, gptq(weight, torch.eye(10), 4, 5).codes)
    one = correlated(1, 10)  # of rank 1
    assert torch.isfinite(gptq(weight, hessian_of(one), 4, 5).values()).all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_layer_takes_the_codes(options, dtype):
    weight, h = torch.randn(6, 40, generator=generator(2)).to(dtype), hessian_of(correlated(300, 40))
    coded = gptq(weight, h, **options, dtype=dtype)
    whole = options.get("whole_zeros", False)
    layer = MPQLinear(
        40, 6, w_bit=options["bits"], group_size=options["group_size"], use_gba_quant=not whole, dtype=dtype
    )
    layer.set_codes(coded.codes, coded.scales, coded.zeros, coded.g_idx)
    x = torch.randn(3, 40, generator=generator(3))
    wanted = x.double() @ coded.values().t()
    assert torch.allclose(layer.eval()(x).double(), wanted, rtol=1e-4, atol=1e-4)


def test_what_a_layer_does_not_take():
    layer = MPQLinear(16, 3, w_bit=2, group_size=8, dtype=torch.float32)
    coded = round_to_nearest(torch.randn(3, 16), 2, 8)
    good = {"codes": coded.codes, "scales": coded.scales, "zeros": coded.zeros, "g_idx": coded.g_idx}
    for name, value, sentence in [
        ("codes", coded.codes[1:], r"codes: expected \[16, 3\] .*, got \[15, 3\]"),
        ("codes", coded.codes + 3, r"codes are outside \[0, 3\]"),
        ("codes", coded.codes.float(), r"codes: expected .*, got .* of float32"),
        ("scales", coded.scales[:1], r"scales: expected \[2, 3\] .*, got \[1, 3\]"),
        ("zeros", coded.zeros * float("nan"), "zeros holds NaN"),
        ("g_idx", coded.g_idx + 1, "g_idx holds groups outside"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            layer.set_codes(**good | {name: value})
    assert not layer.qweight.any() and not layer._prepared
    layer.set_codes(**good)
    assert layer.qweight.any()


def test_refusals():
    weight, h = torch.randn(3, 8), torch.eye(8)
    for call, sentence in [
        (lambda: gptq(weight, torch.eye(7)), r"the Hessian: expected \[8, 8\], got \[7, 7\]"),
        (lambda: gptq(weight, h, bits=7), "bits: expected 1, 2, 3, 4, 5, 6 or 8, got 7"),
        (lambda: gptq(weight, h, group_size=0), "group_size: expected -1 or a positive number, got 0"),
        (lambda: gptq(weight, h, damping=0.0), "damping: expected a positive number, got 0"),
        (lambda: gptq(weight, h, damping=float("nan")), "damping: expected a positive number, got nan"),
        (lambda: gptq(weight, h, shrinkage=-1.0), "shrinkage: expected 0 or a positive number, got -1"),
        (lambda: gptq(weight, h, dtype=torch.float64), "dtype: expected float32, float16 or bfloat16, got float64"),
        (lambda: gptq(weight * 1e6, h, dtype=torch.float16), "a range of the weight is too large for float16"),
        (lambda: gptq(weight * float("nan"), h), "NaN or infinity"),
        (lambda: gptq(weight, h * float("inf")), "the Hessian holds NaN or infinity"),
        (lambda: gptq(weight, -h), "not positive semidefinite"),
        (lambda: gptq(weight[0], h), "expected a matrix of floats, got"),
        (lambda: round_to_nearest(weight.int()), "expected a matrix of floats, got"),
        (lambda: round_to_nearest(weight * float("inf")), "NaN or infinity"),
        (lambda: Hessian(8).matrix(), "no input was added"),
        (lambda: Hessian(8).add(torch.ones(2, 7)), r"x: expected floats of 8 features, got \[2, 7\]"),
        (lambda: Hessian(8).add(torch.ones(2, 8, dtype=torch.int64)), "floats of 8 features"),
        (lambda: Hessian(8).add(torch.full((2, 8), float("nan"))), "NaN or infinity"),
        (lambda: quantize(nn.Linear(8, 3), []), "there is no batch"),
        (lambda: quantize(nn.Linear(8, 3), [weight], method="awq"), "method: expected 'gptq' or 'nearest', got 'awq'"),
        (lambda: quantize(nn.Sequential(nn.Linear(8, 3)), [weight / 0]), "the layer '0': Hessian: x holds NaN"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


class Block(nn.Module):
    """Layers out of their order of definition, three on one input, one called twice, one never."""

    def __init__(self):
        super().__init__()
        self.out, self.unused = nn.Linear(32, 32), nn.Linear(32, 32)
        self.q, self.k, self.v = (nn.Linear(32, 32, bias=False) for _ in range(3))
        self.twice, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        h = self.norm(x)
        mixed = torch.softmax(self.q(h) @ self.k(h).transpose(-1, -2) / 6, -1) @ self.v(h)
        return self.out(self.drop(self.twice(torch.relu(self.twice(mixed)))) + x)


def made(seed=0):
    torch.manual_seed(seed)
    return Block()


def batches(count=4, first=0):
    """Of one kind of inputs, the ones after ``first``."""
    return list(correlated(24 * 32, 32, rank=6).float().view(32, 4, 6, 32)[first : first + count])


def test_a_model_is_quantised_in_the_order_of_its_calls():
    model = made().train()
    x = torch.cat(batches(4, first=28))
    wanted = copy.deepcopy(model).eval()(x).detach()
    errors = {}
    for method in ("gptq", "nearest"):
        report = quantize(model, batches(28), bits=2, group_size=8, method=method, inplace=False)
        assert [layer.name for layer in report.layers] == ["q", "k", "v", "twice", "out"]
        assert [(layer.name, layer.reason) for layer in report.skipped] == [("unused", "no batch reaches it")]
        found = report.model
        assert found.training and found.drop.training and found.q.training and isinstance(found.q, MPQLinear)
        errors[method] = float((found.eval()(x) - wanted).detach().norm() / wanted.norm())
        for layer in report.layers:
            better = layer.error < layer.nearest_error if method == "gptq" else layer.error == layer.nearest_error
            assert better and 0 < layer.error < 1
        table = str(report).splitlines()
        assert table[0].split() == ["layer", "weight", "error", "nearest"] and len(table) == 8
        assert table[6] == "unused  32x32   unchanged: no batch reaches it"
        assert table[7] == "5 quantised, 1 unchanged"
    assert type(model.q) is nn.Linear and errors["gptq"] < 0.9 * errors["nearest"], errors


def test_a_layer_sees_what_the_quantised_layers_before_it_make():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
    original, data = copy.deepcopy(model), [correlated(64, 16).float()]
    report = quantize(model, data, bits=2, group_size=8)
    first, second = report.layers
    hidden = torch.relu(model[0].eval()(data[0])).detach()
    wanted = gptq(original[2].weight, hessian_of(hidden.double()), 2, 8)
    codes = torch.ops.bie.unpack_words(model[2].qweight.detach(), 2, 16, 0)
    assert (codes == wanted.codes).double().mean() > 0.95
    assert second.error == pytest.approx(
        output_error(original[2].weight, wanted, hessian_of(hidden.double())), rel=0.05
    )
    assert first.error < first.nearest_error


def test_runs_and_memory():
    """Layers on one input share a run, and a run ends where the layer's input is known."""
    model, calls = made(), []
    model.out.register_forward_hook(lambda *_: calls.append("out"))
    report = quantize(model, batches(3))
    assert [(layer.name, layer.reason) for layer in report.skipped][0] == ("out", "it has hooks")  # noqa: RUF015
    assert len(calls) == 3 + 3, "the first look, and the layer that is called twice: q, k and v end before it"


def test_layers_that_some_batches_reach():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.small, self.large, self.both = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 8)

        def forward(self, x):
            try:
                both = self.both(x)
            except Exception:  # a model's own way with errors is not in the way
                both = 0
            return both + (self.large(x) if len(x) > 8 else self.small(x) + self.small(-x))

    torch.manual_seed(0)
    model, data = Branches(), [torch.randn(rows, 16) for rows in (4, 64, 6, 32)]
    weights = {name: getattr(model, name).weight.detach().clone() for name in ("small", "large", "both")}
    report = quantize(model, data, bits=2, group_size=8)
    assert [layer.name for layer in report.layers] == ["both", "small", "large"] and not report.skipped
    few, many = torch.cat([data[0], data[2]]), torch.cat([data[1], data[3]])
    for layer, inputs in zip(report.layers, [torch.cat(data), torch.cat([few, -few]), many], strict=True):
        hessian = hessian_of(inputs.double())
        wanted = gptq(weights[layer.name], hessian, 2, 8)
        assert layer.error == pytest.approx(output_error(weights[layer.name], wanted, hessian), rel=1e-3), layer.name


def test_ways_of_calling_and_filters():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, a, b):
            return self.linear(a + b) + self.other(a)

    a, b = torch.randn(9, 8), torch.randn(9, 8)
    states = []
    for batch, call in [
        ((a, b), None),
        ({"a": a, "b": b}, None),
        ([a, b], None),
        ({"x": a}, lambda model, batch: model(batch["x"], b)),
    ]:
        torch.manual_seed(0)
        model = Sum()
        report = quantize(model, iter([batch]), group_size=4, filter=lambda name, _: name != "other", call=call)
        assert [layer.name for layer in report.layers] == ["linear"] and type(model.other) is nn.Linear
        assert report.skipped[0].reason == "the filter says so"
        states.append(model.state_dict())
    for state in states[1:]:
        assert all(torch.equal(state[name], states[0][name]) for name in states[0])


def test_shared_layers_and_the_model_itself():
    torch.manual_seed(0)
    linear, data = nn.Linear(8, 8), [torch.randn(20, 8)]
    model = nn.Sequential(linear, nn.ReLU(), linear)
    report = quantize(model, data, group_size=4)
    assert model[0] is model[2] and isinstance(model[0], MPQLinear) and len(report.layers) == 1
    report = quantize(nn.Linear(8, 8), data, group_size=4, bits=8)
    assert isinstance(report.model, MPQLinear) and report.layers[0].error < 0.01
    tied = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    tied[1].weight = tied[0].weight
    assert [layer.reason for layer in quantize(tied, data).skipped] == [
        "its parameter is shared: 0.weight, 1.weight"
    ] * 2
    double = quantize(nn.Sequential(nn.Linear(8, 8).double()), [data[0].double()])
    assert "dtype: expected float16, bfloat16 or float32, got torch.float64" in double.skipped[0].reason


@pytest.mark.parametrize("whole_zeros", [False, True])
def test_a_quantised_model_is_saved_loaded_and_trained(whole_zeros, tmp_path):
    model = made()
    options = {"bits": 4, "group_size": 8}
    quantize(model, batches(), whole_zeros=whole_zeros, **options)
    x = batches(1, first=9)[0]
    wanted = model.eval()(x)
    bie.save_checkpoint(model, tmp_path / "model.pt")
    other = made(1)
    bie.convert(
        other, {nn.Linear: MPQLinear}, filter=lambda name, _: name != "unused", use_gba_quant=not whole_zeros, **options
    )
    bie.load_checkpoint(other, tmp_path / "model.pt")
    assert torch.equal(other.eval()(x), wanted)
    model.train()
    optimizer = bie.optim.DiodeMix(model.parameters(), lr=1e-3)
    words = model.q.qweight.detach().clone()
    model(x).square().mean().backward()
    optimizer.step()
    assert not torch.equal(model.q.qweight, words) and model.twice.bias.grad is not None


def test_the_values_of_codes():
    coded = CodedWeight(
        torch.tensor([[1, 3], [0, 2]], dtype=torch.int32),
        torch.tensor([[0.5, 2.0]]),
        torch.tensor([[1.0, 0.25]]),
        torch.zeros(2, dtype=torch.int32),
        2,
    )
    assert coded.values().tolist() == [[-0.5, -1.0], [5.75, 3.75]]


def test_the_batches_of_a_loader_hold_labels(recwarn):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(16, 4)

        def forward(self, x, y):
            return self.inner(x + y)

    data = torch.utils.data.TensorDataset(torch.randn(24, 16), torch.zeros(24, dtype=torch.long))
    loader = torch.utils.data.DataLoader(data, 8)
    model = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 4))
    with pytest.warns(UserWarning, match="batches have 2 parts and Sequential.forward takes one"):
        assert len(quantize(model, loader, group_size=8).layers) == 2
    recwarn.clear()
    assert quantize(Two(), [(torch.randn(8, 16), torch.randn(8, 16))], group_size=8).layers
    assert not recwarn.list, "a tuple of arguments is no guess"
    with pytest.raises(ValueError, match=r"a batch has 3 parts, Two.forward takes another number; call= says how"):
        quantize(Two(), [(torch.randn(8, 16),) * 3])


def test_a_lazy_layer_is_left_with_its_reason():
    model = nn.Sequential(nn.Linear(16, 4), nn.LazyLinear(4))
    report = quantize(model, [torch.randn(8, 16)], group_size=8)
    assert [layer.reason for layer in report.skipped] == [
        "it is lazy: its sizes come with the first call, call the model once before"
    ] and len(report.layers) == 1
