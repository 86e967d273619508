"""State dicts in every form and both ways; what does not fit is one sentence and changes nothing in the layer."""

import io

import pytest
import safetensors.torch
import torch
from kinds import INTEGER, KINDS
from torch import nn

import bie
from bie.nn import BinaryLinear, Q4Conv2d, Q4Linear, Q8Linear
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearCPP
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)


def in_form(kind, form):
    """A layer whose scales are set, in a form of its weight."""
    torch.manual_seed(1)
    if form == "float":
        layer = kind.make().eval()
        if layer.scale_a is not None:
            layer.scale_a.data.fill_(0.7)
        return layer
    layer = kind.trained().eval()
    if form == "packed":
        layer.generate_quantized_weight(qweight_only=True)
    assert layer.weight_form == form
    return layer


def forms_of(kind):
    return ("float", "int8", "packed") if kind.integer else ("float", "packed")


every_form = pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind in KINDS for form in forms_of(kind)])
every_pair = pytest.mark.parametrize(
    ("kind", "form", "into"), [(kind, a, b) for kind in KINDS for a in forms_of(kind) for b in forms_of(kind)]
)


@every_pair
def test_every_form_into_every_form(kind, form, into):
    source, target = in_form(kind, form), in_form(kind, into)
    x = kind.batch(3)
    buffer = io.BytesIO()
    torch.save(source.state_dict(), buffer)
    buffer.seek(0)
    target.load_state_dict(torch.load(buffer, weights_only=True))
    assert target.weight_form == form
    assert torch.equal(target(x), source(x))
    saved, loaded = source.state_dict(), target.state_dict()
    assert saved.keys() == loaded.keys()
    for name, tensor in saved.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name


@every_form
def test_into_a_meta_layer_by_assignment(kind, form):
    source = in_form(kind, form)
    with torch.device("meta"):
        target = kind.make().eval()
    target.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(target(kind.batch()), source(kind.batch()))
    assert not any(tensor.is_meta for tensor in target.state_dict().values())


@every_form
def test_safetensors(kind, form, tmp_path):
    source = in_form(kind, form)
    safetensors.torch.save_model(source, tmp_path / "layer.safetensors")
    target = kind.make().eval()
    target.load_state_dict(safetensors.torch.load_file(tmp_path / "layer.safetensors"))
    assert torch.equal(target(kind.batch()), source(kind.batch()))


@every_integer
def test_an_int8_entry_stays_int8(kind):
    target = kind.make()
    weight = target.weight
    target.load_state_dict(kind.trained().state_dict())
    assert target.weight is weight and weight.dtype == torch.int8 and not weight.requires_grad
    assert type(weight) is kind.parameter


def test_layouts_of_other_classes():
    """Packed rows and the two flat layouts hold the same signs whichever class reads them."""
    x = torch.randn(3, 256)
    source = BinaryLinear(256, 32)
    source(x)
    source.eval()
    wanted = source(x)
    source.generate_quantized_weight(qweight_only=True)
    rows = source.state_dict()
    cuda = BinaryLinearCuda(256, 32)
    cuda.load_state_dict(rows)
    assert cuda.qweight.dim() == 1
    assert torch.equal(cuda.eval()(x), wanted)
    back = BinaryLinear(256, 32)
    back.load_state_dict(cuda.state_dict())
    assert torch.equal(back.qweight, source.qweight)


def test_column_packed_weights():
    layer = BinaryLinearCPP(16, 3)
    x = torch.randn(2, 16)
    y = layer(x)
    wanted = sum(int(layer.weight[2, 8 + i] >= 0) << i for i in range(8))
    layer.eval()
    layer.generate_quantized_weight(qweight_only=True)
    assert layer.qweight[1 * 3 + 2] == wanted  # rows 8..15 of column 2 of the transposed weight
    assert list(layer.state_dict()) == ["qweight"]
    assert torch.equal(layer(x), y)


def test_a_cut_off_bstc_weight_is_an_error_that_says_so():
    layer = BinaryLinearCuda(32, 20)
    state = layer.state_dict()
    del state["weight"]
    state["qweight"] = torch.zeros(32 * 20 // 8, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="cut"):
        layer.load_state_dict(state)


def wrong_entries(layer):
    good = layer.weight.detach()
    nan = good.clone()
    nan.view(-1)[0] = float("nan")
    yield "weight", good[:-1]
    yield "weight", good.long()
    yield "weight", good.bool()
    yield "weight", nan
    yield "weight", torch.tensor(1.0)
    yield "weight", "text"
    yield "qweight", torch.zeros(3, 3, dtype=torch.uint8)
    yield "qweight", torch.zeros(layer._packed_shape())
    yield "qweight", torch.zeros(0, dtype=torch.uint8)
    if layer.scale_a is not None:
        yield "bias_a", torch.zeros(99)
        yield "bias_a", torch.zeros_like(layer.bias_a, dtype=torch.int64)
        yield "bias_a", torch.full_like(layer.bias_a, float("inf"))
        yield "scale_a", torch.zeros(2)
        yield "scale_a", torch.tensor(float("nan"))
        yield "scale_a", torch.tensor(1)
        yield "scale_w", torch.tensor(-1.0)
    if layer._bits > 1:
        yield "eps", torch.tensor(0.0)
    if layer._bits == 4:
        yield "weight", torch.full_like(good, 8, dtype=torch.int8)


@every_kind
def test_what_does_not_fit_is_a_sentence_and_changes_nothing(kind):
    layer = kind.make()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    for name, wrong in wrong_entries(layer):
        state = dict(before)
        if name == "qweight":
            del state["weight"]
        state[name] = wrong
        for strict in (True, False):
            with pytest.raises(RuntimeError, match=f"entry '{name}'[: ]"):
                layer.load_state_dict(state, strict=strict)
        after = layer.state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(after[key], before[key]) for key in before)


@every_kind
def test_missing_and_unexpected_entries_are_named(kind):
    model = nn.Sequential(nn.Flatten(0, -1), kind.make())
    state = model.state_dict()
    for name in state:
        if name.endswith("eps"):
            continue
        less = {key: value for key, value in state.items() if key != name}
        with pytest.raises(RuntimeError, match=f'Missing key.*"{name}"'):
            model.load_state_dict(less)
        found = model.load_state_dict(less, strict=False)
        assert found.missing_keys == [name]
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"1\.more"'):
        model.load_state_dict(state | {"1.more": torch.zeros(1)})
    assert model.load_state_dict(state | {"1.more": torch.zeros(1)}, strict=False).unexpected_keys == ["1.more"]


def test_scales_of_16_bits_are_widened():
    layer = Q8Linear(9, 4, dtype=torch.bfloat16)
    state = layer.state_dict()
    state |= {"scale_a": torch.tensor([0.3], dtype=torch.float16), "scale_w": torch.tensor(0.1, dtype=torch.bfloat16)}
    layer.load_state_dict(state)
    assert layer.scale_a.dtype == layer.scale_w.dtype == torch.float32 and layer.scale_a.dim() == 0
    assert float(layer.scale_a) == float(torch.tensor(0.3, dtype=torch.float16))
    assert layer.bias_a.dtype == torch.bfloat16


def test_a_loaded_4_bit_layer_keeps_its_scale():
    source = Q4Linear(9, 4)
    source(torch.randn(3, 9))
    with torch.no_grad():
        source.weight.mul_(5)
    target = Q4Linear(9, 4)
    target.load_state_dict(source.state_dict())
    target(torch.randn(3, 9))
    assert float(target.scale_w) == float(source.scale_w)


def test_convolutions_of_old_files_warn():
    layer = Q4Conv2d(4, 4, 3)
    old = layer.state_dict()
    old._metadata[""]["version"] = 1
    with pytest.warns(UserWarning, match="computes no convolution"):
        layer.load_state_dict(old)
    point = Q4Conv2d(4, 4, 1)
    old = point.state_dict()
    old._metadata[""]["version"] = 1
    point.load_state_dict(old)


@every_kind
def test_packed_state_leaves_the_layer(kind):
    layer = kind.trained()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    packed = layer.packed_state()
    assert "weight" not in packed
    after = layer.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)
    other = kind.make().eval()
    other.load_state_dict(packed)
    assert torch.equal(other(kind.batch()), layer.eval()(kind.batch()))


def test_what_is_infinite_in_the_layers_dtype_is_refused():
    layer = Q8Linear(5, 3).half()
    for name in ("weight", "bias_a"):
        state = layer.state_dict()
        state[name] = torch.full(state[name].shape, 1e5)
        with pytest.raises(RuntimeError, match=f"'{name}' holds NaN or infinity in float16"):
            layer.load_state_dict(state)
    state = layer.state_dict() | {"scale_a": torch.tensor(1e300, dtype=torch.float64)}
    with pytest.raises(RuntimeError, match="'scale_a' is 1e\\+300"):
        layer.load_state_dict(state)
    assert all(tensor.isfinite().all() for tensor in layer.state_dict().values())


@every_kind
def test_a_packed_weight_of_the_caller_is_copied(kind):
    layer, other = kind.trained(1).eval(), in_form(kind, "packed")
    words = other.qweight.detach().clone()
    layer.set_quantized_weight_data(words)
    x = kind.batch(2)
    wanted = layer(x)
    words.zero_()
    layer.repack()
    assert torch.equal(layer(x), wanted) and layer.qweight.any()


@pytest.mark.parametrize("layer", [bie.nn.Q8Conv1d, bie.nn.Q4Conv1d, bie.nn.BinaryConv1d])
@pytest.mark.parametrize("assign", [False, True])
def test_a_float_checkpoint_of_a_convolution_along_one_axis_loads(layer, assign):
    torch.manual_seed(0)
    source = nn.Sequential(nn.Conv1d(4, 6, 5, padding=2, groups=2))
    target, other = (nn.Sequential(layer(4, 6, 5, padding=2, groups=2, bias=True)) for _ in range(2))
    missing, unexpected = target.load_state_dict(source.state_dict(), strict=False, assign=assign)
    assert not unexpected and not {"0.weight", "0.bias"} & set(missing)
    assert torch.equal(target[0].weight, source[0].weight.unsqueeze(2))
    other.load_state_dict({"0.weight": source[0].weight.unsqueeze(2), "0.bias": source[0].bias}, strict=False)
    x = torch.randn(2, 4, 9)
    assert torch.equal(target.eval()(x), other.eval()(x))
    other[0].set_weight_data(source[0].weight)
    assert other[0].weight.shape == (6, 2, 1, 5)
    with pytest.raises(RuntimeError, match="weight"):
        other.load_state_dict({"0.weight": torch.zeros(6, 2, 4)}, strict=False)
