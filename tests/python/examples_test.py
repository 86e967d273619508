"""The examples run as their docstrings say and learn; docs/quickstart.md shows first_layer.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples/python"


def run(*arguments, cwd):
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def accuracies(output):
    return [float(value) for value in re.findall(r"accuracy ([0-9.]+) %", output)]


def test_the_first_layer(tmp_path):
    found = re.fullmatch(r"accuracy ([0-9.]+), (\d+) bytes of weight\n", run(FOLDER / "first_layer.py", cwd=tmp_path))
    assert float(found[1]) > 0.95
    assert int(found[2]) == 300 * 63  # rows of ceil(500 / 8) bytes


@pytest.mark.parametrize("bits", ["1", "4", "8"])
def test_the_mlp(bits, tmp_path):
    output = run(FOLDER / "mnist_mlp.py", "--bits", bits, "--epochs", "5", "--width", "256", cwd=tmp_path)
    found = accuracies(output)
    assert len(found) == 6
    assert found[-2] > 94
    assert found[-1] == found[-2]  # of the packed file
    assert (tmp_path / "mlp.pt").stat().st_size < 256 * 256 * 2 * int(bits) / 8 + 150_000


def test_lenet(tmp_path):
    assert accuracies(run(FOLDER / "lenet_4bit.py", "--epochs", "4", cwd=tmp_path))[-1] > 94


def test_conversion(tmp_path):
    output = run(FOLDER / "convert_model.py", "--epochs", "4", cwd=tmp_path)
    start, eight, four = accuracies(output)
    assert start > 94
    assert min(eight, four) > start - 3
    assert output.count("3 swapped, 2 unchanged") == 2


@pytest.mark.parametrize(
    ("script", "package", "options"),
    [
        ("train_accelerate.py", "accelerate", ["--cpu"]),
        ("train_fabric.py", "lightning_fabric", ["--accelerator", "cpu"]),
    ],
)
def test_two_processes(script, package, options, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed")
    torchrun = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    output = run(*torchrun, "--nproc-per-node=2", FOLDER / script, *options, cwd=tmp_path)
    assert "2 processes: " in output
    assert accuracies(output)[-1] > 85  # four seeds: 93.9 to 97.5


def test_weights_with_data(tmp_path):
    output = run(FOLDER / "quantize_weights.py", cwd=tmp_path)
    start, nearest, gptq = accuracies(output)
    assert start > 94
    assert gptq > start - 3  # four seeds: -0.3 to +0.3, and -1.4 to +0.6 of round to nearest
    assert nearest > start - 6
    assert output.count("3 quantised, 0 unchanged") == 2


def test_mnist_files_are_read(tmp_path):
    """The four IDX files, one of them compressed."""
    script = """
import gzip, struct, sys
from pathlib import Path
folder = Path(sys.argv[1])
for part, count in (("train", 3), ("t10k", 2)):
    images = struct.pack(">4i", 2051, count, 28, 28) + bytes(i % 256 for i in range(count * 784))
    (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
    labels = struct.pack(">2i", 2049, count) + bytes(range(count))
    (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
sys.path.insert(0, sys.argv[2])
import datasets
train, test = datasets.load(str(folder))
assert train.tensors[0].shape == (3, 1, 28, 28) and test.tensors[1].tolist() == [0, 1]
assert abs(float(train.tensors[0][0, 0, 0, 1]) - 1 / 255) < 1e-7
"""
    subprocess.run([sys.executable, "-c", script, tmp_path, FOLDER], check=True)
