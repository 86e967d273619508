"""Signatures that name their arguments; sentences where torch's tools do not fit; the warning at import."""

import functools
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import typing
import warnings

import pytest
import torch
from kinds import KINDS
from torch import nn
from torch.nn.utils import parametrize, prune

import bie
import bitorch_engine.layers
from bie import _library

#: Classes whose own arguments are followed by those of another class, which is an argument or a base.
OPEN = {"Conv1dLayer", "MultiheadAttention", "BinaryEmbeddingCuda", "BinaryEmbeddingBag", "MPQLinearMlx"}


def public_layers():
    found = {}
    for package in (bie.nn, bitorch_engine.layers):
        for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                module = importlib.import_module(name)
            except ImportError as error:
                if "needs the package bitorch" not in str(error) or importlib.util.find_spec("bitorch") is not None:
                    raise
                found[name] = pytest.param(None, marks=pytest.mark.skip(reason="bitorch is not installed"))
                continue
            for cls in vars(module).values():
                ours = inspect.isclass(cls) and cls.__module__ == name and issubclass(cls, nn.Module)
                if ours and not cls.__name__.startswith("_") and ".state" not in name:
                    found[f"{name}.{cls.__name__}"] = cls
    return found


@pytest.mark.parametrize("cls", public_layers().values(), ids=public_layers())
def test_signatures_name_their_arguments(cls):
    kinds = {parameter.kind for parameter in inspect.signature(cls).parameters.values()}
    if cls.__name__ not in OPEN:
        assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


class Same(nn.Module):
    def forward(self, x):
        return x


def trained(make):
    layer = make(8, 4)
    layer(torch.randn(3, 8))
    return layer


@pytest.mark.parametrize("make", [bie.nn.Q8Linear, bie.nn.BinaryLinear])
@pytest.mark.parametrize("training", [True, False])
def test_parametrized_and_pruned_weights_are_refused(make, training):
    for change in (
        lambda layer: parametrize.register_parametrization(layer, "weight", Same()),
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ):
        layer = trained(make).train(training)
        change(layer)
        with pytest.raises(RuntimeError, match=r"parametrized or pruned.*convert it then"):
            layer(torch.randn(3, 8))


@pytest.mark.parametrize("make", [bie.nn.Q8Linear, bie.nn.BinaryLinear])
def test_symbolic_trace_and_script_say_what_to_do(make):
    for model in (trained(make).eval(), nn.Sequential(trained(make)).eval(), nn.Sequential(trained(make))):
        with pytest.raises(TypeError, match=r"symbolic_trace cannot follow it; take torch\.export"):
            torch.fx.symbolic_trace(model)
        with pytest.raises(RuntimeError, match=r"jit\.script is refused; torch\.export\.export takes it"):
            torch.jit.script(model)


def test_layers_are_leaves_of_a_tracer():
    """What the sentence says works."""

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, bie.nn.QuantLayer) or super().is_leaf_module(module, name)

    model, x = nn.Sequential(trained(bie.nn.Q8Linear), nn.ReLU()).eval(), torch.randn(3, 8)
    graph = torch.fx.GraphModule(model, Tracer().trace(model))
    assert torch.equal(graph(x), model(x))


def test_sizes_have_torchs_names():
    layer = bie.nn.MPQLinear(64, 8)
    assert (layer.in_features, layer.out_features) == (layer.in_channels, layer.out_channels) == (64, 8)


def test_a_gpu_without_kernels_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for kernels in (True, False):
        monkeypatch.setattr(_library, "has_cuda", lambda kernels=kernels: kernels)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _library.warn_of_gpu()
        assert ["no CUDA kernels" in str(warning.message) for warning in said] == ([] if kernels else [True])


def test_the_dispatcher_tells_of_kernels():
    """A CUDA tensor is refused by its operator exactly where the build has no kernels."""
    try:
        torch.ops.bie.pack_signs(torch.empty(1, 8, device="meta"))
    except RuntimeError:
        pytest.fail("meta tensors are taken by every build")
    assert _library.has_cuda() in (True, False)
    if torch.cuda.is_available() and not _library.has_cuda():
        with pytest.raises(RuntimeError, match="no CUDA kernels"):
            torch.ops.bie.pack_signs(torch.ones(1, 8, device="cuda"))


@pytest.mark.parametrize(
    ("layer", "shape", "kernel"),
    [
        (bie.nn.Q8Linear(24, 10), (3, 24), "s8xs8_gemm"),
        (bie.nn.Q4Linear(24, 10), (3, 24), "s4xs4_gemm"),
        (bie.nn.PlainBinaryLinear(24, 10), (3, 24), "b1xb1_gemm"),
        (bie.nn.BinaryConv2d(4, 8, 3), (1, 4, 8, 8), "b1xb1_conv2d"),
        (bie.nn.WeightOnlyLinear(64, 32), (3, 64), "weight_only_gemm"),
    ],
)
def test_a_layer_names_the_kernel_that_it_ran(layer, shape, kernel):
    assert "kernel=" not in repr(layer)
    x = torch.randn(shape)
    layer(x)  # the first batch sets step sizes
    layer.eval()
    with torch.no_grad():
        layer(x)
    assert f"kernel={kernel}_" in repr(layer)
    assert "kernel=" not in repr(layer.train())


def test_the_type_of_attentions_results_follows_need_weights():
    """Editors and checkers read the overloads; here that they say what comes."""
    if sys.version_info < (3, 11):
        pytest.skip("typing.get_overloads is of Python 3.11")
    layer, x = bie.nn.MultiheadAttention(8, 2), torch.randn(2, 3, 8)
    with_weights, without = (
        typing.get_type_hints(found)["return"] for found in typing.get_overloads(type(layer).forward)
    )
    assert typing.get_args(with_weights) == (torch.Tensor, torch.Tensor)
    assert typing.get_args(without) == (torch.Tensor, None)
    assert isinstance(layer(x, x, x)[1], torch.Tensor)
    assert layer(x, x, x, need_weights=False)[1] is None


MAKERS = [*(kind.make for kind in KINDS), bie.nn.Q8MatMul, bie.nn.BinaryMatMul, bie.nn.Q4MatMul]
MAKERS += [functools.partial(layer, 3, 4, 5) for layer in (bie.nn.Q8Conv1d, bie.nn.Q4Conv1d, bie.nn.BinaryConv1d)]
MAKERS += [functools.partial(layer, 8, 4) for layer in (bie.nn.MPQLinear, bie.nn.MBWQLinear, bie.nn.BinaryEmbedding)]


@pytest.mark.parametrize("make", MAKERS)
def test_a_misspelt_argument_names_the_class_that_was_called(make):
    name = type(make()).__name__
    with pytest.raises(TypeError, match=rf"^{name}\b.* 'biass'"):
        make(biass=True)


def test_missing_arguments_name_the_class_that_was_called():
    class Users(bie.nn.Q4Linear):
        pass

    for kind in (bie.nn.Q8Linear, bie.nn.Q4Conv1d, bie.nn.MPQLinear):
        with pytest.raises(TypeError, match=rf"^{kind.__name__}.__init__\(\) missing"):
            kind()
    with pytest.raises(TypeError, match=r"^Q4Linear.__init__\(\) got .* 'biass'"):  # by its nearest class of ours
        Users(8, 4, biass=True)
