"""What is made of a layer under ``torch.inference_mode()`` can be trained afterwards."""

import copy

import pytest
import torch
from kinds import KINDS, formula
from mpq_cases import CODED, inputs_of

from bie.nn import BinaryEmbeddingBag, MBWQLinear, MPQLinear, Q4MatMul, Q8MatMul, WeightOnlyEmbedding
from bie.optim import DiodeMix

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


def assert_trains(layer, kind):
    """Gradients for all, a step that evaluation sees, and no tensor of inference mode."""
    assert not any(tensor.is_inference() for tensor in (*layer.parameters(), *layer.buffers()))
    x = kind.batch(2)
    layer.train()
    optimizer = DiodeMix(layer.parameters(), lr=0.5, betas=(0.5, 0.5))
    for _ in range(3):
        layer(x).square().sum().backward()
        assert all(p.grad is not None for p in (layer.weight, layer.scale_a, layer.bias_a) if p is not None)
        optimizer.step()
        optimizer.zero_grad()
    layer.eval()
    assert torch.equal(layer(x), formula(layer, x))


def made(kind):
    return kind.make(bias=True)


def prepared(kind):
    layer = kind.make()
    if layer._bits > 1 or layer.scale_a is not None:
        layer.prepare_params()
    return layer


def first_trained(kind):
    layer = kind.make()
    layer(kind.batch())
    return layer


def reset(kind):
    layer = kind.trained()
    layer.reset_parameters()
    return layer


def given(kind):
    layer = kind.trained()
    layer.set_weight_data(torch.randn(layer._weight_shape))
    layer.weight = torch.randn(layer._weight_shape)
    return layer


def packed_beside(kind):
    layer = kind.trained().eval()
    layer(kind.batch())
    layer.generate_quantized_weight()
    layer(kind.batch())
    return layer


def converted(kind):
    return kind.trained().to(torch.bfloat16).float()


def loaded(kind, **options):
    """A float layer takes what a trained one holds."""
    layer = kind.make()
    layer.load_state_dict({name: tensor.clone() for name, tensor in kind.trained().state_dict().items()}, **options)
    return layer


def assigned(kind):
    return loaded(kind, assign=True)


@every_kind
@pytest.mark.parametrize(
    "act", [made, prepared, first_trained, reset, given, packed_beside, converted, loaded, assigned]
)
def test_layers_of_inference_mode_train(kind, act):
    with torch.inference_mode():
        layer = act(kind)
    assert_trains(layer, kind)


@every_kind
@pytest.mark.parametrize("act", ["prepare", "train", "load", "assign"])
def test_ordinary_layers_still_train(kind, act):
    layer, source = kind.make(), kind.trained()
    with torch.inference_mode():
        if act in ("prepare", "train") and layer.scale_a is not None:
            layer.prepare_params()
        if act == "train":
            layer(kind.batch())
        if act in ("load", "assign"):
            state = {name: tensor.clone() for name, tensor in source.state_dict().items()}
            layer.load_state_dict(state, assign=act == "assign")
    assert_trains(layer, kind)


@every_kind
def test_inference_stays_possible_with_copies_made_in_it(kind):
    layer, x = kind.trained().eval(), kind.batch(1)
    with torch.inference_mode():
        twin = copy.deepcopy(layer)
        twin(x)
        twin.bfloat16().float()
        twin.load_state_dict(layer.state_dict())
        assert torch.equal(twin(x), layer(x))
        twin.generate_quantized_weight(qweight_only=True)
        assert torch.equal(twin(x), layer(x))
        twin.load_state_dict(layer.state_dict())
        assert torch.equal(twin(x), layer(x))


@pytest.mark.parametrize("make", [Q4MatMul, Q8MatMul])
def test_products_made_in_inference_mode_train(make):
    with torch.inference_mode():
        product = make()
        product(torch.randn(1, 3, 5), torch.randn(1, 2, 5))
        product.half().float()
    x, y = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    product(x, y).sum().backward()
    assert product.x_clip.grad is not None


def coded_made(make):
    return make(1)


def coded_used(make):
    layer = make(1)
    layer(inputs_of(layer))
    return layer


def coded_moved(make):
    return make(1).to(torch.float16).to("cpu").float()


def coded_loaded(make):
    layer = make(1)
    layer.load_state_dict(make(2).state_dict())
    layer.load_state_dict(copy.deepcopy(make(2).state_dict()), assign=True)
    return layer


def coded_given(make):
    layer = make(1)
    if isinstance(layer, MBWQLinear):
        layer.set_qweight_data(layer.qweight.clone())
        layer.set_scales(layer.scales.clone())
        layer.set_zeros(layer.zeros.clone())
    elif isinstance(layer, MPQLinear):
        layer.set_weight_data(torch.randn(layer.out_channels, layer.in_channels))
        layer.set_qweight_data(layer.qweight.clone())
    elif isinstance(layer, WeightOnlyEmbedding):
        layer.set_weight_data(torch.randn(layer.num_embeddings, layer.embedding_dim))
    return layer


@pytest.mark.parametrize("make", CODED.values(), ids=CODED)
@pytest.mark.parametrize("way", [coded_made, coded_used, coded_moved, coded_loaded, coded_given])
def test_packed_codes_of_inference_mode_train(make, way):
    with torch.inference_mode():
        layer = way(make)
    layer.train()
    x = inputs_of(layer)
    packed = layer.weight if isinstance(layer, BinaryEmbeddingBag) else layer.qweight
    layer(x)  # prepares a new table of signs
    optimizer, before = DiodeMix(layer.parameters(), lr=0.5, betas=(0.5, 0.5)), packed.detach().clone()
    for _ in range(5):  # signs flip in each
        layer(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(packed, before)
    y = layer.eval()(x)
    assert torch.equal(y, copy.deepcopy(layer)(x))
    assert not any(tensor.is_inference() for tensor in (*layer.parameters(), *layer.buffers()))


@pytest.mark.parametrize("move", ["half", "bfloat16", "float"])
@pytest.mark.parametrize("when", ["before", "between"])
def test_what_the_codes_cannot_hold_trains_on_in_another_dtype(move, when):
    layer = CODED["master"](1).train()
    x = inputs_of(layer)
    if when == "before":
        getattr(layer, move)()
    optimizer = DiodeMix(layer.parameters(), lr=0.1)
    for number in range(7):  # the fifth step moves the zeros
        layer(x).square().sum().backward()
        optimizer.step()
        if number == 3 and when == "between":
            getattr(layer, move)()
    assert layer.rest.dtype == torch.bfloat16 and layer.rest.any() and layer.qweight.rest is layer.rest
