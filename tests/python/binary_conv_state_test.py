"""BinaryConv2dBase holds state: sizes, weights, refusals. The layouts of packed filters and old files."""

import copy
import math

import pytest
import torch

from bie import ShapeError
from bie.nn import BinaryConv2d
from bitorch_engine.layers.qconv import BinaryConv2dBase, BinaryConvParameter
from bitorch_engine.layers.qconv.binary.cpp import BinaryConv2dCPP
from bitorch_engine.layers.qconv.binary.cpp import BinaryConv2dForward as PlainForward
from bitorch_engine.layers.qconv.binary.cutlass import BinaryConv2dCutlass, BinaryConv2dForward


def test_the_weight_is_kaiming_uniform():
    torch.manual_seed(3)
    layer = BinaryConv2dBase(64, 32, 3)
    bound = 1 / math.sqrt(64 * 9)  # sqrt(6 / ((1 + 5) * fan_in))
    assert layer.weight.dtype == torch.float32 and layer.weight.requires_grad
    assert layer.weight.abs().max() <= bound
    assert abs(layer.weight.std().item() - bound / math.sqrt(3)) < 0.02 * bound
    assert abs(layer.weight.mean().item()) < 0.02 * bound
    before = layer.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, before)


def test_weights_can_be_set():
    layer = BinaryConv2dBase(16, 4, (3, 1), dtype=torch.half)
    assert layer.dtype in (torch.float16, torch.float32)
    weight = torch.randn(4, 16, 3, 1).bfloat16()
    layer.set_weight_data(weight)
    assert torch.equal(layer.weight, weight.float()) and layer.weight.requires_grad
    for bad in (torch.ones(4, 16, 1, 3), torch.ones(4, 16, 3, 1, dtype=torch.int8), torch.ones(3)):
        with pytest.raises(ShapeError, match=r"BinaryConv2dBase: the weight: expected .*, got"):
            layer.set_weight_data(bad)
    packed = torch.randint(0, 256, (4, 3, 1, 2)).to(torch.uint8)
    with pytest.raises(NotImplementedError):
        layer.generate_quantized_weight(qweight_only=True)
    assert layer.weight is not None
    for bad in (packed[:3], packed.view(6, 4), packed.to(torch.int8)):
        with pytest.raises(ShapeError, match=r"BinaryConv2dBase: qweight: expected .*, got"):
            layer.set_quantized_weight_data(bad)
    layer.set_bits_binary_word(32)
    assert layer.bits_binary_word == 32


def test_copies_keep_the_class():
    layer = BinaryConv2dBase(8, 8, 3, 2, 1, 2, symmetric=False, bias=True)
    twin = copy.deepcopy(layer)
    assert twin.symmetric is False and (twin.stride, twin.padding, twin.dilation) == (2, 1, 2)
    twin.load_state_dict({"weight": torch.ones(8, 8, 3, 3), "bias": torch.zeros(8)})
    assert (twin.weight == 1).all()
    parameter = BinaryConvParameter(torch.ones(2, 2, 1, 1, dtype=torch.int8))
    assert type(copy.deepcopy(parameter)) is BinaryConvParameter and not parameter.requires_grad


@pytest.mark.parametrize(
    "sizes", [(0, 4, 3), (4, 0, 3), (4, 4, 0), (4, 4, 3, 0), (4, 4, 3, 1, -1), (4, 4, 3, 1, 0, 0), (4, 4, (3, 3, 3))]
)
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError):
        BinaryConv2dBase(*sizes)


def test_inputs_are_checked():
    layer = BinaryConv2dBase(4, 4, 3)
    for bad in (torch.ones(2, 3, 5, 5), torch.ones(4, 5, 5)):
        with pytest.raises(ShapeError, match=r"x: expected \[batch, 4, height, width\], got"):
            layer._check_forward(bad)
    layer._check_forward(torch.ones(2, 4, 5, 5))


def packed_rows(operators, weight):
    return operators.pack_signs(weight.flatten(1))


@pytest.mark.parametrize("channels", [16, 3])
@pytest.mark.parametrize("cls", [BinaryConv2dCutlass, BinaryConv2dCPP])
def test_every_layout_of_a_packed_filter_loads(operators, cls, channels):
    """Labelled, as flat rows and flat: the bytes are the same."""
    torch.manual_seed(0)
    source = cls(channels, 5, (3, 2)).eval()
    x = torch.randn(2, channels, 6, 6)
    if source.scale_a is not None:
        source.scale_a.data.fill_(0.5)
    wanted, state = source(x), source.packed_state()
    rows = packed_rows(operators, source.weight)
    forms = [rows, rows.flatten()] + ([rows.view(5, 3, 2, 2)] if channels == 16 else [])
    for form in forms:
        layer = cls(channels, 5, (3, 2)).eval()
        layer.load_state_dict(state | {"qweight": form})
        assert layer.weight is None and torch.equal(layer(x), wanted)
        assert torch.equal(layer.qweight, state["qweight"])
    for bad in (rows[:4], rows.view(-1, 1), rows.to(torch.int8)):
        with pytest.raises(RuntimeError, match="qweight"):
            cls(channels, 5, (3, 2)).load_state_dict(state | {"qweight": bad})


def test_one_weight_is_one_bit_in_the_order_in_kh_kw():
    for i in range(48):
        layer = BinaryConv2dCutlass(8, 2, (3, 2), latent=True)
        with torch.no_grad():
            layer.weight.fill_(-1)
            layer.weight[1].view(-1)[i] = 1
        layer.generate_quantized_weight(qweight_only=True)
        expected = torch.zeros(2, 6, dtype=torch.uint8)
        expected[1, i // 8] = 1 << i % 8
        assert torch.equal(layer.qweight.view(2, 6), expected)


@pytest.mark.parametrize(("kernel", "warns"), [(3, True), ((1, 2), True), (1, False)])
def test_files_trained_on_a_gpu_of_bitorch_engine_warn(kernel, warns, recwarn):
    state = BinaryConv2dCutlass(8, 4, kernel).state_dict()
    state._metadata[""]["version"] = 1
    BinaryConv2dCutlass(8, 4, kernel).load_state_dict(state)
    found = [str(w.message) for w in recwarn]
    assert len(found) == warns and all("the accuracy does not carry over" in text for text in found)
    BinaryConv2dCutlass(8, 4, kernel).load_state_dict(BinaryConv2dCutlass(8, 4, kernel).state_dict())
    assert len(recwarn) == warns


def test_functions_take_every_form_of_the_weight(operators):
    torch.manual_seed(1)
    x, weight = torch.randn(2, 5, 6, 7), torch.randn(4, 5, 3, 3)
    rows = packed_rows(operators, weight)
    scales, moves = (torch.tensor(0.5), torch.tensor(0.25)), (3, (2, 1), 1, 1)
    wanted = BinaryConv2dForward.apply(x, weight, *scales, True, *moves)
    assert torch.equal(wanted, operators.binary_conv2d(x, weight, *scales, stride=(2, 1), padding=1))
    for form in (rows, (weight * 100).to(torch.int8).clamp(-127, 127) | 1):
        y = BinaryConv2dForward.apply(x, form, *scales, False, *moves)
        assert not y.requires_grad
        assert form is not rows or torch.equal(y, wanted)
    plain = wanted * 8
    for form in (weight, rows, rows.flatten()):
        assert torch.equal(PlainForward.apply(x, form, 2 * 42, 4, 45, *moves, 3), plain)


@pytest.mark.parametrize("cls", [BinaryConv2d, BinaryConv2dBase, BinaryConv2dCutlass, BinaryConv2dCPP])
def test_options_are_checked(cls):
    for groups in (0, -1, 3, True, 1.0):
        with pytest.raises(
            ValueError, match=r"groups(: expected a positive integer, got| is 3, which does not divide)"
        ):
            cls(4, 6, 3, groups=groups)
    for value in (1, -2, True, 0.5):
        with pytest.raises(ValueError, match="padding_value: expected -1 or 0, got"):
            cls(4, 6, 3, padding_value=value)


def test_grouped_layers_say_what_they_are_and_what_they_take():
    layer = BinaryConv2dCutlass(4, 6, 3, groups=2, padding_value=0)
    assert "groups=2" in repr(layer) and "padding_value=0" in repr(layer)
    assert layer.bias_a.shape == (4,) and layer.weight.shape == (6, 2, 3, 3)
    for bad in (torch.ones(1, 4, 2, 9), torch.ones(1, 4, 9, 9, dtype=torch.float64), torch.ones(1, 2, 9, 9)):
        for mode in (True, False):
            with pytest.raises(ShapeError, match=r"BinaryConv2dCutlass: x: expected .*, got"):
                layer.train(mode)(bad)
