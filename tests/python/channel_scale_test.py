"""Scales of output channels: how a weight is split, files, dtypes. kinds.py has such layers for all other tests."""

import pytest
import torch
from kinds import KINDS

from bie.nn import BinaryLinear, Q4Conv2d, Q4Linear, Q8Conv2d, Q8Linear

LAYERS = {
    "q8": lambda **k: Q8Linear(33, 7, channel_scale=True, **k),
    "q4": lambda **k: Q4Linear(33, 7, channel_scale=True, **k),
    "q8_conv": lambda **k: Q8Conv2d(3, 7, (3, 2), channel_scale=True, **k),
    "q4_conv": lambda **k: Q4Conv2d(4, 7, 3, channel_scale=True, **k),
}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def sized(layer, seed=0):
    """A weight whose channels are of sizes 1 to 7, the last one all zeros."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(layer.weight.shape, generator=g)
    weight *= torch.arange(1, 8).view(-1, *[1] * (weight.dim() - 1))
    weight[-1] = 0
    return weight


@every_layer
def test_a_weight_is_split(make):
    layer = make()
    assert layer.channel_scale.eq(1).all() and not layer.channel_scale.requires_grad
    weight = sized(layer)
    layer.set_weight_data(weight)
    means = layer.weight.detach().flatten(1).abs().mean(1)
    torch.testing.assert_close(means[:-1], weight.abs().mean().expand(6))
    assert layer.channel_scale[-1] == 1 and not layer.weight[-1].any()
    along = layer.channel_scale.view(-1, *[1] * (weight.dim() - 1))
    torch.testing.assert_close(layer.weight.detach() * along, weight)
    layer.set_weight_data(torch.ones_like(weight))
    assert layer.channel_scale.eq(1).all()
    layer.set_weight_data(weight)
    layer.reset_parameters()
    assert layer.channel_scale.eq(1).all()


@every_layer
def test_files(make):
    """Float and packed: the keys, the numbers, and a sentence for what does not fit."""
    layer, x = make(), torch.randn(5, 33)
    if layer.weight.dim() == 4:
        x = torch.randn(2, layer.in_channels, 6, 5)
    layer.set_weight_data(sized(layer))
    layer(x)
    layer.eval()
    y = layer(x)
    for state in (layer.state_dict(), layer.packed_state()):
        assert state["channel_scale"].shape == (7,)
        other = make().eval()
        other.load_state_dict(state)
        assert torch.equal(other(x), y)
        other.generate_quantized_weight(qweight_only=True)
        assert torch.equal(other(x), y)
        with pytest.raises(RuntimeError, match="channel_scale"):
            other.load_state_dict({name: tensor for name, tensor in state.items() if name != "channel_scale"})
        for bad in (torch.ones(6), torch.ones(()), torch.ones(7, dtype=torch.int8), torch.full((7,), float("nan"))):
            with pytest.raises(RuntimeError, match="the entry 'channel_scale'"):
                other.load_state_dict(state | {"channel_scale": bad})
    plain = type(layer)(33, 7) if layer.weight.dim() == 2 else type(layer)(layer.in_channels, 7, layer.kernel_size)
    with pytest.raises(RuntimeError, match=r"Unexpected.*channel_scale"):
        plain.load_state_dict(layer.state_dict())


@every_layer
def test_conversions_leave_it_float32(make):
    layer = make()
    layer.set_weight_data(sized(layer))
    scales = layer.channel_scale.clone()
    for move in (lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.float()):
        assert torch.equal(move(layer).channel_scale, scales) and layer.channel_scale.dtype == torch.float32
    assert "scales of channels" in repr(layer)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_layers_without_it_have_no_such_key(kind):
    layer = kind.make()
    assert ("channel_scale" in layer.state_dict()) == (layer.channel_scale is not None)


def test_binary_layers_have_none():
    with pytest.raises(TypeError, match="channel_scale"):
        BinaryLinear(8, 8, channel_scale=True)
