"""BinaryConv2dBase holds state: sizes, weights, refusals. What computes waits for its operator."""

import copy
import math

import pytest
import torch

from bitorch_engine import ShapeError
from bitorch_engine.layers.qconv import BinaryConv2dBase, BinaryConvParameter


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
        with pytest.raises(ShapeError, match="BinaryConv2dBase: the weight is"):
            layer.set_weight_data(bad)
    packed = torch.randint(0, 256, (4, 3, 1, 2)).to(torch.uint8)
    with pytest.raises(NotImplementedError):
        layer.generate_quantized_weight(qweight_only=True)
    assert layer.weight is not None
    for bad in (packed[:3], packed.view(4, 6), packed.to(torch.int8)):
        with pytest.raises(ShapeError, match="BinaryConv2dBase: qweight is"):
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
        with pytest.raises(ShapeError, match=r"\[batch, 4, h, w\] is wanted"):
            layer._check_forward(bad)
    layer._check_forward(torch.ones(2, 4, 5, 5))
