"""The contract in api.toml, entry by entry: imports, signatures, attributes, state-dict keys in every form."""

import enum
import importlib
import inspect
from pathlib import Path

import pytest
import torch

from bie.weights.parameters import QuantParameter

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from bitorch_engine.layers.qlinear.binary.cuda.bmm import BMM

CONTRACT = tomllib.loads(Path(__file__).with_name("api.toml").read_text())["name"]
UPDATE = (
    "(qweight, exp_avg_s=None, exp_avg_l=None, step=None, lr=1e-4, weight_decay=0.0, beta1=0.99, beta2=0.9999, "
    "eps=1e-6, dtype=torch.half, correct_bias=None, projector=None, grad=None)"
)
WORLD = {"torch": torch, "BMM": BMM, "enum": enum}
FORMS = {
    "float": lambda layer: None,
    "int8": lambda layer: layer.prepare_params(),
    "prepared": lambda layer: layer.prepare_params(),
    "packed": lambda layer: layer.generate_quantized_weight(qweight_only=True),
}
PACKAGES = ["", ".layers", ".layers.qlinear", ".layers.qconv", ".layers.qembedding", ".layers.qmha"]
PACKAGES += [".functions", ".utils", ".optim", ".extensions"]


def label(entry):
    place = entry.get("module", entry.get("package"))
    return f"{place.removeprefix('bitorch_engine.')}.{entry['name']}"


def places(entry):
    return [entry[key] for key in ("package", "module") if key in entry] + entry.get("also", [])


def load(entry):
    return getattr(importlib.import_module(places(entry)[0]), entry["name"])


def entries(*keys):
    chosen = [entry for entry in CONTRACT if all(key in entry for key in keys)]
    return pytest.mark.parametrize("entry", chosen, ids=label)


def makes(key):
    chosen = [(entry, make) for entry in CONTRACT for make in entry.get("make", []) if key in make]
    return pytest.mark.parametrize(("entry", "make"), chosen, ids=[f"{label(e)}({m['args']})" for e, m in chosen])


def construct(entry, make):
    return eval(f"cls({make['args']})", {**WORLD, "cls": load(entry)})


def wanted_parameters(text):
    scope = dict(WORLD)
    exec(f"def wanted{UPDATE if text == 'UPDATE' else text}: pass", scope)
    return list(inspect.signature(scope["wanted"]).parameters.values())


def check_signature(callable_, text, *, drop=0):
    """BITorch Engine's arguments in its order with its defaults; then ours, keyword-only with defaults."""
    found = list(inspect.signature(callable_).parameters.values())[drop:]
    for wanted in wanted_parameters(text):
        same = [p for p in found if p.name == wanted.name]
        assert same, f"there is no argument {wanted.name}"
        assert same[0].kind == wanted.kind, f"{wanted.name} is {same[0].kind.description}"
        required = wanted.default is wanted.empty  # ours may have a default there
        assert required or same[0].default == wanted.default, f"the default of {wanted.name} is {same[0].default}"
    names = [p.name for p in wanted_parameters(text)]
    assert [p.name for p in found if p.name in names] == names, "another order"
    for extra in (p for p in found if p.name not in names):
        ours = extra.kind == extra.KEYWORD_ONLY and extra.default is not extra.empty
        assert ours or extra.kind == extra.VAR_KEYWORD, f"{extra} is no keyword-only argument with a default"


@pytest.mark.parametrize("package", PACKAGES)
def test_packages(package):
    assert hasattr(importlib.import_module(f"bitorch_engine{package}"), "__path__")


def test_constants():
    import bitorch_engine
    from bitorch_engine.extensions import EXTENSION_PREFIX

    assert bitorch_engine.torch_int_gradients_support is True
    assert EXTENSION_PREFIX == "bitorch_engine.extensions."


def test_the_contract_has_no_entry_twice():
    keys = [(places(entry)[-1], entry["name"]) for entry in CONTRACT]
    assert len(keys) == len(set(keys))


@entries()
def test_every_path_gives_the_same_object(entry):
    found = {place: getattr(importlib.import_module(place), entry["name"]) for place in places(entry)}
    assert len({id(thing) for thing in found.values()}) == 1
    for place in places(entry):
        exported = getattr(importlib.import_module(place), "__all__", [entry["name"]])
        assert entry["name"] in exported, f"{place}.__all__ lacks it"


@entries("is")
def test_aliases(entry):
    other = next(e for e in CONTRACT if e["name"] == entry["is"])
    assert load(entry) is load(other)


@entries("bases")
def test_bases(entry):
    for base in entry["bases"]:
        known = next((e for e in CONTRACT if e["name"] == base), None)
        parent = load(known) if known else eval(base, WORLD)
        assert issubclass(load(entry), parent)


@entries("members")
def test_enum_members(entry):
    assert {member.name: member.value for member in load(entry)} == entry["members"]


@entries("signature")
def test_signature(entry):
    thing = load(entry)
    if isinstance(thing, type) and issubclass(thing, torch.autograd.Function):
        if "call" in vars(thing):
            check_signature(thing.call, entry["signature"])
        else:
            check_signature(thing.forward, entry["signature"], drop=1)
    else:
        check_signature(thing, entry["signature"])


METHODS = [(entry, name) for entry in CONTRACT for name in entry.get("methods", {})]


@pytest.mark.parametrize(("entry", "name"), METHODS, ids=[f"{label(e)}.{name}" for e, name in METHODS])
def test_methods(entry, name):
    cls = load(entry)
    static = isinstance(inspect.getattr_static(cls, name), staticmethod)
    check_signature(getattr(cls, name), entry["methods"][name], drop=0 if static else 1)
    if entry["methods"][name] == "UPDATE" or name in ("w_pack", "q42fp_weight", "exl2fp_weight", "is_arm"):
        assert static


@entries("attributes")
def test_class_attributes(entry):
    for name in entry["attributes"]:
        assert isinstance(inspect.getattr_static(load(entry), name), property)


@makes("attributes")
def test_instance_attributes(entry, make):
    layer = construct(entry, make)
    for path, expression in make["attributes"].items():
        value = layer
        for name in path.split("."):
            value = getattr(value, name)
        assert value == eval(expression, {**WORLD, **make.get("sizes", {})}), path


@entries("abstract")
def test_abstract_methods(entry):
    layer = construct(entry, entry["make"][0])
    for name in entry["abstract"]:
        with pytest.raises(NotImplementedError, match=entry["name"]):
            getattr(layer, name)()


FORM_CASES = [(e, m, form) for e in CONTRACT for m in e.get("make", []) for form in m.get("forms", {})]


def kind_of(module, key):
    parent, _, leaf = key.rpartition(".")
    owner = module.get_submodule(parent)
    if leaf in owner._buffers:
        return "buffer"
    parameter = owner._parameters[leaf]
    if type(parameter) not in (torch.nn.Parameter, QuantParameter):
        return type(parameter).__name__
    return "learnable" if parameter.requires_grad else "fixed"


@pytest.mark.parametrize(
    ("entry", "make", "form"), FORM_CASES, ids=[f"{label(e)}({m['args']})-{form}" for e, m, form in FORM_CASES]
)
def test_state_dict_keys(entry, make, form):
    layer = construct(entry, make)
    FORMS[form](layer)
    state = layer.state_dict()
    wanted = make["forms"][form]
    assert set(state) == set(wanted)
    for key, text in wanted.items():
        shape, dtype, kind = text[: text.index("]") + 1], *text[text.index("]") + 1 :].split()
        assert list(state[key].shape) == eval(shape, make.get("sizes", {})), key
        assert state[key].dtype == getattr(torch, dtype), key
        assert kind_of(layer, key) == kind, key
        if not state[key].is_floating_point():
            assert not layer.get_parameter(key).requires_grad if kind != "buffer" else True
    FORMS[form](layer)  # acts once
    assert all(torch.equal(value, state[key]) for key, value in layer.state_dict().items())


@entries("example")
def test_functions_hand_gradients_to_the_right_arguments(entry):
    names = [p.name for p in wanted_parameters(entry["signature"])]
    torch.manual_seed(1)
    values = [eval(text, WORLD) for text in entry["example"]]
    leaves = [v.requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]
    y = load(entry).apply(*leaves)
    (y * torch.randn_like(y)).sum().backward()
    with_gradient = [name for name, leaf in zip(names, leaves, strict=True) if getattr(leaf, "grad", None) is not None]
    assert with_gradient == entry["gradients"]


@pytest.mark.parametrize("entry", [e for e in CONTRACT if "example" in e and "is_train" in e["signature"]], ids=label)
def test_a_function_that_does_not_train_keeps_nothing(entry):
    names = [p.name for p in wanted_parameters(entry["signature"])]
    values = [eval(text, WORLD) for text in entry["example"]]
    values[names.index("is_train")] = False
    values[0].requires_grad_()
    assert not load(entry).apply(*values).requires_grad


def test_mlx_is_a_class_that_refuses_with_a_sentence():
    for module in ("bitorch_engine.layers.qlinear.nbit.mps", "bitorch_engine.layers.qlinear.nbit.mps.mpq_layer"):
        found = importlib.import_module(module).MPQLinearMlx
        with pytest.raises(ImportError, match="MPQLinearMlx needs Apple's MLX"):
            found(32, 32)


def test_the_package_of_cuda_names_runs_here():
    """Names with cuda or cutlass in them are names: nothing asks for a GPU."""
    layer = construct(*next((e, e["make"][0]) for e in CONTRACT if e["name"] == "BinaryLinearCuda"))
    assert layer.eval()(torch.randn(3, 128)).shape == (3, 24)
