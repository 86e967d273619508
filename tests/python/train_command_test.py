"""``python -m bie.train``, alone and under torchrun: it learns, goes on where it stopped, refuses in a sentence."""

import gzip
import json
import os
import subprocess
import sys

import pytest
import torch

from bie.train.__main__ import Run, _options
from bie.train.data import load

NET = ["--bits", "1", "--hidden", "64", "--depth", "1", "--epochs", "6", "--seed", "2"]


def run(*arguments, ranks=1):
    command = [sys.executable, "-m", "bie.train"]
    if ranks > 1:
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--nproc-per-node={ranks}"]
        command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, "-m", "bie.train"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, check=False)


def trained(*arguments, ranks=1):
    done = run(*arguments, ranks=ranks)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_ranks_learn_and_report(tmp_path):
    said = trained(*NET, "--run-folder", str(tmp_path), ranks=2)
    assert "the integer weights of 2 ranks are the same" in said
    report = json.loads((tmp_path / "report.json").read_text())
    assert [rank["images"] for rank in report["ranks"]] == [32, 32]
    assert report["epochs"][-1]["accuracy"] > 0.85
    assert (tmp_path / "model.pt").exists()


def test_a_run_goes_on_to_the_bit(tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    trained(*NET, "--run", str(whole))
    part.mkdir()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes
    stopped = Run(_options([*NET, "--run", str(part)]))
    for _ in range(7):  # in the middle of an epoch
        stopped._step()
    stopped.save()
    torch.set_num_threads(threads)
    assert "goes on after step 7" in trained(*NET, "--run", str(part), "--resume")
    one, two = (torch.load(folder / "checkpoint.pt", weights_only=True)["model"] for folder in (whole, part))
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "mist:X"], "digits or mnist:DIR is wanted"),
        (["--data", "mnist:/nowhere"], "No such file"),
        (["--epochs", "0"], "a positive number is wanted"),
        (["--resume"], "--resume wants --run"),
        (["--batch", "5000"], "--batch is 5000, there are 1437 images"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(arguments, sentence):
    done = run(*arguments)
    assert done.returncode != 0 and sentence in done.stderr and "Traceback" not in done.stderr


def idx(kind, *shape, data):
    return bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + data


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte", b"\x89PNG"),
        ("train-images-idx3-ubyte", idx(8, 1 << 31, 1 << 31, 1 << 31, data=b"")),
        ("train-images-idx3-ubyte", idx(8, 2, 3, 3, data=bytes(17))),
        ("train-images-idx3-ubyte", idx(8, 2, 3, 3, data=bytes(19))),
        ("train-images-idx3-ubyte", idx(13, 2, 3, 3, data=bytes(72))),
        ("train-images-idx3-ubyte.gz", b"no gzip"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(8, 2, 3, 3, data=bytes(18)))[:-9]),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(8, 2, 3, 3, data=bytes(1 << 26)))),
    ],
)
def test_other_files_are_no_images(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="is no IDX file of bytes"):
        load(f"mnist:{tmp_path}")
