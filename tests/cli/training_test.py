"""train and eval as a user runs them: results, saved models, seeds, the progress bar."""

import errno
import gzip
import os
import pty
import re
import struct
import subprocess
import tarfile
from pathlib import Path

import numpy
import pytest

WIDTHS = [32, 8, 4, 1]
CIFAR_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BAR = re.compile(r"[#.]{20}")
TINY = ["--hidden", "33", "--depth", "1", "--epochs", "2"]
RESULT = re.compile(r"test accuracy \d+\.\d\d %(, binary weights flipped \d+\.\d %)?, \d+\.\d s\n")


@pytest.mark.parametrize("bits", WIDTHS)
def test_train_saves_what_eval_reads(program, tmp_path, bits):
    path = tmp_path / "model.safetensors"
    process = program.run("train", *TINY, "--bits", bits, "-o", path)
    assert RESULT.fullmatch(process.stdout), process.stdout
    assert ("flipped" in process.stdout) == (bits == 1)
    assert [line[:6] for line in process.stderr.splitlines()] == ["info: "] * 5
    assert str(path) in process.stderr
    assert not BAR.search(process.stderr)
    assert "\r" not in process.stderr
    trained = program.accuracy(process)
    assert float(trained) > 50, "two epochs are far better than guessing"
    evaluated = program.run("eval", path)
    assert evaluated.stdout == f"test accuracy {trained} %\n"
    assert evaluated.stderr == ""
    # The numbers are those of every kernel, not of the fastest one alone.
    reference = program.run("eval", path, env={"BIE_MAX_ISA": "reference"})
    if bits != 32:
        assert reference.stdout == evaluated.stdout


def test_low_bits_make_small_files(program, tmp_path):
    sizes = {}
    for bits in WIDTHS:
        path = tmp_path / f"{bits}.safetensors"
        assert program.run("train", "--hidden", "128", "--epochs", "1", "--bits", bits, "-o", path).returncode == 0
        sizes[bits] = path.stat().st_size
    inner = 3 * 128 * 128
    assert sizes[32] - sizes[8] > 2.8 * inner
    assert sizes[8] - sizes[4] == pytest.approx(inner / 2, abs=256)
    assert sizes[4] - sizes[1] == pytest.approx(inner * 3 / 8, abs=256)


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_seed_decides(program, tmp_path, bits):
    def trained(name, seed):
        path = tmp_path / name
        process = program.run("train", *TINY, "--bits", bits, "--seed", seed, "-o", path)
        return program.accuracy(process), path.read_bytes()

    first = trained("a", 3)
    assert trained("b", 3) == first
    assert trained("c", 4)[1] != first[1]


def test_quiet_leaves_the_result_alone(program):
    process = program.run("-q", "train", *TINY)
    assert RESULT.fullmatch(process.stdout)
    assert process.stderr == ""


def test_layers_come_before_the_result(program):
    process = program.run("train", *TINY, "--bits", "1", "--layers", "--compat", "bie-0.2.6")
    table, result = process.stdout.split("\n\n")
    assert RESULT.fullmatch(result)
    assert "BinaryLinear(33, 33, int8 weight, compat=bie-0.2.6)" in table
    assert table.splitlines()[-1].startswith("total")


@pytest.mark.parametrize("bits", WIDTHS)
def test_a_diverged_run_fails_and_saves_nothing(program, tmp_path, bits):
    process = program.run("-q", "train", *TINY, "--bits", bits, "--lr", "1e30", "-o", tmp_path / "model")
    assert process.returncode == 1
    assert process.stdout == ""
    (line,) = process.stderr.splitlines()
    assert line.startswith("error: training diverged in epoch 1: ")
    assert list(tmp_path.iterdir()) == []


def test_compat_implies_its_gradients(program, tmp_path):
    files = {}
    for gradients in ([], ["--gradients", "reference"]):
        path = tmp_path / "model"
        command = ["train", *TINY, "--bits", "4", "--compat", "bie-0.2.6", *gradients, "-o", path]
        assert program.run(*command).returncode == 0
        files[tuple(gradients)] = path.read_bytes()
    assert len(set(files.values())) == 1


def test_without_out_nothing_is_written(program, tmp_path):
    command = [str(program.path), "-q", "--threads", "1", "train", *TINY]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(program, tmp_path):
    path = tmp_path / "no folder" / "model"
    process = program.run("-q", "train", *TINY, "-o", path)
    assert process.returncode == 3
    assert process.stderr.startswith("error: ")
    assert str(path) in process.stderr
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_lenet_from_files(program, tmp_path, small_mnist, bits):
    path, data = tmp_path / "model", small_mnist
    options = ["--arch", "lenet", "--hidden", "16", "--epochs", "2", "--batch", "16"]
    process = program.run("train", "--data", data, *options, "--bits", bits, "-o", path)
    assert "96 training and 40 test images" in process.stderr
    assert program.accuracy(program.run("eval", path, "--data", data)) == program.accuracy(process)


def test_demo_compares_the_widths(program, tmp_path):
    process = program.run("demo", "--epochs", "1", "--seeds", "1", env={"TMPDIR": str(tmp_path)})
    assert process.returncode == 0, process.stderr
    rows = [line for line in process.stdout.splitlines() if re.match(r" +\d+\*? ", line)]
    assert [row.split()[0] for row in rows] == [*map(str, WIDTHS), "1*"]
    accuracies = [float(re.findall(r"(\d+\.\d\d) %", row)[0]) for row in rows]
    assert min(accuracies) > 70
    assert max(map(len, process.stdout.splitlines())) <= 80
    sizes = [int(found) for row in rows for found in re.findall(r" (\d{6,}) ", row)]
    assert len(sizes) == 5
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[3] == sizes[4], "the frozen twin is the same net"
    flipped = [re.findall(r"(-|\d+\.\d %) +\d{6,} ", row)[0] for row in rows]
    assert flipped[:3] == ["-"] * 3
    assert flipped[4] == "0.0 %" != flipped[3]
    assert list(tmp_path.iterdir()) == [], "the files it measured are gone"


@pytest.fixture
def mnist(root) -> Path:
    folder = root.parent / "shared/data/mnist"
    if not folder.is_dir():
        pytest.skip("MNIST is not here: its four IDX files belong in shared/data/mnist beside the repository")
    return folder


def trained_on(program, data, path, *options) -> float:
    """The accuracy of one epoch at 8 bits, which eval confirms."""
    options = ["--hidden", "32", "--epochs", "1", "--bits", "8", *options]
    accuracy = program.accuracy(program.run("train", "--data", data, *options, "-o", path))
    assert program.accuracy(program.run("eval", path, "--data", data)) == accuracy
    return float(accuracy)


def test_mnist_mlp(program, mnist, tmp_path):
    options = ["--depth", "1", "--batch", "256", "--lr", "4e-3"]
    assert trained_on(program, f"mnist:{mnist}", tmp_path / "model", *options) > 90


def test_mnist_lenet(program, mnist, tmp_path):
    # A tenth of the images: one thread needs most of a minute for all of them.
    for stem, kind, count, item in [
        ("train", "images-idx3", 6000, 784),
        ("train", "labels-idx1", 6000, 1),
        ("t10k", "images-idx3", 1000, 784),
        ("t10k", "labels-idx1", 1000, 1),
    ]:
        whole = gzip.decompress((mnist / f"{stem}-{kind}-ubyte.gz").read_bytes())
        sizes = whole[8:16] if item > 1 else b""
        start = 8 + len(sizes)
        part = whole[:4] + struct.pack(">I", count) + sizes + whole[start : start + count * item]
        (tmp_path / f"{stem}-{kind}-ubyte").write_bytes(part)
    assert trained_on(program, f"mnist:{tmp_path}", tmp_path / "model", "--arch", "lenet", "--lr", "4e-3") > 90


@pytest.fixture
def cifar(root, tmp_path) -> str:
    """cifar10:DIR with the first 400 + 100 images of CIFAR-10 (JPEG), as its unpack.py would write them."""
    archives = root.parent / "shared/data/cifar10"
    if not archives.is_dir():
        pytest.skip(
            "CIFAR-10 is not here: its archives and unpack.py belong in shared/data/cifar10 beside the repository"
        )
    image = pytest.importorskip("PIL.Image", reason="pillow, which unpacks CIFAR-10, is not installed")

    def records(name, count):
        found = {}
        with tarfile.open(archives / name) as tar:
            for member in tar:
                path = Path(member.name)
                if int(path.stem) < count:
                    pixels = numpy.asarray(image.open(tar.extractfile(member)).convert("RGB"))
                    found[int(path.stem)] = (
                        bytes([CIFAR_CLASSES.index(path.parent.name)]) + pixels.transpose(2, 0, 1).tobytes()
                    )
        return [found[i] for i in range(count)]

    train = records("train.tar.xz", 400)
    for i in range(5):
        (tmp_path / f"data_batch_{i + 1}.bin").write_bytes(b"".join(train[80 * i : 80 * i + 80]))
    (tmp_path / "test_batch.bin").write_bytes(b"".join(records("test.tar.xz", 100)))
    return f"cifar10:{tmp_path}"


def test_cifar_lenet(program, cifar, tmp_path):
    options = ["--arch", "lenet", "--batch", "8", "--lr", "2e-3"]
    assert trained_on(program, cifar, tmp_path / "model", *options) > 15, "50 steps are better than guessing"


def on_a_terminal(command):
    """Exit code, stdout and what a terminal on stderr shows."""
    master, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError as error:  # Linux reports a terminal whose other end is closed this way
                assert error.errno == errno.EIO
                break
            if not block:
                break
            shown += block
        os.close(master)
        result = process.stdout.read().decode()
    return process.returncode, result, shown.decode()


def test_a_terminal_shows_a_progress_bar(program):
    code, result, shown = on_a_terminal([str(program.path), "--threads", "1", "train", *TINY])
    assert code == 0
    assert RESULT.fullmatch(result), "the bar never touches stdout"
    bars = re.findall(r"\rtrain \[([#.]+)\] epoch (\d)/2  loss \d+\.\d{4}  (?:\d+\.\d\d %  )?\d:\d\d left", shown)
    filled = [bar.count("#") / len(bar) for bar, _ in bars]
    assert filled == sorted(filled)
    assert filled[0] < 0.1
    assert set(bars[-1][0]) == {"#"}
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]", shown) if "left" in line) < 80
    assert bars[-1][1] == "2"
    _, after = re.split(r"\r +\r", shown.rsplit("]", 1)[1])  # the bar wipes itself away
    assert all("info" in line for line in after.splitlines()), "only log lines follow it"
