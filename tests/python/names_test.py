"""Every public name of BITorch Engine 0.2.6 (names_0_2_6.toml) is in ``bitorch_engine`` or refused by name."""

import importlib.util
import pkgutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bitorch_engine.layers.qembedding.binary import BinaryEmbeddingBag
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearCPP
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.nbit.mps.mpq_layer import MPQLinearMlxFunction
from bitorch_engine.optim.diode_beta import check_pytorch_version
from bitorch_engine.utils.cutlass_path import is_cutlass_available
from bitorch_engine.utils.mlx_path import is_mlx_available

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

MODULES = tomllib.loads(Path(__file__).with_name("names_0_2_6.toml").read_text())
REFUSED = [name for entry in MODULES.pop("refused") for name in entry["names"]]
NEED_BITORCH = {
    "bitorch_engine.layers.qlinear.binary.binary_implementation",
    "bitorch_engine.layers.qlinear.layer",
    "bitorch_engine.layers.qlinear.qlinear_implementation",
}
# A torch.nn.Module keeps its parameters itself: its class does not have them.
OF_LAYERS = {"bitorch_engine.layers.qlinear.layer.QLinearInf.weight"}
HAVE_BITORCH = importlib.util.find_spec("bitorch") is not None
needs_bitorch = pytest.mark.skipif(not HAVE_BITORCH, reason="the package bitorch is not installed")


def names_of(module):
    listed = MODULES[module]
    yield from (f"{module}.{name}" for name in listed.get("names", []))
    for cls, methods in listed.get("classes", {}).items():
        yield f"{module}.{cls}"
        yield from (f"{module}.{cls}.{method}" for method in methods)


def is_there(name):
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def check(modules):
    """Fails with all names that are missing."""
    names = [name for module in sorted(modules) for name in (module, *names_of(module)) if name not in OF_LAYERS]
    missing = [name for name in names if not is_there(name)]
    assert names and not missing, "\n".join(["missing:", *missing])


def test_every_name_is_there():
    check(MODULES.keys() - NEED_BITORCH)


@needs_bitorch
def test_every_name_of_the_integration_with_bitorch_is_there():
    check(NEED_BITORCH)


@needs_bitorch
def test_a_layer_for_inference_has_its_weight():
    from bitorch_engine.layers.qlinear import QLinearInf

    layer = QLinearInf(64, 8)
    assert layer.weight.shape == (8, 64)
    layer.generate_quantized_weight(qweight_only=True)
    assert layer.weight is None


def test_refused_names_are_absent():
    there = [name for name in REFUSED if is_there(name)]
    assert REFUSED and not there, "\n".join(["there:", *there])


def test_no_name_is_listed_twice():
    names = [name for module in MODULES for name in names_of(module)] + REFUSED
    assert len(names) == len(set(names))


def test_missing_names_are_seen(monkeypatch):
    monkeypatch.setitem(MODULES, "bitorch_engine.nowhere", {"names": ["f"]})
    monkeypatch.setitem(MODULES, "bitorch_engine.optim", {"names": ["g"], "classes": {"DiodeMix": ["step", "h"]}})
    with pytest.raises(AssertionError) as caught:
        check(["bitorch_engine.nowhere", "bitorch_engine.optim"])
    said = "missing: nowhere nowhere.f optim.g optim.DiodeMix.h"
    assert str(caught.value).replace("bitorch_engine.", "").split("\nassert")[0].split() == said.split()


def sign(x):
    return torch.where(x < 0, -1.0, 1.0)


@pytest.mark.parametrize("bias", [True, False])
def test_clones_are_their_sources(bias):
    torch.manual_seed(5)
    source = torch.nn.Linear(70, 6, bias=bias).eval()
    recipe = SimpleNamespace(layer=source)
    x = torch.randn(3, 70)
    plain = BinaryLinearCPP.create_clone_from(recipe)
    assert plain.weight is None and not plain.training
    assert torch.equal(plain(x), torch.nn.functional.linear(sign(x), sign(source.weight), source.bias))

    scaled = BinaryLinearCuda.create_clone_from(recipe, torch.device("cpu"))
    assert scaled.weight.dtype == torch.int8 and not scaled.training
    torch.testing.assert_close(scaled.scale_w, source.weight.abs().mean())
    assert (scaled.bias is not None) == bias


def test_a_clone_is_made_on_the_device_that_is_asked_for():
    recipe = SimpleNamespace(layer=torch.nn.Linear(8, 4))
    assert BinaryLinearCuda.create_clone_from(recipe, "meta").weight.is_meta


def test_a_bag_is_drawn_anew_without_its_padding_row():
    torch.manual_seed(6)
    bag = BinaryEmbeddingBag(num_embeddings=50, embedding_dim=200, padding_idx=-1)
    table, before = bag.weight, bag.weight.detach().clone()
    bag.reset_parameters()
    assert bag.weight is table and not torch.equal(table, before)
    for weight in (before, table):
        assert not weight[-1].any()
        assert abs(weight[:-1].float().mean() - 0.5) < 0.03  # six deviations of 9800 draws


def test_versions_of_torch():
    check_pytorch_version("1.5.0")
    check_pytorch_version(torch.__version__)
    with pytest.raises(RuntimeError, match=r"^check_pytorch_version: torch: expected 99.0 or later, got "):
        check_pytorch_version("99.0")


def test_what_is_available():
    assert is_cutlass_available() is True
    assert is_mlx_available() is False


def test_the_function_of_mlx_refuses_with_a_sentence():
    x = torch.zeros(1, 32)
    with pytest.raises(ImportError, match="MPQLinearMlxFunction needs Apple's MLX"):
        MPQLinearMlxFunction.apply(x, x, 4, x, x, 32, True)
