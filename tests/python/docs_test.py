"""The examples in the docstrings of ``bie`` run and print what they say; every public class of a layer has one."""

import doctest
import inspect
import tempfile

import pytest
import torch

import bie

NAMES = [f"{room.__name__}.{name}" for room in (bie, bie.nn, bie.optim, bie.distributed) for name in room.__all__]
DOCUMENTED = {name: thing for name in NAMES if not inspect.ismodule(thing := eval(name))}
EXAMPLES = {
    name: examples
    for name, thing in DOCUMENTED.items()
    if (examples := doctest.DocTestParser().get_examples(thing.__doc__ or ""))
}
LAYERS = [getattr(bie.nn, name) for name in bie.nn.__all__ if name[0].isupper() and name != "QuantLayer"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name):
    torch.manual_seed(0)
    world = {"bie": bie, "tempfile": tempfile, "torch": torch}
    example = doctest.DocTestParser().get_doctest(DOCUMENTED[name].__doc__, world, name, None, None)
    output = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=output.append)
    assert not output, "".join(output)


def test_every_public_class_and_function_has_an_example():
    without = {"bie.ShapeError", "bie.distributed.RanksDifferError", "bie.nn.QuantLayer", "bie.nn.WeightOnlyLinear"}
    assert set(DOCUMENTED) - set(EXAMPLES) == without


def test_an_example_that_is_wrong_would_be_seen():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda text: None).failed == 1


@pytest.mark.parametrize("cls", LAYERS)
def test_constructors_name_their_arguments(cls):
    """What an editor shows of a layer: sizes, then options with defaults, among them where its tensors are made."""
    parameters = inspect.signature(cls).parameters
    assert all(p.kind != p.VAR_POSITIONAL for p in parameters.values())
    assert parameters["device"].default is None
    if "in_features" in parameters:
        assert list(parameters)[:4] == ["in_features", "out_features", "bias", "device"]
    if "kernel_size" in parameters:
        assert list(parameters)[:8] == list(inspect.signature(torch.nn.Conv2d).parameters)[:8]


@pytest.mark.parametrize(
    "make", [lambda **k: bie.nn.Q8Linear(4, 3, **k), lambda **k: bie.nn.BinaryConv2d(4, 3, 1, **k)]
)
def test_a_bias_is_asked_for_by_a_boolean(make):
    assert make(bias=True).bias.shape == (3,) and make(bias=False).bias is None
    with pytest.raises(TypeError, match="bias: expected True or False, got 'cpu'"):
        make(bias="cpu")  # where BITorch Engine's constructors have the device
