"""Bad input as users make it: one sentence, the documented code, nothing lost."""

import gzip
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

TINY = ["--hidden", "16", "--depth", "1", "--epochs", "1"]


@pytest.fixture
def mnist_folder(small_mnist):
    """The folder of small_mnist, to be damaged."""
    return Path(small_mnist.removeprefix("mnist:"))


def refused_data(program, data, *parts):
    program.refused(program.run("train", "--data", data, *TINY), *parts)


def test_a_missing_folder(program, tmp_path):
    for kind in ("mnist", "cifar10", "images", "csv"):
        refused_data(program, f"{kind}:{tmp_path}/none", f"{tmp_path}/none")


def test_a_wrong_magic_number(program, small_mnist, mnist_folder):
    path = mnist_folder / "train-images-idx3-ubyte"
    path.write_bytes(b"\x01\x02" + path.read_bytes()[2:])
    refused_data(program, small_mnist, str(path), "IDX header")


def test_labels_out_of_range(program, small_mnist, mnist_folder):
    path = mnist_folder / "t10k-labels-idx1-ubyte"
    content = bytearray(path.read_bytes())
    content[-1] = 10
    path.write_bytes(content)
    refused_data(program, small_mnist, str(path), "label 10")


def test_a_truncated_gzip(program, small_mnist, mnist_folder):
    path = mnist_folder / "train-images-idx3-ubyte"
    whole = gzip.compress(path.read_bytes())
    path.unlink()
    path = path.with_name(path.name + ".gz")
    path.write_bytes(whole[: len(whole) // 2])
    refused_data(program, small_mnist, str(path), "cannot be read")


def test_a_csv_with_text(program, tmp_path, flowers):
    lines = flowers.read_text().splitlines()
    lines[5] = "long,2,0.1,aster"
    flowers.write_text("\n".join(lines))
    refused_data(program, f"csv:{flowers}", str(flowers), "line 6, column 1", '"long"')


def test_a_broken_image(program, photos):
    path = photos / "upright" / "7.png"
    path.write_bytes(path.read_bytes()[:60])
    refused_data(program, f"images:{photos}", str(path), "cannot be read")


@pytest.fixture
def small_disk(tmp_path):
    """A function that runs a command with a small file system at DIR."""
    script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && "$@"'
    probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True)
    if probe.returncode != 0 or shutil.which("mount") is None:
        pytest.skip("a file system of its own cannot be mounted here")

    def run(size, folder, shell):
        return subprocess.run(
            ["unshare", "-rm", "sh", "-c", script, "sh", size, str(folder), "sh", "-c", shell],
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_no_disk_space(program, tmp_path, small_disk):
    disk = tmp_path / "disk"
    disk.mkdir()
    train = f"'{program.path}' --threads 1 train --hidden 256 --depth 2 --epochs 2"
    # The model does not fit, and what was there before is what is there after.
    shell = f"echo kept > '{disk}/model'; {train} -o '{disk}/model'; echo $?; cat '{disk}/model'; ls -A '{disk}'"
    process = small_disk("256k", disk, shell)
    assert process.stdout.splitlines()[-3:] == ["3", "kept", "model"], process
    error = process.stderr.splitlines()[-1]
    assert error == f"error: safetensors file {disk}/model: cannot be written: No space left on device"


def test_no_disk_space_for_a_later_checkpoint(program, tmp_path, small_disk):
    disk = tmp_path / "disk"
    disk.mkdir()
    train = f"'{program.path}' -q --threads 1 train --hidden 256 --depth 2 --epochs 3 --run '{disk}/run'"
    # The first checkpoint fits and the second does not: the run fails, and goes on once there is room.
    shell = f"{train}; echo $?; ls '{disk}/run/checkpoints'; mount -o remount,size=64m '{disk}'; {train} --resume"
    process = small_disk("2m", disk, shell)
    lines = process.stdout.splitlines()
    assert lines[0] == "3", process
    assert lines[1].startswith("step-")
    assert "No space left on device" in process.stderr
    assert lines[-1].startswith("test accuracy ")


def test_a_run_folder_that_cannot_be_written(program, tmp_path):
    (tmp_path / "file").write_text("kept")
    program.refused(program.run("train", *TINY, "--run", tmp_path / "file" / "run"), str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "kept"
    if os.geteuid() == 0:
        program.refused(program.run("train", *TINY, "--run", "/proc/run"), "/proc/run")
        return
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o500)
    program.refused(program.run("train", *TINY, "--run", folder), str(folder))


def test_a_checkpoint_of_another_architecture(program, tmp_path, small_mnist):
    run = tmp_path / "run"
    options = ["--data", small_mnist, "--hidden", "16", "--epochs", "1", "--batch", "16", "--run", run]
    first = program.run("train", *options)
    kept = {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    program.accuracy(first)
    process = program.run("train", *options, "--arch", "lenet", "--resume")
    program.refused(process, str(run), 'arch is "lenet", the checkpoint\'s is "mlp"')
    assert {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()} == kept


def test_a_newer_format_version(program, tmp_path):
    path = tmp_path / "model"
    program.accuracy(program.run("train", *TINY, "-o", path))
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["bie"] = json.dumps(json.loads(header["__metadata__"]["bie"]) | {"format_version": 99})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    for command in (["eval", path], ["inspect", path], ["predict", path, path], ["quantize", path], ["bench", path]):
        program.refused(program.run(*command), str(path), "format version 99", "reads up to")


def test_a_table_without_a_label_or_with_one_class_is_refused(program, tmp_path):
    rows = [f"{i % 7},{i % 3},{i % 2}" for i in range(60)]
    table = tmp_path / "t.csv"
    for text, part in (
        ("a,b,label\n" + "\n".join([*rows[:5], "1,2,", *rows[5:]]), 'line 7, column 3: expected a label, got ""'),
        ("a,b,label\n" + "\n".join(f"{i},1,x" for i in range(60)), "expected two labels at least, got one"),
    ):
        table.write_text(text)
        program.refused(program.run("train", "--data", f"csv:{table}", "--epochs", "1"), "t.csv", part)
