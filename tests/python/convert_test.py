"""Swapping layers of a model: names, weights, biases, dtypes, modes, shared modules, reasons, the root."""

import copy
import warnings

import pytest
import torch
from torch import nn

from bie import convert
from bie.conversion import collect_layers, replace_layers
from bie.nn import BinaryConv2d, BinaryLinear, PlainBinaryLinear, Q4Conv2d, Q4Linear, Q8Conv2d, Q8Linear
from bitorch_engine.layers.qconv.binary.cutlass import BinaryConv2dCutlass
from bitorch_engine.layers.qconv.nbit import cutlass as conv
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearCutlass
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearCutlass, Q8LinearCutlass
from bitorch_engine.utils import convert as drop_in
from bitorch_engine.utils.convert import (
    get_mpq_config,
    quantize_linear_with_binary_linear_cuda,
    quantize_linear_with_mpq_linear_cuda,
    quantize_linear_with_q4_linear_cutlass,
)
from bitorch_engine.utils.model_helper import init_weight

LINEAR = [BinaryLinear, BinaryLinearCuda, PlainBinaryLinear, Q8Linear, Q4Linear]


class Mlp(nn.Module):
    """Linears in a module, in a Sequential, in a ModuleList and in a ModuleDict."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(9, 16)
        self.body = nn.Sequential(nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Sequential(nn.Linear(16, 16)))
        self.rest = nn.ModuleList([nn.Linear(16, 16)])
        self.named = nn.ModuleDict({"tail": nn.Linear(16, 5)})

    def forward(self, x):
        return self.named["tail"](self.rest[0](self.body(self.head(x))))


NAMES = ["head", "body.0", "body.2.0", "rest.0", "named.tail"]


def types(model):
    return {name: type(module).__name__ for name, module in model.named_modules() if not list(module.children())}


def same_weight(layer, linear):
    """The layer's weight is what it makes of the linear's."""
    if layer.weight.dtype == torch.int8:
        q, scale = init_weight(linear.weight.detach())
        assert torch.equal(layer.weight, q) and torch.equal(layer.scale_w, scale)
    else:
        assert torch.equal(layer.weight, linear.weight.to(layer.weight.dtype))
    if linear.bias is None:
        assert layer.bias is None
    else:
        assert torch.equal(layer.bias, linear.bias) and layer.bias.dtype == linear.bias.dtype
    return True


# BITorch Engine's functions


def test_collect_layers():
    model = Mlp()
    found = collect_layers(model)
    assert list(found) == NAMES and found["body.2.0"] is model.body[2][0]
    assert list(collect_layers(model, [nn.ReLU])) == ["body.1"]
    assert list(collect_layers(model.body, parent_name="body")) == ["body.0", "body.2.0"]
    assert collect_layers(nn.Linear(2, 2)).keys() == {""}

    class Special(nn.Linear):
        pass

    assert not collect_layers(nn.Sequential(Special(2, 2)))


def test_collect_layers_names_a_shared_module_twice():
    model = nn.Module()
    model.a = model.b = nn.Linear(2, 2)
    assert list(collect_layers(model)) == ["a", "b"]


@pytest.mark.parametrize(
    ("function", "cls"),
    [
        (quantize_linear_with_binary_linear_cuda, BinaryLinearCuda),
        (quantize_linear_with_q4_linear_cutlass, Q4LinearCutlass),
    ],
)
def test_the_scripts_idiom(function, cls):
    """collect, leave the first and the last, quantise, and everything was replaced."""
    model = Mlp().eval()
    before = copy.deepcopy(model)
    layers = collect_layers(model)
    del layers["head"], layers["named.tail"]
    made = function(model, layers)
    assert len(made) == 3 and all(type(layer) is cls for layer in made)
    assert [name for name, kind in types(model).items() if kind == cls.__name__] == NAMES[1:4]
    for name in NAMES[1:4]:
        assert same_weight(model.get_submodule(name), before.get_submodule(name))
        assert not model.get_submodule(name).training
    assert type(model.head) is nn.Linear and torch.equal(model.head.weight, before.head.weight)
    model.train()
    model(torch.randn(4, 9)).sum().backward()
    assert not function(model, layers)  # they are there already


@pytest.mark.parametrize(
    ("target", "linear", "conv2d"),
    [
        ("binary", BinaryLinearCutlass, BinaryConv2dCutlass),
        ("q4", Q4LinearCutlass, conv.Q4Conv2dCutlass),
        ("q8", Q8LinearCutlass, conv.Q8Conv2d),
    ],
)
def test_targets_of_the_other_name(target, linear, conv2d):
    """bitorch_engine's convert makes its own classes, which compute what ours do; other targets are bie.convert's."""
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(12, 5))
    ours = convert(model, target, inplace=False).model
    theirs = drop_in.convert(model, target, inplace=False, filter=lambda name, module: True).model
    assert [type(layer) for layer in theirs] == [conv2d, nn.Flatten, linear]
    x = torch.randn(4, 1, 3, 3)
    assert torch.equal(theirs(x), ours(x))
    assert type(drop_in.convert(nn.Linear(3, 2), Q8Linear).model) is Q8Linear
    with pytest.raises(
        ValueError, match="target: expected binary, q4, q8, w1, w2, w3, w4, w5, w6, w8 or a class, got 'q3'"
    ):
        drop_in.convert(model, "q3")


def test_parent_name():
    model = Mlp()
    made = quantize_linear_with_q4_linear_cutlass(model.body, NAMES, parent_name="body")
    assert len(made) == 2 and isinstance(model.body[0], Q4Linear) and type(model.head) is nn.Linear


@pytest.mark.parametrize(("strategy", "worst"), [("8-128-256", 0.02), ("4-128-256", 0.25), (None, 1.0)])
def test_mpq_carries_weights_and_biases(strategy, worst):
    model, x = Mlp(), torch.randn(5, 9, generator=torch.Generator().manual_seed(1))
    wanted = model(x).detach()
    made = quantize_linear_with_mpq_linear_cuda(model, collect_layers(model), strategy, dtype=torch.float32)
    assert len(made) == len(NAMES) and {type(layer).__name__ for layer in made} == {"MPQLinearCuda"}
    assert float((model(x) - wanted).norm() / wanted.norm()) < worst
    assert [layer.disable_bias for layer in made].count(True) == 1


@pytest.mark.parametrize("name", [None, "2-8-32", "2-32-32", "2-128-32", "4-128-256", "8-128-256"])
def test_mpq_config(name):
    w_bit, group, dq = map(int, (name or "2-32-32").split("-"))
    plain = {"dq_mode": 2, "use_gba_quant": True, "asym": False}
    assert get_mpq_config(name) == {**plain, "w_bit": w_bit, "group_size": group, "dq_group_size": dq}


def test_an_unknown_mpq_strategy():
    with pytest.raises(AssertionError, match=r"get_mpq_config: expected one of .*, got '3-1-1'"):
        get_mpq_config("3-1-1")


def test_replace_layers_makes_one_of_a_shared_module():
    model = nn.Module()
    model.a = model.b = nn.Linear(4, 4)
    made = replace_layers(model, ["a", "b"], nn.ReLU, lambda old: nn.ReLU())
    assert model.a is model.b and made == [model.a, model.b]


def test_replace_layers_refusals():
    model = Mlp()
    before = types(model)
    with pytest.raises(ValueError, match=r"no layer 'body\.7', 'tail'"):
        replace_layers(model, ["head", "tail", "body.7"], nn.ReLU, lambda old: nn.ReLU())
    with pytest.raises(TypeError, match="head: expected a ReLU in its place, got a Identity"):
        replace_layers(model, ["rest.0", "head"], nn.ReLU, lambda old: nn.Identity())
    with pytest.raises(ValueError, match="cannot be replaced in place"):
        replace_layers(nn.Linear(2, 2), [""], nn.ReLU, lambda old: nn.ReLU())
    with pytest.raises(ValueError, match="float64"):
        quantize_linear_with_q4_linear_cutlass(model.double(), ["head"])
    assert types(model) == before
    assert replace_layers(model, [], nn.ReLU, lambda old: nn.ReLU()) == []


# convert


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cls", LINEAR)
def test_everything_is_carried_over(cls, dtype, training):
    model = Mlp().to(dtype).train(training)
    model.rest.train(not training)
    model.body[0].weight.requires_grad_(False)
    model.head.bias.requires_grad_(False)
    before = copy.deepcopy(model)
    report = convert(model, cls)
    assert [entry.name for entry in report.swapped] == NAMES and not report.skipped and report.model is model
    for name in NAMES:
        layer, linear = model.get_submodule(name), before.get_submodule(name)
        assert type(layer) is cls and layer.training == linear.training
        if cls is PlainBinaryLinear:
            assert layer.weight.dtype == torch.float32
            assert torch.equal(layer.weight, linear.weight.float())
        else:
            assert same_weight(layer, linear) and layer.dtype == dtype
        assert layer.device == linear.weight.device
        assert layer.weight_trainable == linear.weight.requires_grad
        if layer.weight.is_floating_point():
            assert layer.weight.requires_grad == linear.weight.requires_grad
        if linear.bias is not None:
            assert layer.bias.requires_grad == linear.bias.requires_grad


@pytest.mark.parametrize("cls", LINEAR)
def test_the_device_is_carried_over(cls):
    model = nn.Sequential(nn.Linear(8, 4, device="meta"))
    convert(model, cls)
    assert type(model[0]) is cls
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}


def test_a_converted_q8_model_computes_nearly_the_same():
    model = Mlp()
    x = torch.randn(64, 9)
    wanted = model(x)
    converted = convert(model, Q8Linear, inplace=False).model
    error = (converted(x) - wanted).square().mean() / wanted.square().mean()
    assert error < 1e-2
    assert type(model.head) is nn.Linear and torch.equal(model(x), wanted)


def test_the_filter_is_asked_once_for_each_layer_with_its_name():
    model = Mlp()
    asked = []

    def middle(name, module):
        asked.append((name, type(module)))
        return name not in ("head", "named.tail")

    report = convert(model, Q4Linear, filter=middle)
    assert asked == [(name, nn.Linear) for name in NAMES]
    assert [entry.name for entry in report.swapped] == NAMES[1:4]
    assert [(entry.name, entry.reason) for entry in report.skipped] == [
        ("head", "the filter says so"),
        ("named.tail", "the filter says so"),
    ]


def test_the_report_is_a_table():
    report = convert(Mlp(), BinaryLinearCuda, filter=lambda name, module: name != "head")
    lines = str(report).splitlines()
    assert lines[0].split() == ["layer", "was", "weight", "is"]
    assert lines[1].split() == ["body.0", "Linear", "16x16", "BinaryLinearCuda"]
    assert lines[5].split(maxsplit=3) == ["head", "Linear", "16x9", "unchanged: the filter says so"]
    assert lines[6] == "4 swapped, 1 unchanged"
    assert len({line.index(word) for line, word in zip(lines[1:5], ["16x16"] * 3 + ["5x16"], strict=True)}) == 1


@pytest.mark.parametrize(
    ("target", "linear", "conv"),
    [
        ("binary", BinaryLinear, BinaryConv2d),
        ("q4", Q4Linear, Q4Conv2d),
        ("q8", Q8Linear, Q8Conv2d),
        (Q4Conv2d, nn.Linear, Q4Conv2d),
        (Q8Linear, Q8Linear, nn.Conv2d),
        ({nn.Linear: PlainBinaryLinear, nn.Conv2d: Q4Conv2d}, PlainBinaryLinear, Q4Conv2d),
    ],
)
def test_targets(target, linear, conv):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    convert(model, target)
    assert (type(model[0]), type(model[2])) == (conv, linear)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("q3", ValueError),
        (nn.ReLU, TypeError),
        ({nn.Linear: nn.Linear}, TypeError),
        ({nn.ReLU: Q4Linear}, TypeError),
        ({}, TypeError),
        ({nn.Linear: Q4Conv2d}, TypeError),
    ],
)
def test_targets_that_are_refused(target, error):
    with pytest.raises(error, match="convert:"):
        convert(Mlp(), target)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (3, 1), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)},
        {"kernel_size": 2, "padding": "valid"},
        {"kernel_size": 3, "padding": 1, "groups": 3},
    ],
)
def test_convolutions(options, bias):
    model = nn.Sequential(nn.Conv2d(3, 6, bias=bias, **options)).to(memory_format=torch.channels_last)
    before = copy.deepcopy(model)
    x = torch.randn(16, 3, 9, 8)
    convert(model, Q4Conv2d)
    layer = model[0]
    assert same_weight(layer, before[0])
    y, wanted = layer(x), before(x)
    assert y.shape == wanted.shape
    assert (y - wanted).square().mean() < 0.1 * wanted.square().mean()


@pytest.mark.parametrize(
    ("conv", "words"),
    [
        (nn.Conv2d(4, 4, 2, padding="same"), "padding is 'same'"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "padding_mode: expected 'zeros', got 'reflect'"),
        (nn.Conv2d(4, 4, 3).double(), "float64"),
    ],
)
def test_convolutions_that_stay(conv, words):
    model = nn.Sequential(conv)
    report = convert(model, Q4Conv2d)
    assert model[0] is conv and words in report.skipped[0].reason and not report.swapped


def test_channels_of_different_sizes_keep_their_precision():
    """With a scale of its own no channel is rounded by the largest one's step."""
    errors = []
    for channel_scale in (False, True):
        torch.manual_seed(0)
        conv = nn.Conv2d(4, 6, 3, bias=False)
        with torch.no_grad():
            conv.weight *= torch.logspace(-2, 0, 6).view(-1, 1, 1, 1)
        layer = convert(nn.Sequential(conv), "q8", channel_scale=channel_scale).model[0]
        x = torch.randn(8, 4, 9, 9)
        wanted = conv(x)
        error = (layer(x) - wanted).square().mean((0, 2, 3)) / wanted.square().mean((0, 2, 3))
        errors.append(float(error[0]))
    assert errors[1] < 1e-2 and errors[0] > 0.5


@pytest.mark.parametrize("groups", [1, 2])
def test_binary_convolutions_are_grouped_and_padded_as_their_source(groups):
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=groups)
    with torch.no_grad():
        conv.weight.sign_()
    layer = convert(nn.Sequential(conv), BinaryConv2d, latent=True, small_groups=True).model[0]
    assert layer.padding_value == 0 and layer.groups == groups
    x = torch.randn(2, 4, 5, 5).sign()
    with torch.no_grad():
        layer.scale_a.fill_(1)
        torch.testing.assert_close(layer(x), conv(x))
    assert convert(nn.Sequential(conv), "binary", padding_value=-1, small_groups=True).model[0].padding_value == -1


def test_shared_modules_stay_shared():
    model = nn.Module()
    model.block = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    model.again = model.block
    model.linear = model.block[0]
    report = convert(model, Q4Linear)
    assert isinstance(model.linear, Q4Linear)
    assert model.linear is model.block[0] and model.again is model.block
    assert [entry.name for entry in report.swapped] == ["block.0"]


def test_shared_parameters_are_left():
    model = nn.Module()
    model.embedding = nn.Embedding(7, 5)
    model.head = nn.Linear(5, 7, bias=False)
    model.head.weight = model.embedding.weight
    model.other = nn.Linear(5, 5)
    report = convert(model, Q8Linear)
    assert type(model.head) is nn.Linear and isinstance(model.other, Q8Linear)
    reasons = {entry.name: entry.reason for entry in report.skipped}
    assert reasons["head"] == "its parameter is shared: embedding.weight, head.weight"


@pytest.mark.parametrize("inplace", [True, False])
def test_the_root(inplace):
    linear = nn.Linear(7, 3).eval()
    report = convert(linear, BinaryLinear, inplace=inplace)
    assert isinstance(report.model, BinaryLinear) and not report.model.training
    assert same_weight(report.model, linear)
    assert "(the model)" in str(report)


def test_the_root_in_place_is_only_in_the_report():
    linear = nn.Linear(7, 3)
    assert convert(linear, Q4Linear, filter=lambda name, module: False).model is linear
    assert convert(linear, Q4Linear, filter=lambda name, module: False, inplace=False).model is not linear


def test_what_reads_weights_past_forward_is_left():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    report = convert(model, Q4Linear)
    assert [entry.name for entry in report.swapped] == ["linear1", "linear2"]
    reasons = {entry.name: entry.reason for entry in report.skipped}
    assert reasons["self_attn"] == "there is no such layer for MultiheadAttention"
    assert "NonDynamicallyQuantizableLinear" in reasons["self_attn.out_proj"]


def test_hooks_and_parametrisations_are_left():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].register_forward_hook(lambda *_: None)
    nn.utils.parametrizations.weight_norm(model[1])
    report = convert(model, Q4Linear)
    assert report.skipped[0].reason == "it has hooks"
    assert "Parametrized" in report.skipped[1].source and len(report.swapped) == 1


def test_options_go_to_the_constructor():
    model = nn.Sequential(nn.Linear(6, 2))
    convert(model, BinaryLinearCuda, symmetric=False, latent=True)
    assert model[0].symmetric is False and model[0].weight.is_floating_point()
    with pytest.raises(TypeError):
        convert(nn.Sequential(nn.Linear(6, 2)), BinaryLinearCuda, no_such_option=1)


def test_converting_twice_changes_nothing():
    model = Mlp()
    convert(model, Q4Linear)
    layers = [model.get_submodule(name) for name in NAMES]
    report = convert(model, Q4Linear)
    assert not report.swapped and not report.skipped
    assert all(model.get_submodule(name) is layer for name, layer in zip(NAMES, layers, strict=True))


def test_weights_that_are_not_finite_stay_with_a_reason():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].weight.data[1, 1] = float("nan")
    report = convert(model, BinaryLinear)
    assert "NaN or infinity" in report.skipped[0].reason and type(model[0]) is nn.Linear


@pytest.mark.parametrize("target", ["q8", "q4", "binary"])
def test_a_batch_gives_the_step_sizes_of_a_model_in_evaluation(target):
    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).eval()

    x = torch.randn(16, 6)
    model = convert(made(), target, batch=x).model
    by_hand = convert(made(), target).model
    for layer in (by_hand[0], by_hand[3]):
        layer.train()
    with torch.no_grad():
        by_hand(x)
    assert [module.training for module in model.modules()] == [False] * 5
    assert float(model[0].scale_a.detach()) != 0 and torch.equal(model[3].scale_a, by_hand[3].scale_a)
    assert not model[1].running_mean.any(), "statistics do not move"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(model(x), by_hand.eval()(x))


def test_a_batch_of_several_arguments():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, a, b):
            return self.linear(a + b)

    report = convert(Sum().eval(), "q8", batch=(torch.ones(2, 4), torch.ones(2, 4)))
    assert float(report.model.linear.scale_a.detach()) != 0
    with pytest.raises(TypeError):
        convert(Sum().eval(), "q8", batch=torch.ones(2, 4))
