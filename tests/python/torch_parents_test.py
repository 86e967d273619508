"""Layers inside modules of torch that read the tensors of their children themselves."""

import copy
import io

import pytest
import torch
from torch import nn

from bie.conversion import carry, collect_layers, replace_layers
from bie.nn import BinaryLinear, Q4Linear, Q8Linear
from bitorch_engine.utils.convert import quantize_linear_with_q4_linear_cutlass

CLASSES = [BinaryLinear, Q4Linear, Q8Linear]
every_class = pytest.mark.parametrize("make", CLASSES)


def encoder_layer():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


def slow(layer, x):
    """What an encoder layer computes by its children's forward passes."""
    x = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
    return layer.norm2(x + layer.linear2(torch.relu(layer.linear1(x))))


@every_class
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_an_encoder_layer_calls_the_layers_put_into_it(make, bias, packed):
    torch.manual_seed(0)
    model, x = encoder_layer(), torch.randn(3, 5, 8)
    model.linear1, model.linear2 = make(8, 16, bias=bias), make(16, 8, bias=bias)
    model(x)
    model.eval()
    if packed:
        model.linear1.generate_quantized_weight(qweight_only=True)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.no_grad():
        for twin in (model, copy.deepcopy(model), torch.load(file, weights_only=False)):
            torch.testing.assert_close(twin(x), slow(model, x))


def test_replaced_layers_of_an_encoder_are_called():
    torch.manual_seed(0)
    model, x = nn.Sequential(encoder_layer()), torch.randn(3, 5, 8)
    quantize_linear_with_q4_linear_cutlass(model, list(collect_layers(model)))
    model(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), slow(model[0], x))


def test_padded_batches_of_an_encoder():
    """Of them the stack makes nested tensors unless it is told not to."""
    torch.manual_seed(0)
    model, x = nn.TransformerEncoder(encoder_layer(), 2), torch.randn(3, 5, 8)
    for layer in model.layers:
        layer.linear1 = carry(layer.linear1, Q8Linear)
    model(x)
    model.eval()
    padded = torch.zeros(3, 5, dtype=torch.bool)
    padded[1, 3:] = True
    with torch.no_grad():
        with pytest.raises(TypeError, match="enable_nested_tensor=False"):
            model(x, src_key_padding_mask=padded)
        wanted = x
        for layer in model.layers:
            wanted = layer(wanted, src_key_padding_mask=padded)
        model.use_nested_tensor = False
        assert torch.equal(model(x, src_key_padding_mask=padded), wanted)


@every_class
def test_attention_of_torch_refuses_layers_that_it_would_not_call(make):
    model = encoder_layer()
    before = model.self_attn.out_proj
    with pytest.raises(TypeError, match="never calls its out_proj"):
        model.self_attn.out_proj = make(8, 8)
    with pytest.raises(TypeError, match="never calls its out_proj"):
        replace_layers(model, ["linear1", "self_attn.out_proj"], make, lambda linear: carry(linear, make))
    assert model.self_attn.out_proj is before and type(model.linear1) is nn.Linear
