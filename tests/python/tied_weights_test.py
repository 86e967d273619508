"""Layers that share an integer weight have one scale, whatever is done to them; weights put in by functional_call."""

import copy
import io
import pickle

import pytest
import torch
from kinds import INTEGER, KINDS, formula
from torch import nn

from bie.nn import Q8Linear
from bie.optim import DiodeMix

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)


def tied(kind, prepared=True):
    a, b = kind.trained() if prepared else kind.make(), kind.make()
    b.weight = a.weight
    model = nn.ModuleList([a, b])
    for layer in model if prepared else ():
        layer(kind.batch())
    return model


def through_a_file(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def loaded(model, into, **options):
    into.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, **options)
    return into


ACTS = {
    "none": lambda model, kind: model,
    "half": lambda model, kind: model.half().float(),
    "meta": lambda model, kind: loaded(model, copy.deepcopy(model).to("meta").to_empty(device="cpu")),
    "deepcopy": lambda model, kind: copy.deepcopy(model),
    "pickle": lambda model, kind: pickle.loads(pickle.dumps(model)),
    "file": lambda model, kind: through_a_file(model),
    "load": lambda model, kind: loaded(model, tied(kind)),
    "load_new": lambda model, kind: loaded(model, tied(kind, prepared=False)),
    "load_assign": lambda model, kind: loaded(model, tied(kind), assign=True),
    "twice": lambda model, kind: loaded(model, copy.deepcopy(model).bfloat16()).float(),
}


@every_integer
@pytest.mark.parametrize("act", ACTS)
def test_one_scale(kind, act):
    before = float(tied(kind)[0].scale_w)
    model = ACTS[act](tied(kind), kind)
    assert [float(layer.scale_w) for layer in model] == [before] * 2
    for layer in model:
        layer(kind.batch())
    if act not in ("load_assign", "meta"):  # where torch gives each layer a tensor of its own
        assert model[0].weight is model[1].weight
    for layer in model:
        with torch.no_grad():
            layer.weight.scale_w.mul_(2)  # as DiodeMix renews it
        layer.eval()
        for other in model:
            other.train()(kind.batch())
        if model[0].weight is model[1].weight:
            assert float(model[0].scale_w) == float(model[1].scale_w) != before
        assert torch.equal(layer(kind.batch(1)), formula(layer, kind.batch(1)))


@every_integer
def test_a_layer_that_leaves_takes_its_scale_along(kind):
    model, x = tied(kind), kind.batch(1)
    for stays, goes in ((0, 1), (1, 0)):
        pair = copy.deepcopy(model)
        scale = float(pair[stays].scale_w)
        pair[goes].weight = nn.Parameter(torch.randn(pair[goes]._weight_shape) * 9)
        pair[goes](x)
        assert float(pair[stays].scale_w) == float(pair[stays].weight.scale_w) == scale
        assert float(pair[goes].scale_w) == float(pair[goes].weight.scale_w) != scale
        pair[stays](x)
        assert float(pair[stays].scale_w) == scale
        pair = copy.deepcopy(model)
        pair[goes].generate_quantized_weight(qweight_only=True)
        pair[stays].scale_w.data.fill_(7)
        assert float(pair[goes].scale_w) == scale and float(pair[stays].weight.scale_w) == 7


@every_integer
def test_a_shared_weight_trains_and_renews_one_scale(kind):
    model = tied(kind)
    optimizer = DiodeMix(model.parameters(), lr=0.1, betas=(0.5, 0.5), renew_scale_every=1)
    model.half().float()
    for number in range(3):
        for layer in model:
            layer(kind.batch(number)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert float(model[0].scale_w) == float(model[1].scale_w)
    for layer in model.eval():
        assert torch.equal(layer(kind.batch(5)), formula(layer, kind.batch(5)))


@every_kind
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_float_weight_of_a_functional_call_stays_the_callers(kind, training, prepared):
    layer, x = kind.trained() if prepared else kind.make(), kind.batch(1)
    if not prepared and layer.scale_a is not None:
        layer.scale_a.data.fill_(0.5)
    layer.train(training)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    for weight in (torch.randn(layer._weight_shape), nn.Parameter(torch.randn(layer._weight_shape))):
        values = weight.detach().clone()
        y = torch.func.functional_call(layer, {"weight": weight.requires_grad_()}, (x,))
        assert weight.dtype == torch.float32 and torch.equal(weight, values)
        assert type(weight) in (torch.Tensor, nn.Parameter) and not hasattr(weight, "bits")
        if training:
            (gradient,) = torch.autograd.grad(y.square().sum(), weight)
            assert gradient.any()
    after = layer.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


@every_integer
def test_parameters_of_another_model_in_a_functional_call(kind):
    layer, other, x = kind.trained(), kind.trained(seed=6), kind.batch(1)
    before = [{k: v.clone() for k, v in model.state_dict().items()} for model in (layer, other)]
    for training in (True, False):
        layer.train(training)
        state = dict(other.named_parameters()) | dict(other.named_buffers())
        assert torch.equal(torch.func.functional_call(layer, state, (x,)), formula(other, x))
        torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
    for model, old in zip((layer, other), before, strict=True):
        assert all(torch.equal(tensor, old[name]) for name, tensor in model.state_dict().items())


@every_integer
def test_a_weight_put_in_place_past_the_setter_is_prepared(kind):
    """As loaders of large models do; nobody keeps the old one, as functional_call does."""
    layer, x = kind.trained(), kind.batch(1)
    layer._parameters["weight"] = nn.Parameter(torch.randn(layer._weight_shape))
    layer(x).square().sum().backward()
    assert layer.weight.dtype == torch.int8 and layer.weight.grad is not None
    layer = kind.make()
    layer.register_parameter("weight", nn.Parameter(torch.randn(layer._weight_shape)))
    layer(x).square().sum().backward()
    assert layer.weight.dtype == torch.int8 and layer.weight.grad is not None


@every_integer
@pytest.mark.parametrize("first", [0, 1])
def test_a_layer_that_never_ran_shows_the_scale_of_the_layer_it_shares_with(kind, first):
    model, x = tied(kind, prepared=False), kind.batch(1)
    model[first](kind.batch())
    model[1 - first].scale_a.data.copy_(model[first].scale_a.detach())
    scale = float(model[first].scale_w)
    assert scale != 1
    model.eval()
    for state in (layer.packed_state() for layer in model):
        assert float(state["scale_w"]) == scale
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model[1 - first], backend="eager")(x), model[first](x))
    other = loaded(model, tied(kind)).eval()
    assert [float(layer.scale_w) for layer in other] == [scale] * 2
    assert torch.equal(other[0](x), model[0](x))


@every_integer
def test_a_shared_weight_that_is_float_again_leaves_each_layer_its_own_scale(kind):
    model = tied(kind)
    model[0].set_weight_data(torch.randn(model[0]._weight_shape))
    model[1].weight = nn.Parameter(torch.randn(model[0]._weight_shape))
    for layer in model:
        layer.set_weight_data(torch.randn(model[0]._weight_shape))
        layer.prepare_params()
    before = float(model[0].scale_w)
    model[1].scale_w.data.fill_(3)
    assert float(model[0].scale_w) == before


def test_tied_weights_keep_one_scale():
    a, b = Q8Linear(9, 4, latent=False), Q8Linear(9, 4, latent=False)
    b.weight = a.weight
    x = torch.randn(3, 9)
    a(x), b(x)
    optimizer = DiodeMix(a.parameters(), lr=0.1, renew_scale_every=1)
    a(x).sum().backward()
    optimizer.step()
    a.eval(), b.eval()
    a(x), b(x)
    assert float(a.scale_w.detach()) == float(b.scale_w.detach())
