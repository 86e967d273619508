"""Models that keep their weights in a file beside them, and what such a file must not be."""

import os
import shutil

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="there is no onnx (pip install onnx)")

from onnx import TensorProto, external_data_helper  # noqa: E402
from onnx_models import small_net  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    """A model of one file, and the same with its weights beside it."""
    model = small_net()
    onnx.save(model, tmp_path / "whole.onnx")
    apart = onnx.ModelProto()
    apart.CopyFrom(model)
    onnx.save(apart, tmp_path / "n.onnx", save_as_external_data=True, location="n.onnx.data", size_threshold=0)
    return tmp_path


def changed(folder, key: str, value) -> None:
    """An entry of the first tensor's place; None takes it out."""
    model = onnx.load(folder / "n.onnx", load_external_data=False)
    (tensor,) = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL][:1]
    entries = {entry.key: entry.value for entry in tensor.external_data} | {key: value}
    del tensor.external_data[:]
    for name, text in entries.items():
        if text is not None:
            tensor.external_data.add(key=name, value=str(text))
    (folder / "n.onnx").write_bytes(model.SerializeToString())


def test_weights_beside_the_model_are_read(command, bie_runtime, folder, monkeypatch):
    x = np.random.default_rng(1).standard_normal((3, 3, 12, 12)).astype(np.float32)
    for name in ("whole.onnx", "n.onnx"):
        assert command("import", folder / name, "-o", folder / f"{name}.bie").returncode == 0
    one, two = (bie_runtime.Net(folder / f"{name}.bie").run(x) for name in ("whole.onnx", "n.onnx"))
    assert np.array_equal(one, two)
    monkeypatch.chdir(folder)  # a name without a folder
    assert command("import", "n.onnx", "-o", "here.bie").returncode == 0


def test_weights_beside_the_model_are_no_output(command, folder):
    before = (folder / "n.onnx.data").read_bytes()
    done = command("import", folder / "n.onnx", "-o", folder / "n.onnx.data")
    assert done.returncode == 3 and "a file of the ONNX file's tensors" in done.stderr
    assert (folder / "n.onnx.data").read_bytes() == before


def test_a_part_without_a_length_ends_with_its_file(command, folder):
    model = onnx.load(folder / "n.onnx", load_external_data=False)
    last = max(
        (t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL),
        key=lambda t: external_data_helper.ExternalDataInfo(t).offset or 0,
    )
    for entry in list(last.external_data):
        if entry.key == "length":
            last.external_data.remove(entry)
    (folder / "n.onnx").write_bytes(model.SerializeToString())
    done = command("import", folder / "n.onnx", "-o", folder / "net.bie")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("location", "/etc/passwd", "expected a file in the model's own folder, got"),
        ("location", "../n.onnx.data", "expected a file in the model's own folder, got"),
        ("location", "sub/n.onnx.data", "expected a file in the model's own folder, got"),
        ("location", "..", "expected a file in the model's own folder, got"),
        ("location", None, "expected a file in the model's own folder, got"),
        ("location", "gone.data", "cannot be opened"),
        ("location", "link.data", "is a link to another folder"),
        ("location", "pipe.data", "is not a regular file"),
        ("offset", 1 << 40, "and that file has"),
        ("offset", -1, '"offset" is "-1"'),
        ("offset", "4x", '"offset" is "4x"'),
        ("length", 1 << 62, "and that file has"),
        ("length", 3, "with numbers of another count"),
    ],
)
def test_a_hostile_place_is_refused(command, folder, tmp_path_factory, key, value, sentence):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "n.onnx.data"
    shutil.copy(folder / "n.onnx.data", elsewhere)
    (folder / "link.data").symlink_to(elsewhere)
    os.mkfifo(folder / "pipe.data")
    changed(folder, key, value)
    done = command("import", folder / "n.onnx", "-o", folder / "net.bie")
    assert done.returncode == 3 and sentence in done.stderr, done
    assert not (folder / "net.bie").exists()


def test_a_file_that_was_cut_is_refused(command, folder):
    (folder / "n.onnx.data").write_bytes((folder / "n.onnx.data").read_bytes()[:-1])
    done = command("import", folder / "n.onnx", "-o", folder / "net.bie")
    assert done.returncode == 3 and "and that file has" in done.stderr


def test_the_pointer_of_a_git_lfs_file_is_known(command, folder):
    (folder / "n.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    done = command("import", folder / "n.onnx", "-o", folder / "net.bie")
    assert done.returncode == 3 and "the pointer of a Git LFS file" in done.stderr
