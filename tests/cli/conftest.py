"""The fixture `program`: runs bie as a user would and reads what it says."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from user_files import SPECIES, flower, striped, write_idx, write_png


class Program:
    def __init__(self, path: Path):
        self.path = path

    def run(self, *arguments, env=None, threads=1):
        """The finished process. One thread unless told otherwise: two of them on a busy machine wait for each other."""
        environment = {k: v for k, v in os.environ.items() if k != "BIE_MAX_ISA"} | (env or {})
        command = [str(self.path), *(["--threads", str(threads)] if threads else []), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)

    def json(self, *arguments) -> dict:
        """The object that a command prints with --json."""
        process = self.run(*arguments, "--json")
        assert process.returncode == 0, process.stderr
        (line,) = process.stdout.splitlines()
        document = json.loads(line)
        assert document["schema"] == 1
        assert document["command"] in map(str, arguments)
        return document

    @staticmethod
    def accuracy(process) -> str:
        """The accuracy that a run of train or eval printed, as its text."""
        assert process.returncode == 0, process.stderr
        (found,) = re.findall(r"test accuracy (\d+\.\d\d) %", process.stdout)
        return found

    @staticmethod
    def refused(process, *parts, code=3):
        """Nothing on stdout, one error line on stderr that says every part, the exit code."""
        assert process.returncode == code, process
        assert process.stdout == ""
        errors = [line for line in process.stderr.splitlines() if not line.startswith("info: ")]
        assert len(errors) == 1, process.stderr
        assert errors[0].startswith("error: ")
        for part in parts:
            assert part in errors[0]


@pytest.fixture
def program(bie) -> Program:
    return Program(bie)


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


@pytest.fixture
def gpu():
    if not has_gpu():
        pytest.skip("this machine has no GPU")


@pytest.fixture
def no_gpu():
    if has_gpu():
        pytest.skip("this machine has a GPU, which bie cannot miss")


@pytest.fixture
def small_mnist(tmp_path) -> str:
    """mnist:DIR with 96 + 40 images of 17 x 17 pixels: a bright row where the label says."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    size = 17
    for stem, count in (("train", 96), ("t10k", 40)):
        labels = bytes((i * 7) % 10 for i in range(count))
        images = b"".join(
            bytes(200 if y == label else (x * y + i) % 60 for y in range(size) for x in range(size))
            for i, label in enumerate(labels)
        )
        write_idx(folder / f"{stem}-images-idx3-ubyte", (count, size, size), images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte", (count,), labels)
    return f"mnist:{folder}"


@pytest.fixture
def small_cifar(tmp_path) -> str:
    """cifar10:DIR with 40 + 12 images: a bright row where the label says."""
    folder = tmp_path / "cifar"
    folder.mkdir()

    def record(i):
        label = (i * 7) % 10
        rows = (200 if y == label else (x * y + i) % 60 for _ in range(3) for y in range(32) for x in range(32))
        return bytes([label, *rows])

    for number in range(5):
        images = range(8 * number, 8 * number + 8)
        (folder / f"data_batch_{number + 1}.bin").write_bytes(b"".join(map(record, images)))
    (folder / "test_batch.bin").write_bytes(b"".join(map(record, range(12))))
    return f"cifar10:{folder}"


@pytest.fixture
def flowers(tmp_path) -> Path:
    """A table of 90 flowers with the names of their species."""
    path = tmp_path / "flowers.csv"
    rows = (",".join([*map(str, flower(i)), SPECIES[i % 3]]) for i in range(90))
    path.write_text("\n".join(["length,width,hue,label", *rows]) + "\n")
    return path


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder of 2 x 20 PNG images."""
    folder = tmp_path / "photos"
    for i in range(20):
        write_png(folder / "across" / f"{i}.png", striped(i, upright=False))
        write_png(folder / "upright" / f"{i}.png", striped(i, upright=True))
    return folder
