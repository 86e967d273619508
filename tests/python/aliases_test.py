"""``bitorch_engine`` is names over ``bie``: the same layers, the same objects; and ``bie`` does not know it."""

import pkgutil
import subprocess
import sys

import pytest
import torch
from kinds import ALIASES

import bie


def test_our_package_does_not_import_the_other():
    code = (
        "import importlib.util, pkgutil, sys, bie\n"
        "for module in pkgutil.walk_packages(bie.__path__, 'bie.'):\n"
        "    if module.name.endswith('__main__'): continue\n"
        "    others = {'bie.hf': 'transformers', 'bie.peft': 'peft', 'bie.llm._lm_eval': 'lm_eval'}\n"
        "    wanted = [package for name, package in others.items() if module.name.startswith(name)]\n"
        "    if wanted and importlib.util.find_spec(wanted[0]) is None: continue\n"
        "    importlib.import_module(module.name)\n"
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
        with pytest.raises(bie.ShapeError, match=f"^{type(layer).__name__}: x: expected "):
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
