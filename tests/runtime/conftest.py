"""Nets written by hand, the runtime's library and the command, none of which knows torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "python/bie-runtime")]


@pytest.fixture(scope="session")
def runtime_library(build) -> Path:
    return build / "src/runtime/libbie_runtime.so"


@pytest.fixture(scope="session")
def bie_runtime(runtime_library):
    """The Python package over the library of this build."""
    os.environ["BIE_RUNTIME_LIBRARY"] = str(runtime_library)
    import bie_runtime

    return bie_runtime


@pytest.fixture
def command(bie):
    """Runs bie; the finished process."""

    def run(*arguments, env=None):
        words = [str(bie), *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})

    return run


@pytest.fixture
def answer(command):
    """The object that a command prints with --json."""

    def run(*arguments) -> dict:
        process = command(*arguments, "--json")
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run


@pytest.fixture
def float_net(tmp_path) -> Path:
    """Images of 1 x 2 x 2; y is the sums of rows, of columns and of all, the last one less 1."""
    from net_writer import float_net

    rows = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]]
    net = float_net(rows, [0, 0, 0, 0, -1], image="1,2,2", classes="top\nbottom\nleft\nright\nall", input="raw")
    path = tmp_path / "sums.net.bie"
    path.write_bytes(net.bytes())
    return path
