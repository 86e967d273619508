"""Where the tests find what was built: build/release, or the folder that BIE_BUILD_DIR names.

BIE_OPS_LIBRARY names another library of the operators, such as an installed one.
"""

import os
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("BIE_BUILD_DIR", "build/release")
LIBRARY = os.environ.get("BIE_OPS_LIBRARY", str(BUILD / "src/ops/libbie_ops.so"))


def pytest_generate_tests(metafunc):
    """A test that asks for a ``sample`` runs once for each entry of its module's ``samples(operators)``."""
    if "sample" in metafunc.fixturenames:
        torch.ops.load_library(LIBRARY)
        names = [op.__name__ for op, _, _ in metafunc.module.samples(torch.ops.bie)]
        ids = [f"{name}-{names[:i].count(name)}" for i, name in enumerate(names)]
        metafunc.parametrize("sample", range(len(names)), ids=ids, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def no_remembered_choices(tmp_path_factory):
    """What this machine's user has tuned is neither read nor written."""
    os.environ["BIE_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def library() -> str:
    """The shared library of the operators."""
    return LIBRARY


@pytest.fixture(scope="session")
def operators(library):
    """torch.ops.bie, loaded once."""
    torch.ops.load_library(library)
    return torch.ops.bie


@pytest.fixture
def sample(operators, request):
    """(operator, arguments, keywords), made anew: some operators write into what they get."""
    return request.module.samples(operators)[request.param]


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def build() -> Path:
    """The folder of the build."""
    return BUILD


@pytest.fixture(scope="session")
def bie() -> Path:
    """The command line program."""
    return BUILD / "src/cli/bie"
