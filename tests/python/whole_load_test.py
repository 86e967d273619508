"""Loads of whole models: all or nothing, whatever hooks, wrappers and subclasses see of them."""

import collections
import copy
import gc
import itertools
import pickle
import subprocess
import sys

import pytest
import torch
from kinds import KINDS
from torch import nn

from bie import load_checkpoint
from bie.nn import BinaryLinear, Q8Linear, Q8MatMul

every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


class Net(nn.Module):
    """Every kind of layer, with layers of torch around them, and a product."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.layers = nn.ModuleList([kind.trained() for kind in KINDS])
        self.product = Q8MatMul()
        self.last = nn.BatchNorm1d(4)


def test_into_a_meta_model_by_assignment():
    source = Net()
    with torch.device("meta"):
        target = nn.ModuleDict({"product": Q8MatMul(), "layer": BinaryLinear(37, 13)})
    target["layer"].bias_a.requires_grad_(False)
    wanted = nn.ModuleDict({"product": source.product, "layer": source.layers[0]})
    target.load_state_dict(wanted.state_dict(), assign=True)
    assert not any(tensor.is_meta for tensor in target.state_dict().values())
    assert isinstance(target["product"].x_clip, nn.Parameter) and target["product"].x_clip.requires_grad
    assert not target["layer"].bias_a.requires_grad and target["layer"].scale_a.requires_grad
    x = torch.randn(1, 4, 37)
    target["product"](x, x)
    target["layer"](x)


def forms_and_tensors(model):
    """What a refused load must leave alone in our layers: forms, tensors, their objects."""
    ours = [*model.layers, model.product]
    tensors = [(t, t.dtype, t.detach().clone()) for m in ours for t in itertools.chain(m.parameters(), m.buffers())]
    return [layer.weight_form for layer in model.layers], tensors


def assert_unchanged(model, before):
    after = forms_and_tensors(model)
    assert after[0] == before[0] and len(after[1]) == len(before[1])
    for (tensor, dtype, value), (old, old_dtype, old_value) in zip(after[1], before[1], strict=True):
        assert tensor is old and dtype == old_dtype and torch.equal(value, old_value)


def a_file_of(model):
    """A state of other values and forms than the model's."""
    twin = copy.deepcopy(model)
    for layer in twin.layers:
        if layer.scale_a is not None:
            layer.scale_a.data.mul_(3)
        layer.generate_quantized_weight(qweight_only=True)
    for clip in (twin.product.x_clip, twin.product.y_clip):
        clip.data.fill_(7)
    return twin.state_dict()


def refusals(state):
    """(state, whether a load that is not strict refuses it too)"""
    yield state | {"last.weight": torch.zeros(5)}, True
    yield state | {"first.weight": torch.zeros(5)}, True
    yield state | {"layers.20.scale_a": torch.zeros(2)}, True
    yield state | {"product.y_clip": torch.tensor(float("nan"))}, True
    yield state | {"more": torch.zeros(1)}, False
    yield {name: tensor for name, tensor in state.items() if name != "last.bias"}, False
    yield {name: tensor for name, tensor in state.items() if name != "layers.25.qweight"}, False


@pytest.mark.parametrize("assign", [False, True])
def test_a_refused_load_changes_no_layer_of_a_model(assign):
    model = Net()
    state, before = a_file_of(model), forms_and_tensors(model)
    for refused, always in refusals(state):
        with pytest.raises(RuntimeError, match="loading state_dict"):
            model.load_state_dict(refused, assign=assign)
        assert_unchanged(model, before)
        if always:
            with pytest.raises(RuntimeError, match="loading state_dict"):
                model.load_state_dict(refused, strict=False, assign=assign)
            assert_unchanged(model, before)
    assert not model._load_state_dict_post_hooks
    model.load_state_dict(state | {"more": torch.zeros(1)}, strict=False, assign=assign)
    assert all(layer.weight_form == "packed" for layer in model.layers) and float(model.product.x_clip) == 7


@pytest.mark.parametrize("assign", [False, True])
def test_a_load_that_is_refused_after_the_roots_hooks_changes_no_layer(assign):
    model, seen = Net(), []
    state, before = a_file_of(model), forms_and_tensors(model)

    def forgive(root, keys):
        keys.unexpected_keys[:] = [key for key in keys.unexpected_keys if key != "more"]
        seen.append(model.layers[0].weight_form)

    handle = model.register_load_state_dict_post_hook(forgive)
    for refused in (
        {name: tensor for name, tensor in state.items() if name != "last.bias"},
        state | {"more": torch.zeros(1), "another": torch.zeros(1)},
    ):
        with pytest.raises(RuntimeError, match=r"last\.bias|another"):
            model.load_state_dict(refused, assign=assign)
        assert_unchanged(model, before)
    model.load_state_dict(state, assign=assign)
    assert seen == ["int8", "int8", "packed"]
    model = Net()
    model.register_load_state_dict_post_hook(forgive)
    model.load_state_dict(state | {"more": torch.zeros(1)}, assign=assign)
    assert all(layer.weight_form == "packed" for layer in model.layers) and float(model.product.x_clip) == 7
    assert len(model._load_state_dict_post_hooks) == 1
    handle.remove()


def test_a_refused_checkpoint_changes_nothing(tmp_path):
    model = Net()
    state, before = a_file_of(model), forms_and_tensors(model)
    floats = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state |= {"first.weight": torch.zeros(2, 3)}
    for refused, _ in refusals(state):
        torch.save({"state_dict": refused}, tmp_path / "model.pt")
        with pytest.raises(RuntimeError, match="loading state_dict"):
            load_checkpoint(model, tmp_path / "model.pt")
        assert_unchanged(model, before)
        assert all(torch.equal(tensor, floats[name]) for name, tensor in model.state_dict().items())


def test_a_load_that_ended_in_an_exception_leaves_nothing_behind():
    model = nn.Sequential(Q8Linear(4, 4), nn.Linear(4, 4))
    wrong, right = Q8Linear(4, 4), Q8Linear(4, 4)

    def fail(*_):
        raise KeyError("a hook of somebody else")

    handle = model[1].register_load_state_dict_pre_hook(fail)
    state = model.state_dict()
    with pytest.raises(KeyError):
        model.load_state_dict(state | {"0." + name: tensor for name, tensor in wrong.state_dict().items()})
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model[:1])))
    handle.remove()
    before = model[0].weight.detach().clone()
    model[1].load_state_dict(nn.Linear(4, 4).state_dict())
    assert torch.equal(model[0].weight, before)
    for loaded in (model, twin):
        state = loaded.state_dict() | {"0." + name: tensor for name, tensor in right.state_dict().items()}
        loaded.load_state_dict(state)
        assert torch.equal(loaded[0].weight, right.weight) and not loaded._load_state_dict_post_hooks


@pytest.mark.parametrize("where", ["root", "layer", "between"])
def test_hooks_after_a_load_see_what_was_loaded(where):
    model = nn.Sequential(nn.Sequential(Q8Linear(4, 4)), nn.Linear(2, 2))
    layer, seen = model[0][0], []
    module = {"root": model, "layer": layer, "between": model[0]}[where]

    def look(_, keys):
        keys.missing_keys.clear()
        seen.append(layer.weight.detach().clone())

    handle = module.register_load_state_dict_post_hook(look)
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    assert torch.equal(seen[0], state["0.0.weight"])
    del state["1.bias"]
    if where == "root":
        model.load_state_dict(state)
        assert torch.equal(layer.weight, state["0.0.weight"])
    handle.remove()
    model.load_state_dict(state, strict=False)
    assert len(seen) == (2 if where == "root" else 1)


def test_a_layer_is_read_by_hand_too():
    layer, other = Q8Linear(4, 4), Q8Linear(4, 4)
    missing, unexpected, errors = [], [], []
    layer._load_from_state_dict(other.state_dict(), "", {}, True, missing, unexpected, errors)
    assert not errors and torch.equal(layer.weight, other.weight)


def test_load_hooks_run():
    layer = Q8Linear(4, 4)
    seen = []
    layer.register_load_state_dict_pre_hook(lambda module, state, prefix, *_: seen.append(prefix))
    nn.ModuleDict({"a": layer}).load_state_dict(
        collections.OrderedDict({f"a.{k}": v for k, v in layer.state_dict().items()})
    )
    assert seen == ["a."]


class Registers(nn.Module):
    """Registers a post hook of the model while the model loads."""

    def _load_from_state_dict(self, *args):
        super()._load_from_state_dict(*args)
        if not self.seen:
            self.handles.append(self.root.register_load_state_dict_post_hook(lambda module, keys: self.seen.append(1)))
            self.seen.append(0)


class Raises(nn.Module):
    def _load_from_state_dict(self, *args):
        raise KeyError


@pytest.mark.parametrize("when", ["inside", "after_an_exception"])
def test_a_post_hook_registered_around_a_load_stays(when):
    model, seen, handles = nn.Sequential(Q8Linear(4, 4)), [], []
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if when == "inside":
        model.append(Registers())
        model[1].__dict__.update(root=model, seen=seen, handles=handles)
    else:
        model.append(Raises())
        with pytest.raises(KeyError):
            model.load_state_dict(state)
        model[1] = nn.Identity()
        handles.append(model.register_load_state_dict_post_hook(lambda module, keys: seen.append(1)))
    for number in range(1, 4):
        model.load_state_dict(state)
        assert sum(seen) == number
    twin = copy.deepcopy(model)
    assert len(twin._load_state_dict_post_hooks) == 1
    gc.collect()
    handles[0].remove()
    model.load_state_dict(state)
    assert sum(seen) == 3 and not model._load_state_dict_post_hooks


@every_kind
def test_a_subclass_that_overrides_the_load_sees_what_was_loaded(kind):
    class Reads(type(kind.make())):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)
            self.__dict__["seen"] = self.weight.detach().clone()

    layer, other = kind.trained(), kind.make()
    other.__class__ = Reads
    nn.Sequential(other, nn.ReLU()).load_state_dict(nn.Sequential(layer, nn.ReLU()).state_dict())
    assert torch.equal(other.seen, layer.weight) and torch.equal(other.weight, layer.weight)


@pytest.mark.parametrize("before_our_import", [True, False])
def test_a_wrapped_load_state_dict(before_our_import):
    lines = [
        "import torch",
        "from bie.nn import Q8Linear as Q",
        "load = torch.nn.Module.load_state_dict",
        "def wrapped(self, *args, **options): return load(self, *args, **options)",
        "torch.nn.Module.load_state_dict = wrapped",
        "a, b = Q(4, 4), Q(4, 4)",
        "a.load_state_dict(b.state_dict())",
        "assert torch.equal(a.weight, b.weight)",
        "state = a.state_dict() | {'scale_a': torch.zeros(3)}",
        "try: a.load_state_dict(state)",
        "except RuntimeError: print('refused')",
    ]
    if before_our_import:
        lines.insert(4, lines.pop(1))
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr
