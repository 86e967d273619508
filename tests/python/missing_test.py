"""What waits for an operator: the list is true, and each entry imports and refuses with a sentence."""

import importlib
import inspect
import pickle
import subprocess
import sys

import pytest
import torch

from bie import _missing
from bie._missing import awaits, missing
from bitorch_engine.layers.qembedding import BinaryEmbeddingCuda, BinaryEmbeddingForward, BinaryEmbeddingParameter
from bitorch_engine.layers.qlinear.nbit.cuda import MBWQLinearCuda

PACKAGES = ("bie", "bitorch_engine")
WAITING = [entry for package in PACKAGES for entry in missing(package)]


def thing(name):
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_no_operator_that_is_waited_for_is_there(operators):
    """The day an operator arrives, its classes must stop refusing."""
    assert WAITING
    for name, operator in WAITING:
        assert not hasattr(operators, operator), f"{name} need not wait for {operator} any more"


def test_operators_that_are_there_would_be_found(operators):
    assert hasattr(operators, "binary_linear") and not hasattr(operators, "no_such_operator")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_is_the_same_in_a_fresh_process(package):
    code = f"from bie._missing import missing; print(*missing({package!r}), sep=chr(10))"
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert fresh.splitlines() == [str(entry) for entry in missing(package)]


@pytest.mark.parametrize(("name", "operator"), WAITING)
def test_every_entry_refuses(name, operator):
    found = thing(name)
    assert _missing.is_missing(found)
    is_function = isinstance(found, type) and issubclass(found, torch.autograd.Function)
    call = found.apply if is_function else found
    for arguments in ((), (torch.ones(2), 3)):
        with pytest.raises(NotImplementedError) as error:
            call(*arguments)
        assert (
            str(error.value)
            == f"{found.__qualname__} waits for the operator {operator}, which this build does not have"
        )
    assert inspect.signature(found)
    if isinstance(found, type):
        assert pickle.loads(pickle.dumps(found)) is found


def test_relations_and_attributes_hold():
    assert issubclass(BinaryEmbeddingCuda, torch.nn.Module) and BinaryEmbeddingCuda.__doc__

    class Mine(BinaryEmbeddingCuda):
        def __init__(self):
            super().__init__(num_embeddings=8, embedding_dim=8)

    with pytest.raises(NotImplementedError, match="BinaryEmbeddingCuda waits for the operator binary_embedding"):
        Mine()
    assert not isinstance(torch.nn.Linear(2, 2), MBWQLinearCuda)
    with pytest.raises(NotImplementedError, match="binary_embedding,"):
        BinaryEmbeddingForward.apply(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2), 2, True)


def test_the_decorator():
    class Plain:
        """Says what it is."""

        def __init__(self, a, *, b=3):
            raise AssertionError("must not run")

    marked = awaits("an_operator")(Plain)
    try:
        assert marked is Plain
        assert str(inspect.signature(marked)) == "(a, *, b=3)"
        assert _missing.is_missing(Plain)
        with pytest.raises(NotImplementedError, match="Plain waits for the operator an_operator, which"):
            marked(1)
    finally:
        del _missing._waiting[f"{__name__}.{Plain.__qualname__}"]

    @awaits("another")
    def function(x, y=2):
        """Adds."""

    try:
        assert str(inspect.signature(function)) == "(x, y=2)" and function.__doc__ == "Adds."
        with pytest.raises(NotImplementedError, match="function waits for the operator another"):
            function(1)
    finally:
        del _missing._waiting[f"{__name__}.{function.__qualname__}"]
    assert not _missing.is_missing(BinaryEmbeddingParameter)


def test_every_public_module_is_imported():
    assert "bie.nn.binary_linear" in _missing.modules("bie")
    names = _missing.modules("bitorch_engine")
    assert "bitorch_engine.layers.qconv.binary.cutlass.layer" in names
    assert not [name for name in names if ".mps" in name or "._" in name]
    for name in names:
        importlib.import_module(name)
