"""Models, a text and calls of `bie quantize`, which tests of it share."""

from __future__ import annotations

import json
import subprocess

import pytest

WIDE = {"hidden_size": 256, "intermediate_size": 512}
CALIBRATION = "The water of the river boils at 100 degrees, and ice melts at 0. " * 60


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A folder whose rows are whole blocks of 256, and its model."""
    from model_folders import write_whole_folder

    path = tmp_path_factory.mktemp("wide") / "folder"
    model = write_whole_folder(path, "llama", **WIDE)
    return path, model


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    from small_models import write_changed

    return write_changed(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(CALIBRATION)
    return path


@pytest.fixture(scope="session")
def plain(bie, source, tmp_path_factory):
    """The folder as a file of float32."""
    path = tmp_path_factory.mktemp("plain") / "plain.gguf"
    subprocess.run([bie, "convert", source[0], "-o", path, "--type", "f32"], check=True, capture_output=True)
    return path


@pytest.fixture
def quantize(bie, tmp_path):
    def run(model, *words, out="out.gguf"):
        return subprocess.run(
            [bie, "quantize", model, "-o", tmp_path / out, *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture
def quantized(quantize, tmp_path):
    def run(model, *words, out="out.gguf"):
        process = quantize(model, *words, "--json", out=out)
        assert process.returncode == 0, process.stderr
        return tmp_path / out, json.loads(process.stdout)

    return run


def tensors_of(path) -> dict:
    """The tensors of a GGUF file by their names, as PyPI's gguf reads them."""
    import gguf

    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def types_of(path) -> dict[str, str]:
    return {name: tensor.tensor_type.name for name, tensor in tensors_of(path).items()}


def files_of(folder) -> dict[str, bytes]:
    """The bytes of a folder's files by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
