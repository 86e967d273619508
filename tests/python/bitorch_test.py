"""The integration with the package bitorch (PyPI, 0.4.1), and that nothing else needs it."""

import importlib
import importlib.util
import subprocess
import sys

import pytest
import torch

HAVE = importlib.util.find_spec("bitorch") is not None
NEEDS = "bitorch_engine.layers.qlinear.layer", "bitorch_engine.layers.qlinear.binary.binary_implementation"
OPTIONAL = (*NEEDS, "bitorch_engine.layers.qlinear.qlinear_implementation")
needs_bitorch = pytest.mark.skipif(not HAVE, reason="the package bitorch is not installed")


def test_our_package_does_not_need_bitorch():
    code = (
        "import sys; sys.modules['bitorch'] = None\n"
        "import importlib, pkgutil, bitorch_engine\n"
        f"for entry in pkgutil.walk_packages(bitorch_engine.__path__, 'bitorch_engine.'):\n"
        f"    if entry.name not in {OPTIONAL!r}: importlib.import_module(entry.name)\n"
        f"for name in {NEEDS!r}:\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: print(error)\n"
        "try: from bitorch_engine.layers.qlinear import QLinearInf\n"
        "except ImportError as error: print(error)\n"
        "print(hasattr(importlib.import_module('bitorch_engine.layers.qlinear'), 'NoSuchName'))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(out) == 4 and all("needs the package bitorch (0.4.1)" in line for line in out[:3])
    assert out[3] == "False"


def linear(k=70, n=5, **kwargs):
    from bitorch.layers import QLinear

    return QLinear(k, n, **{"input_quantization": "sign", "weight_quantization": "sign", **kwargs})


@needs_bitorch
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("k", [1, 64, 70])
def test_a_converted_model_computes_the_same(k, bias):
    from bitorch import RuntimeMode
    from bitorch.layers import convert

    import bitorch_engine

    bitorch_engine.initialize()
    torch.manual_seed(0)
    model = torch.nn.Sequential(linear(k, bias=bias), linear(5, 3, bias=False, input_quantization="swishsign")).eval()
    x = torch.randn(4, k)
    wanted = model(x)
    convert(model, RuntimeMode.INFERENCE_AUTO)
    assert torch.equal(model(x), wanted)
    assert set(model.state_dict()) == {"0.qweight", "1.qweight"} | ({"0.bias"} if bias else set())


@needs_bitorch
def test_layers_of_more_bits_are_refused_with_a_reason():
    from bitorch import RuntimeMode
    from bitorch.layers import convert

    import bitorch_engine

    bitorch_engine.initialize()
    with pytest.raises(RuntimeError, match="the input quantization inputdorefa is not one bit"):
        convert(torch.nn.Sequential(linear(input_quantization="inputdorefa")), RuntimeMode.INFERENCE_AUTO)


@needs_bitorch
def test_names_and_refusals():
    from bitorch.layers import CustomImplementationMixin

    from bitorch_engine.layers.qlinear import QLinearInf
    from bitorch_engine.layers.qlinear.binary.binary_implementation import BinaryLinearImplementationMixin
    from bitorch_engine.layers.qlinear.layer import QLinearInf as same

    assert QLinearInf is same
    assert issubclass(BinaryLinearImplementationMixin, CustomImplementationMixin)
    with pytest.raises(ValueError, match="a_bit and w_bit: expected 1 for both, got 4 and 1"):
        QLinearInf(8, 8, a_bit=4)
