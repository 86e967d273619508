"""Weights that a model reads past forward, options that suit no layer, and the warnings of what would do nothing."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bie


class ReadsWeights(nn.Module):
    """As window attention does: one linear's weight goes to F.linear, the others are called."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = F.linear(x, self.qkv.weight, self.qkv.bias).chunk(3, -1)
        return self.proj(F.scaled_dot_product_attention(q, k, v))


class AsksDtype(nn.Module):
    """As a patch embedding does: x takes the dtype of the weight."""

    def __init__(self):
        super().__init__()
        self.patch, self.head = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        return self.head(self.patch(x.to(self.patch.weight.dtype)))


def batch():
    return torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(1))


SWAPS = {
    "convert": lambda model, target: bie.convert(model, target, batch=batch()),
    "post_training": lambda model, target: bie.post_training(model, [batch()], target),
}


@pytest.mark.parametrize(("make", "name"), [(ReadsWeights, "qkv"), (AsksDtype, "patch")])
@pytest.mark.parametrize("how", SWAPS)
def test_a_weight_that_is_read_past_forward_stays(how, make, name):
    model, x = make(), batch()
    wanted = model(x).detach()
    report = SWAPS[how](model, "q8")
    assert [(entry.name, "past its forward" in entry.reason) for entry in report.skipped] == [(name, True)]
    found = report.model.eval()
    bie.pack(found)
    assert type(found.get_submodule(name)) is nn.Linear
    with torch.no_grad():
        assert float((found(x) - wanted).norm() / wanted.norm()) < 0.1


def test_weights_alone_and_training_see_it_too():
    x = batch()
    model = ReadsWeights()
    report = bie.convert(model, "w4", batch=x)
    assert [entry.name for entry in report.swapped] == ["proj"] and model(x).shape == x.shape
    model = bie.prepare_qat(ReadsWeights(), "q8", loader=[x])
    assert type(model.qkv) is nn.Linear and isinstance(model.proj, bie.nn.Q8Linear)
    model = ReadsWeights()
    report = bie.quantization.quantize(model, [x], bits=4, group_size=32)
    assert [(entry.name, "past its forward" in entry.reason) for entry in report.skipped] == [("qkv", True)]
    assert [entry.name for entry in report.layers] == ["proj"] and model(x).shape == x.shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "int4"}, "activation: expected 'exact' or 'int8', got 'int4'"),
        ({"group_size": 0}, "group_size: expected -1 or a positive number, got 0"),
        ({"bits": 7}, "w_bit: expected 1, 2, 3, 4, 5, 6 or 8, got 7"),
        ({"dq_mode": 3}, "dq_mode: expected 1 or 2, got 3"),
    ],
)
def test_an_option_that_suits_no_layer_is_an_error_of_convert(options, message):
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    with pytest.raises(ValueError, match=message):
        bie.convert(model, "w4", **options)
    assert all(type(layer) is nn.Linear for layer in model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 7}, "expected 1, 2, 3, 4, 5, 6 or 8, got 7"),
        ({"group_size": 0}, "group_size: expected -1 or a positive number, got 0"),
        ({"damping": 0}, "damping: expected a positive number, got 0"),
        ({"activation": "int4"}, "activation: expected 'exact' or 'int8', got 'int4'"),
    ],
)
@pytest.mark.parametrize("method", ["gptq", "nearest"])
def test_an_option_that_suits_no_layer_is_an_error_of_quantize(method, options, message):
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    with pytest.raises(ValueError, match=message):
        bie.quantization.quantize(model, [torch.randn(4, 32)], method=method, **options)
    assert all(type(layer) is nn.Linear for layer in model)


def test_options_that_convolutions_alone_take_are_theirs():
    state = torch.get_rng_state()
    report = bie.convert(nn.Sequential(nn.Conv2d(3, 5, 3)), "binary", padding_value=-1)
    assert len(report.swapped) == 1
    torch.set_rng_state(state)
    first = torch.rand(1)
    torch.set_rng_state(state)
    bie.conversion._check_options(nn.Linear, bie.nn.Q8Linear, {})
    assert torch.equal(torch.rand(1), first), "a check draws no number"


def test_the_shape_of_a_layer_is_its_own_reason():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 4, 3))
    report = bie.convert(model, "q8")
    assert [entry.name for entry in report.skipped] == ["0"] and [entry.name for entry in report.swapped] == ["1"]


def test_a_second_conversion_and_a_calibration_of_floats_warn():
    model = nn.Sequential(nn.Linear(8, 8))
    with pytest.warns(UserWarning, match="has no quantised layer.*bie.convert first"):
        bie.calibrate(model, [torch.randn(2, 8)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bie.convert(model, "q8")
    with pytest.warns(UserWarning, match="1 layers are of this package already.*the float model"):
        bie.convert(model, "q4")
