"""What evaluation derives from a weight must never be seen in a result: gradients, stale forms, modes, options."""

import copy
import warnings

import pytest
import torch
from kinds import INTEGER, KINDS, as_loaded, formula
from torch import nn

from bie import load_checkpoint
from bie.nn import BinaryLinear, PlainBinaryLinear, Q4Linear, Q8Linear
from bie.weights.parameters import SignsParameter
from bitorch_engine.utils.model_helper import init_weight

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
every_integer = pytest.mark.parametrize("kind", INTEGER, ids=repr)


def gradients(layer, x):
    x = x.clone().requires_grad_()
    leaves = [x, *(p for p in (layer.scale_a, layer.bias_a) if p is not None)]
    return torch.autograd.grad(layer(x).square().sum(), leaves)


@every_kind
@pytest.mark.parametrize("form", ["kept", "beside", "alone"])
def test_evaluation_has_the_gradients_of_training(kind, form):
    layer, x = kind.trained(), kind.batch(1)
    wanted = gradients(layer, x)
    layer.eval()
    if form != "kept":
        layer.generate_quantized_weight(qweight_only=form == "alone")
    with torch.inference_mode():
        layer(x)
    with torch.no_grad():
        layer(x)
    for found in (gradients(layer, x), gradients(layer, x)):
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)


@every_kind
def test_a_file_with_an_old_packed_weight(kind, tmp_path):
    """BITorch Engine packs in the first evaluation and saves both: the training weight is the one that counts."""
    layer, x = kind.trained(), kind.batch(1)
    layer.generate_quantized_weight()
    old = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with torch.no_grad():
        layer.weight.copy_(layer.weight.flip(0, 1))
    wanted = formula(layer, x)
    assert "qweight" not in layer.state_dict()  # it is of an earlier weight
    both = layer.state_dict() | {"qweight": old["qweight"]}
    other = kind.make().eval()
    other.load_state_dict(both)
    assert torch.equal(other(x), wanted)
    torch.save({"state_dict": both}, tmp_path / "both.pt")
    for qweight_only in (True, False):
        other = kind.make().eval()
        load_checkpoint(other, tmp_path / "both.pt", qweight_only=qweight_only)
        assert (other.weight is None) == qweight_only
        assert torch.equal(other(x), wanted)


@pytest.mark.parametrize(
    ("kind", "packed"),
    # A float weight brings its own scale, and plain products have none.
    [(k, packed) for k in KINDS if not k.plain for packed in (False, True) if packed or k.integer],
    ids=repr,
)
def test_a_replaced_scale_is_used(kind, packed):
    layer, x = kind.trained().eval(), kind.batch(1)
    if packed:
        layer.generate_quantized_weight(qweight_only=True)
    y = layer(x)
    twice = layer.scale_w.detach() * 2
    torch.testing.assert_close(torch.func.functional_call(layer, {"scale_w": twice}, (x,)), 2 * y)
    assert torch.equal(layer(x), y)
    layer.scale_w = twice.clone()
    torch.testing.assert_close(layer(x), 2 * y)


@pytest.mark.parametrize("make", [Q8Linear, Q4Linear])
def test_eps_of_a_file_reaches_compiled_graphs(make):
    source, x = make(9, 4), torch.randn(3, 9)
    source(x)
    source.eps.fill_(0.5)
    layer = make(9, 4).eval()
    layer.load_state_dict(source.state_dict())
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x))
    y = layer(x)
    layer.eps.fill_(1e-5)
    layer.repack()
    assert not torch.equal(layer(x), y)


@every_kind
def test_a_packed_layer_keeps_its_panels_in_compiled_and_exported_graphs(kind):
    layer, x = kind.trained().eval(), kind.batch(1)
    layer.generate_quantized_weight(qweight_only=True)
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module

    torch._dynamo.reset()
    with torch.no_grad():
        assert torch.equal(torch.compile(layer, backend=backend, fullgraph=True)(x), layer(x))
    *_, call = [node for node in graphs[0].graph.nodes if "bie" in str(node.target)]  # behind what reads a layout
    # A flat layout of another class is read anew in each call, and so are its panels.
    assert (call.kwargs.get("panels") is not None) == (layer.qweight.dim() > 1)
    for strict in (False, True):
        program = torch.export.export(layer, (x,), strict=strict)
        calls = [node for node in program.graph.nodes if "bie" in str(node.target)]
        assert calls and calls[-1].kwargs.get("panels") is not None
    torch._dynamo.reset()


def packed_anew(kind, layer):
    """qweight of a layer that has the weight and the scales and knows nothing else."""
    fresh = kind.make()
    fresh.load_state_dict({name: tensor.clone() for name, tensor in layer.state_dict().items() if name != "qweight"})
    fresh.generate_quantized_weight()
    return fresh.qweight


@pytest.mark.parametrize("how", ["written", "assigned", "loaded"])
@pytest.mark.parametrize("moved", ["", "copied", "converted"])
@pytest.mark.parametrize("kind", [k for k in KINDS if not k.integer and not k.plain], ids=repr)
def test_a_packed_weight_beside_a_float_one_follows_its_scale(kind, how, moved):
    layer, x = kind.trained().eval(), kind.batch(1)
    layer.generate_quantized_weight()
    if moved:
        layer = copy.deepcopy(layer) if moved == "copied" else layer.to(torch.float64).to(torch.float32)
    assert torch.equal(layer(x), formula(layer, x))
    for factor in (2, 3):  # the first write finds the form that was asked for, the second what evaluation made of it
        scale = layer.scale_w.detach() * factor
        if how == "written":
            with torch.no_grad():
                layer.scale_w.copy_(scale)
        elif how == "assigned":
            layer.scale_w = scale
        else:
            layer.load_state_dict({"scale_w": scale}, strict=False)
        assert torch.equal(layer.opt_weight, packed_anew(kind, layer))
        state, packed = layer.state_dict(), kind.make().eval()
        assert "qweight" not in state
        assert torch.equal(layer(x), formula(layer, x))
        packed.load_state_dict({name: value for name, value in layer.state_dict().items() if name != "weight"})
        assert packed.weight is None and torch.equal(packed(x), layer(x))
        loaded = kind.make().eval()
        loaded.load_state_dict(state)
        assert torch.equal(loaded(x), layer(x))


def test_a_4_bit_layer_that_was_packed_keeps_its_scale():
    layer = Q4Linear(9, 4)
    assert not layer._prepared
    layer.generate_quantized_weight()
    scale = layer.scale_w.clone()
    with torch.no_grad():
        layer.weight.mul_(3)
    layer.train()(torch.randn(2, 9))
    layer.eval()(torch.randn(2, 9))
    assert torch.equal(layer.scale_w, scale) and torch.equal(copy.deepcopy(layer).packed_state()["scale_w"], scale)
    assert torch.equal(layer.opt_weight, copy.deepcopy(layer).opt_weight)


@every_kind
@pytest.mark.parametrize("deleted", [False, True])
def test_a_weight_that_comes_back_to_an_address_is_packed_anew(kind, deleted):
    layer, x = kind.trained(), kind.batch(1)
    other = layer.weight.detach().flip(0, 1).neg().clamp(-7, 7)
    layer.weight = nn.Parameter(other.neg(), requires_grad=other.is_floating_point())
    layer.generate_quantized_weight()
    values, dtype = other.tolist(), other.dtype
    if deleted:
        del layer.weight
    else:
        layer._parameters["weight"] = None  # as torch's own tools write it
    weight = nn.Parameter(torch.tensor(values, dtype=dtype), requires_grad=dtype.is_floating_point)
    if deleted:
        layer.weight = weight
    else:
        layer._parameters["weight"] = weight
    assert "qweight" not in layer.state_dict()
    layer.eval()
    assert torch.equal(packed_anew(kind, layer), layer.opt_weight)
    assert torch.equal(layer(x), formula(layer, x))


@every_kind
@pytest.mark.parametrize("beside", [False, True])
def test_a_weight_made_in_inference_mode_is_never_stale(kind, beside):
    layer, x = kind.trained().eval(), kind.batch(1)
    with torch.inference_mode():
        weight = layer.weight.detach().clone()
        layer.weight = nn.Parameter(weight, requires_grad=False)
        assert layer.weight.is_inference()
        for _ in range(3):
            if beside:
                layer.generate_quantized_weight()
            assert torch.equal(layer(x), formula(layer, x))
            layer.weight.copy_(layer.weight.flip(0).neg().clamp(-7, 7))
            assert torch.equal(packed_anew(kind, layer), layer.opt_weight)
            assert torch.equal(layer(x), formula(layer, x))
            packed = layer.packed_state()
            assert torch.equal(packed["qweight"], layer.opt_weight)
    assert torch.equal(layer(x), formula(layer, x))


def test_an_assigned_4_bit_weight_gets_a_scale_of_its_own():
    layer = Q4Linear(16, 8)
    layer.prepare_params()
    before = float(layer.scale_w)
    layer.weight = nn.Parameter(torch.randn(8, 16) * 100)
    layer(torch.randn(3, 16))
    assert float(layer.scale_w) > 20 * before


@every_integer
def test_requires_grad_of_an_integer_weight_freezes_it(kind):
    layer, x = kind.trained(), kind.batch(1)
    for p in layer.parameters():
        p.requires_grad = False
    assert not layer.weight.requires_grad and not layer.weight_trainable
    layer(x.requires_grad_()).sum().backward()
    assert layer.weight.grad is None
    for p in layer.parameters():
        p.requires_grad = True
    layer(x).sum().backward()
    assert layer.weight.grad is not None


@every_kind
def test_a_compiled_graph_follows_a_changed_packed_weight(kind):
    layer, x = kind.trained().eval(), kind.batch(1)
    layer.generate_quantized_weight(qweight_only=True)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        before = compiled(x)
        assert torch.equal(before, layer(x))
        layer.qweight.bitwise_not_()
        after = compiled(x)
        assert torch.equal(after, layer(x)) and not torch.equal(after, before)
    torch._dynamo.reset()


def test_a_weight_made_by_hand_trains():
    codes, scale = init_weight(torch.randn(4, 9), SignsParameter)
    layer = BinaryLinear(9, 4)
    layer.weight = codes
    layer.scale_w.data.copy_(scale)
    layer(torch.randn(3, 9)).sum().backward()
    assert layer.weight.grad is not None


def test_plain_products_are_float32():
    x = torch.ones(1, 1001, dtype=torch.bfloat16)
    layer = PlainBinaryLinear(1001, 1)
    layer.weight = nn.Parameter(torch.ones(1, 1001))
    assert layer(x).dtype == torch.float32 and float(layer(x)) == 1001


def test_a_packed_plain_layer_follows_its_weight():
    layer, x = PlainBinaryLinear(16, 4), torch.randn(3, 16)
    layer.generate_quantized_weight()
    with torch.no_grad():
        layer.weight.neg_()
    assert torch.equal(layer.eval()(x), formula(layer, x))


@every_kind
def test_subclasses_load_what_they_add(kind):
    base = type(kind.make())

    class More(base):
        def extend(self):
            self.gamma = nn.Parameter(torch.zeros(2))
            self.register_buffer("count", torch.zeros(()))
            self.norm = nn.BatchNorm1d(3)
            return self

    def make():
        layer = kind.make()
        layer.__class__ = More
        return layer.extend()

    source = make()
    with torch.no_grad():
        source.gamma.fill_(3)
        source.norm.weight.fill_(5)
    state = source.state_dict()
    target = make()
    target.load_state_dict(state)
    assert target.gamma.tolist() == [3, 3] and target.norm.weight.tolist() == [5, 5, 5]
    del state["gamma"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"gamma"'):
        target.load_state_dict(state)


def test_importing_under_another_default_changes_nothing():
    import subprocess
    import sys

    script = """
import torch
torch.set_default_dtype(torch.float64)
with torch.device("meta"), torch.inference_mode():
    from bie.nn import PlainBinaryLinear
    from bie.nn import Q4Linear
torch.set_default_dtype(torch.float32)
for layer in (PlainBinaryLinear(8, 4), Q4Linear(8, 4)):
    layer(torch.randn(2, 8)).sum().backward()
    layer.eval()(torch.randn(2, 8))
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@every_kind
def test_resetting_makes_a_new_layer_of_uninitialised_memory(kind):
    with torch.device("meta"):
        layer = kind.make(bias=True)
    layer.to_empty(device="cpu")
    layer.reset_parameters()
    x = kind.batch(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)
    assert torch.equal(layer(x), formula(layer, x))
    assert layer.bias_a is None or not layer.bias_a.any()
    layer.reset_parameters()
    assert layer.weight_form == "float" and (layer.scale_a is None or float(layer.scale_a.detach()) == 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.plain], ids=repr)
@pytest.mark.parametrize("prepared", [True, False])
def test_a_write_into_the_scale_is_seen(kind, prepared):
    layer, x = kind.trained() if prepared else kind.make(), kind.batch(1)
    if not prepared:
        layer.scale_a.data.fill_(0.3)
    layer.eval()(x)
    for factor in (0.25, 3.0, 0.5):
        with torch.no_grad():
            layer.scale_w.mul_(factor)
        assert torch.equal(layer(x), as_loaded(kind, layer, x))


def test_a_weight_that_is_transposed_in_its_memory_is_seen():
    layer, x = Q8Linear(16, 16), torch.randn(3, 16)
    layer(x)
    layer.eval()(x)
    layer.weight.data = layer.weight.data.t()
    assert torch.equal(layer(x), formula(layer, x))


@every_kind
@pytest.mark.parametrize("act", ["assigned", "eval"])
def test_whoever_sets_the_mode_forgets_what_was_packed(kind, act):
    layer, x = kind.trained().eval(), kind.batch(1)
    layer(x)
    if act == "assigned":
        layer.training = True
        layer.training = False
        layer.training = True
    layer.weight.data.copy_(layer.weight.detach().flip(0, 1))  # unseen, as what another process writes
    if act == "assigned":
        layer.training = False
    else:
        layer.eval()
    assert torch.equal(layer(x), as_loaded(kind, layer, x))
    layer.generate_quantized_weight(qweight_only=True)
    layer.training = True
    layer.training = False
    assert layer._packed_panels is not None
