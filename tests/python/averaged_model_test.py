"""Averages of models with integer weights, against averages by hand in float64."""

import copy
import io

import pytest
import safetensors.torch
import torch
from kinds import INTEGER, KINDS
from mpq_cases import CODED, inputs_of
from torch import nn
from torch.optim import swa_utils

from bie.nn import BinaryEmbeddingBag, BinaryLinear, Q8Linear, WeightOnlyLinear
from bie.optim import AveragedModel, DiodeMix
from bie.weights.parameters import AnchoredParameter

FUNCTIONS = {
    "swa": {},
    "swa_one": {"avg_fn": swa_utils.get_swa_avg_fn()},
    "ema": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.6)},
    "ema_one": {"avg_fn": swa_utils.get_ema_avg_fn(0.6)},
}


def meaning(layer):
    weight = layer.weight.detach().double()
    if layer._bits == 1:
        return torch.where(weight > 0, 1.0, -1.0).double()
    return weight * layer.scale_w.detach().double()


@pytest.mark.parametrize("kind", INTEGER, ids=repr)
@pytest.mark.parametrize("functions", FUNCTIONS)
@pytest.mark.parametrize("prepared", [False, True])
def test_integers_are_averaged_as_floats(kind, functions, prepared):
    torch.manual_seed(0)
    layer = kind.trained() if prepared else kind.make()
    averaged = AveragedModel(layer, **FUNCTIONS[functions])
    layer(kind.batch())
    wanted, generator = None, torch.Generator().manual_seed(3)
    for number in range(6):
        with torch.no_grad():
            limit = 8 if layer._bits == 4 else 100
            codes = torch.randint(1, limit, layer.weight.shape, generator=generator, dtype=torch.int8)
            layer.weight.copy_(codes * torch.randint(0, 2, codes.shape, generator=generator).mul(2).sub(1))
            layer.bias_a.add_(0.1)
        averaged.update_parameters(layer)
        now = meaning(layer)
        share = 0.4 if "ema" in functions else 1 / (number + 1)
        wanted = now if wanted is None else wanted + share * (now - wanted)
        twin = averaged.module
        if layer._bits == 1:
            sure = wanted.abs() > 1e-6
            assert torch.equal(meaning(twin)[sure], wanted.sign()[sure])
            assert not (twin.weight == 0).any()
        else:
            bound = 2 ** (layer._bits - 1)
            codes = (wanted / twin.scale_w.double()).clamp(-bound, bound - 1)
            assert float((twin.weight.double() - codes).abs().max()) < 0.501
        assert twin.weight.dtype == torch.int8 and not twin.weight.is_floating_point()
    file = io.BytesIO()
    torch.save(averaged.state_dict(), file)
    file.seek(0)
    other = AveragedModel(kind.make(), **FUNCTIONS[functions])
    other.load_state_dict(torch.load(file, weights_only=True))
    for model in (averaged, other, copy.deepcopy(averaged)):
        model.update_parameters(layer)
    for name, tensor in averaged.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(other.state_dict()[name], tensor), name
    assert torch.equal(other.eval()(kind.batch(1)), averaged.eval()(kind.batch(1)))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("qweight_only", [False, True])
def test_packed_weights_are_copied(kind, qweight_only):
    layer, x = kind.trained().eval(), kind.batch(1)
    model = nn.Sequential(layer, nn.PReLU())  # torch averages no models without parameters
    averaged = AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.7)).eval()
    layer.generate_quantized_weight(qweight_only=qweight_only)
    for _ in range(3):
        averaged.update_parameters(model)
    assert torch.equal(averaged(x), model(x))


@pytest.mark.parametrize("options", FUNCTIONS.values(), ids=FUNCTIONS)
def test_floats_beside_integers_are_averaged_as_torch_does(options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 9), BinaryLinear(9, 9), nn.BatchNorm1d(9), Q8Linear(9, 3))
    model(torch.randn(4, 5))
    plain = nn.ModuleList([model[0], model[2], model[3]])
    ours, theirs = AveragedModel(model, **options), swa_utils.AveragedModel(plain, **options)
    for _ in range(4):
        with torch.no_grad():
            for param in plain.parameters():
                param.add_(torch.randn(param.shape))
        ours.update_parameters(model), theirs.update_parameters(plain)
    for a, b in zip((ours.module[0], ours.module[2], ours.module[3]), theirs.module, strict=True):
        for name, tensor in a.state_dict().items():
            assert torch.equal(tensor, b.state_dict()[name])


def test_shared_weights_are_averaged_once():
    a, b = BinaryLinear(9, 9), BinaryLinear(9, 9)
    b.weight = a.weight
    model = nn.Sequential(a, b)
    model(torch.randn(3, 9))
    averaged = AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(model)
    with torch.no_grad():
        a.weight.neg_()
    averaged.update_parameters(model)
    assert averaged.module[0].weight is averaged.module[1].weight
    assert torch.equal(averaged.module[0].weight.sign(), -a.weight.sign())


def test_update_bn():
    torch.manual_seed(0)
    model = nn.Sequential(BinaryLinear(9, 8), nn.BatchNorm1d(8))
    batches = [torch.randn(6, 9) for _ in range(3)]
    optimizer = DiodeMix(model.parameters(), lr=0.5, betas=(0.5, 0.5))
    model(batches[0])
    averaged = AveragedModel(model)
    for x in batches:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        averaged.update_parameters(model)
    before = averaged.module[0].weight.clone()
    swa_utils.update_bn(batches, averaged)
    assert torch.equal(averaged.module[0].weight, before)
    outputs = torch.stack([averaged.module[0].train()(x).mean(0) for x in batches]).mean(0)
    torch.testing.assert_close(averaged.module[1].running_mean, outputs.detach())


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_averages_of_torch_are_refused_where_they_would_be_truncated(kind):
    latent = kind.make()
    for layer in (latent, nn.Sequential(kind.trained())):
        if kind.integer:
            with pytest.raises(TypeError, match="would truncate averages"):
                swa_utils.AveragedModel(layer)
        else:
            swa_utils.AveragedModel(layer)
    latent.generate_quantized_weight(qweight_only=True)
    with pytest.raises(TypeError, match="would truncate averages"):
        swa_utils.AveragedModel(latent)


def test_other_integers_are_refused():
    model = nn.Linear(3, 3)
    model.codes = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    with pytest.raises(TypeError, match="no bie layer"):
        AveragedModel(model).update_parameters(model)


@pytest.mark.parametrize("average", [swa_utils.AveragedModel, AveragedModel])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.integer], ids=repr)
def test_an_average_made_before_the_first_batch_computes_as_its_model(kind, average):
    layer, x = kind.make(), kind.batch(1)
    model = nn.Sequential(layer, nn.PReLU())
    averaged = average(model)
    averaged.eval()
    layer(kind.batch())
    with torch.no_grad():
        layer.weight.mul_(1.7)  # past the scale that the first batch gave it
    averaged.update_parameters(model)
    assert torch.equal(averaged(x), model.eval()(x))
    torch._dynamo.reset()
    graph = torch.compile(averaged.module, backend="aot_eager")
    assert torch.equal(graph(x), model(x))


def step(model, seed):
    """Other integers and floats, whatever an optimizer would make of them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.children():
            layer.weight.copy_(torch.randint(1, 8, layer.weight.shape, generator=generator) * (-1) ** seed)
            layer.scale_w.mul_(1.1)


def made(kind, seeds=range(3), **options):
    model = nn.Sequential(kind.trained(), kind.trained(1))
    averaged = AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), **options)
    for seed in seeds:
        step(model, seed)
        averaged.update_parameters(model)
    return model, averaged


@pytest.mark.parametrize("kind", INTEGER, ids=repr)
@pytest.mark.parametrize("way", ["module", "partly"])
def test_averages_of_weights_that_were_replaced_are_dropped(kind, way):
    model, averaged = made(kind)
    best, other = made(kind, range(10, 15))
    if way == "module":
        averaged.module.load_state_dict(best.state_dict())
    else:
        state = other.state_dict()
        del state["_extra_state"]
        averaged.load_state_dict(state, strict=False)
    before = copy.deepcopy(averaged.module)
    model.load_state_dict(before.state_dict())
    averaged.update_parameters(model)
    for a, b in zip(averaged.module, before, strict=True):
        assert torch.equal(a.weight.sign() if a._bits == 1 else a.weight, b.weight.sign() if a._bits == 1 else b.weight)


@pytest.mark.parametrize("kind", INTEGER, ids=repr)
def test_a_refused_load_leaves_the_averages(kind):
    _, averaged = made(kind)
    before = copy.deepcopy(averaged._averages)
    _, other = made(kind, range(10, 15))
    with pytest.raises(RuntimeError):
        averaged.load_state_dict(other.state_dict() | {"module.0.weight": torch.zeros(3, 3)})
    assert before and all(torch.equal(averaged._averages[name], before[name]) for name in before)
    averaged.load_state_dict(other.state_dict())
    assert all(torch.equal(averaged._averages[name], other._averages[name]) for name in before)


@pytest.mark.parametrize("kind", INTEGER, ids=repr)
def test_a_shared_scale_is_averaged_once(kind):
    model = nn.Sequential(kind.trained(), kind.make())
    model[1].weight = model[0].weight
    averaged = AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.5), use_buffers=True)
    averaged.update_parameters(model)
    before = float(model[0].scale_w)
    with torch.no_grad():
        model[0].scale_w.mul_(3)
    averaged.update_parameters(model)
    assert [float(layer.scale_w) for layer in averaged.module] == pytest.approx([2 * before] * 2)


def test_states_of_float_models_are_those_of_torch(tmp_path):
    model = nn.Sequential(nn.Linear(5, 3), Q8Linear(3, 2))
    ours, theirs = AveragedModel(model), swa_utils.AveragedModel(model)
    for averaged in (ours, theirs):
        averaged.update_parameters(model)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(ours.state_dict() | {"_extra_state": {}})
    safetensors.torch.save_file(ours.state_dict(), tmp_path / "averaged.safetensors")


def packed_of(layer):
    (packed,) = [param for param in layer.parameters() if isinstance(param, AnchoredParameter)]
    return packed


def opened(layer):
    """What a layer of CODED looks up or multiplies by, as floats."""
    layer = copy.deepcopy(layer).eval()
    if isinstance(layer, BinaryEmbeddingBag):
        return layer(torch.arange(layer.num_embeddings).unsqueeze(1)).double()
    if isinstance(layer, WeightOnlyLinear):
        return layer(torch.eye(layer.in_channels, dtype=layer.dtype)).double()
    return layer(torch.arange(layer.num_embeddings)).double()


@pytest.mark.parametrize("make", CODED.values(), ids=CODED)
def test_averages_of_torch_refuse_packed_codes(make):
    for model in (make(0), nn.Sequential(nn.Linear(3, 3), make(0))):
        with pytest.raises(TypeError, match="would truncate averages"):
            swa_utils.AveragedModel(model)


@pytest.mark.parametrize("options", [*FUNCTIONS.values(), {"use_buffers": True}], ids=[*FUNCTIONS, "buffers"])
@pytest.mark.parametrize("make", CODED.values(), ids=CODED)
def test_the_average_of_packed_codes_that_never_change_is_the_model(make, options):
    layer = make(0).eval()
    layer(inputs_of(layer))  # which prepares it
    averaged = AveragedModel(layer, **options)
    for _ in range(4):
        averaged.update_parameters(layer)
    x = inputs_of(layer)
    assert torch.equal(averaged.eval()(x), layer(x))
    assert torch.equal(opened(averaged.module), opened(layer))


@pytest.mark.parametrize("options", FUNCTIONS)
@pytest.mark.parametrize("name", CODED)
def test_packed_codes_are_averaged_as_the_floats_they_stand_for(name, options):
    layer = CODED[name](0).eval()
    layer(inputs_of(layer))  # which prepares it
    averaged = AveragedModel(layer, **FUNCTIONS[options])
    packed, generator, wanted = packed_of(layer), torch.Generator().manual_seed(1), None
    for number in range(5):
        words = packed.detach().view(torch.uint8)  # bytes of any kind are codes
        with torch.no_grad():
            if packed.dtype == torch.bool:
                packed.copy_(torch.rand(packed.shape, generator=generator) < 0.5)
            else:
                words.copy_(torch.randint(0, 256, words.shape, generator=generator))
        averaged.update_parameters(layer)
        now, share = opened(layer), 0.4 if "ema" in options else 1 / (number + 1)
        wanted = now if wanted is None else wanted + share * (now - wanted)
    found = opened(averaged.module)
    if name in ("signs", "bag"):
        sure = wanted.abs() > 1e-6
        assert torch.equal(found.sign()[sure], wanted.sign()[sure])
    elif name != "exl2":  # whose widths, and so whose ranges of codes, differ from row to row
        step, size = (float(tensor.detach().abs().max()) for tensor in (layer.scales, wanted))
        assert float((found - wanted).abs().max()) < 0.51 * step + 0.01 * size
    other = AveragedModel(CODED[name](3), **FUNCTIONS[options])
    other.load_state_dict(averaged.state_dict())
    for model in (averaged, other, copy.deepcopy(averaged)):
        model.update_parameters(layer)
    assert torch.equal(opened(averaged.module), opened(other.module))
