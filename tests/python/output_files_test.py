"""Files that are written: a disk that is full leaves the old one, and no output is an input."""

import contextlib
import errno
import os
import resource

import pytest
import torch
from torch import nn

import bie
from bie._output_files import check_outputs, replacing, write_text
from bie.train.run_folder import RunFolder


def quantised():
    torch.manual_seed(0)
    model = nn.Sequential(bie.nn.Q8Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    model(torch.randn(16, 64))
    return model.eval()


def coded():
    model = nn.Sequential(bie.nn.MPQLinear(64, 32, w_bit=4, group_size=32, use_gba_quant=False))
    model[0].set_weight_data(torch.randn(32, 64))
    return model


def onnx(path, **options):
    pytest.importorskip("onnxscript")
    bie.export_onnx(quantised(), torch.randn(2, 64), path, **options)


#: {name: (what writes files at a path, their names)}
WRITERS = {
    "export": (lambda path: bie.export(quantised(), torch.randn(1, 64), path), [""]),
    "onnx": (onnx, [""]),
    "onnx of 4 bits": (lambda path: onnx(path, int4=True), [""]),
    "onnx and data": (lambda path: onnx(path, external_data=True), ["", ".data"]),
    "checkpoint": (lambda path: bie.save_checkpoint(quantised(), path), [""]),
    "weights": (lambda path: bie.formats.save_weights(path, coded()), [""]),
    "gguf": (lambda path: bie.formats.save_gguf(path, {"a": torch.ones(600)}), [""]),
    "gptq": (lambda path: bie.formats.save_gptq(path, coded()), ["/model.safetensors", "/quantize_config.json"]),
    "run": (
        lambda path: (RunFolder(path).start({"a": "b" * 600}, []), RunFolder(path).save_checkpoint({"a": 1})),
        ["/config.json", "/log.jsonl", "/checkpoint.pt"],
    ),
    "text": (lambda path: write_text(path, "a" * 600), [""]),
}


@contextlib.contextmanager
def no_file_grows_beyond(size):
    """As on a full disk: a write past so many bytes is an error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_that_fails_leaves_the_old_file(name, tmp_path):
    write, names = WRITERS[name]
    target = tmp_path / "target"
    if names[0].startswith("/"):
        target.mkdir()
    files = [target.with_name(target.name + ending) if ending[:1] != "/" else target / ending[1:] for ending in names]
    for file in files:
        file.write_bytes(b"the old file")
    listing = sorted(path.name for path in tmp_path.rglob("*"))
    with no_file_grows_beyond(40), pytest.raises((OSError, RuntimeError, ValueError)):
        write(target)
    assert all(file.read_bytes() == b"the old file" for file in files)
    assert sorted(path.name for path in tmp_path.rglob("*")) == listing, "nothing is left beside it"
    write(target)
    assert all(file.read_bytes() != b"the old file" for file in files)
    assert sorted(path.name for path in tmp_path.rglob("*")) == listing


def test_a_folder_of_gptq_keeps_a_whole_config(tmp_path, monkeypatch):
    bie.formats.save_gptq(tmp_path, coded())
    config = tmp_path / "quantize_config.json"
    before = config.read_text()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        bie.formats.save_gptq(tmp_path, coded())
    assert config.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "quantize_config.json"]


def test_a_link_and_the_mode_of_a_file_stay(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    write_text(link, "new")
    assert link.is_symlink() and file.read_text() == "new" and file.stat().st_mode & 0o777 == 0o600
    with replacing("/dev/null") as stream:
        stream.write(b"into a device")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(IsADirectoryError, match="expected a file, got a folder"), replacing(tmp_path):
        pass


@pytest.mark.parametrize("way", ["itself", "link", "hard link", "dots", "in the folder", "folder"])
def test_an_output_that_is_an_input_is_refused(way, tmp_path):
    folder = tmp_path / "data" / "part"
    folder.mkdir(parents=True)
    file, output, given = folder / "a.bin", tmp_path / "out", folder / "a.bin"
    file.write_bytes(b"data")
    if way == "itself":
        output = file
    elif way == "link":
        output.symlink_to(file)
    elif way == "hard link":
        output.hardlink_to(file)
        given = tmp_path / "data"
    elif way == "dots":
        output = folder / ".." / "part" / "a.bin"
    else:
        output, given = (file, tmp_path / "data") if way == "in the folder" else (folder, folder)
    with pytest.raises(ValueError, match=r"--out .* is read as --data .*: expected another file"):
        check_outputs({"--out": output}, {"--data": given})
    check_outputs({"--out": tmp_path / "new", "--run": folder / "new"}, {"--data": given, "--net": tmp_path / "none"})


@pytest.mark.parametrize("writer", ["export", "onnx", "text"])
def test_a_folder_that_is_missing_is_named(writer, tmp_path):
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError, match=r"file: there is no folder .*none$"):
        WRITERS[writer][0](path)
