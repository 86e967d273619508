"""``bitorch_engine`` is names over ``bie``: it computes nothing, keeps no state, and ``bie`` does not know it."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kinds import ALIASES

import bie
import bitorch_engine

SOURCES = sorted(path for folder in bitorch_engine.__path__ for path in Path(folder).rglob("*.py"))
MAY_IMPORT = {"__future__", "abc", "bie", "bitorch", "bitorch_engine", "collections", "importlib", "torch", "typing"}
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.MatMult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
STATE = {"__getstate__", "__setstate__", "__setattr__", "__reduce_ex__", "_apply", "_load_from_state_dict"}
STATE |= {"_save_to_state_dict", "register_buffer", "register_parameter", "state_dict"}
LINES = 90


def offences(text):
    """What an alias module must not hold, with its line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        found += [f"{node.lineno}: imports {m}" for m in modules if m.partition(".")[0] not in MAY_IMPORT]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            found.append(f"{node.lineno}: arithmetic")
        if isinstance(node, LOOPS):
            found.append(f"{node.lineno}: a loop")
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
        if name in STATE:
            found.append(f"{node.lineno}: {name}")
        if (isinstance(node, ast.Attribute) and node.attr == "ops") or "bie._operators" in modules:
            found.append(f"{node.lineno}: an operator")
    if len(text.splitlines()) > LINES:
        found.append(f"longer than {LINES} lines")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-4:]))
def test_modules_hold_names_alone(path):
    assert offences(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import numpy", "1: imports numpy"),
        ("def f(x):\n    return x * 2", "2: arithmetic"),
        ("def f(x):\n    return [y for y in x]", "2: a loop"),
        ("class A:\n    def __setstate__(self, state): ...", "2: __setstate__"),
        ("def f(self, t):\n    self.register_buffer('a', t)", "2: register_buffer"),
        ("import torch\ntorch.ops.bie.pack_signs", "2: an operator"),
        ("from bie._operators import ops", "1: an operator"),
        ("\n" * (LINES + 1), f"longer than {LINES} lines"),
    ],
)
def test_what_they_must_not_hold_is_seen(text, said):
    assert said in offences(text)


def test_our_package_does_not_import_the_other():
    code = (
        "import importlib, pkgutil, sys, bie\n"
        "for module in pkgutil.walk_packages(bie.__path__, 'bie.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'bitorch_engine'], len(sys.modules) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"
    names = {module.name for module in pkgutil.walk_packages(bie.__path__, "bie.")}
    assert {"bie.nn.binary_linear", "bie.bitorch.functions", "bie.optim.diode_mix"} <= names


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.name)
def test_both_names_are_one_layer(alias):
    """The same tensors under the same keys, the same integers, and each class is the other's."""
    torch.manual_seed(3)
    theirs, ours = alias.theirs().train(), alias.ours().train()
    assert isinstance(theirs, type(ours)) and isinstance(theirs, bie.nn.QuantLayer)
    ours.load_state_dict(theirs.state_dict())
    x = alias.batch()
    outputs = []
    for layer in (theirs, ours):
        layer.prepare_params()
        y = layer(x)
        y.sum().backward()
        layer.eval()
        outputs.append((y.detach(), layer(x).detach(), layer.weight.grad))
    for mine, other in zip(*outputs, strict=True):
        assert mine.dtype == other.dtype and torch.equal(mine, other)
    theirs.generate_quantized_weight(qweight_only=True)
    ours.generate_quantized_weight(qweight_only=True)
    states = theirs.state_dict(), ours.state_dict()
    assert states[0].keys() == states[1].keys() and "qweight" in states[0]
    for key in states[0].keys() - {"qweight"}:
        assert torch.equal(states[0][key], states[1][key]), key
    ours.load_state_dict(states[0])  # in whatever layout
    assert torch.equal(ours.eval()(x), outputs[0][1])
    assert f"{type(theirs).__name__}(" in repr(theirs) and f"{type(ours).__name__}(" in repr(ours)


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.name)
def test_errors_name_the_class_that_was_made(alias):
    wrong = torch.ones(2, 1)
    for layer in (alias.theirs(), alias.ours()):
        with pytest.raises(bie.ShapeError, match=f"^{type(layer).__name__}: x is "):
            layer(wrong)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("layers.qlinear.binary.cutlass.BinaryMatMul", bie.nn.BinaryMatMul),
        ("layers.qlinear.nbit.cutlass.Q8MatMul", bie.nn.Q8MatMul),
        ("layers.qlinear.nbit.cutlass.Q4MatMul", bie.nn.Q4MatMul),
        ("layers.quant_layer.QuantLayer", bie.nn.QuantLayer),
        ("layers.quant_layer.set_compat", bie.nn.set_compat),
        ("layers.quant_layer.set_grad_mode", bie.nn.set_grad_mode),
        ("optim.DiodeMix", bie.optim.DiodeMix),
        ("optim.AveragedModel", bie.optim.AveragedModel),
        ("optim.integer_parameters", bie.optim.integer_parameters),
        ("optim.wide_gradients", bie.optim.wide_gradients),
        ("utils.model_helper.prepare_bie_layers", bie.prepare),
        ("utils.model_helper.pack_bie_layers", bie.pack),
        ("utils.model_helper.save_checkpoint", bie.save_checkpoint),
        ("utils.model_helper.load_checkpoint", bie.load_checkpoint),
        ("ShapeError", bie.ShapeError),
    ],
)
def test_what_behaves_the_same_is_the_same(theirs, ours):
    assert pkgutil.resolve_name(f"bitorch_engine.{theirs}") is ours
