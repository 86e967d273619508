"""``python -m bie.train``, alone and under torchrun: it learns, goes on where it stopped, refuses in a sentence."""

import json
import os
import subprocess
import sys

import pytest
import torch

from bie.train.__main__ import main
from bie.train.options import parse
from bie.train.run import Run

NET = ["--bits", "1", "--hidden", "64", "--depth", "1", "--epochs", "6", "--seed", "2"]


def torchrun(ranks, *arguments):
    """What the command says, run by so many ranks."""
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--nproc-per-node={ranks}"]
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, "-m", "bie.train", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def train(capsys):
    """Runs the command in this process; what it says."""

    def run(*arguments):
        main(arguments)
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """The sentence with which the command ends."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code not in (0, None)
        return f"{ended.value.code} {capsys.readouterr().err}"

    return run


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_two_ranks_learn_and_report(tmp_path):
    said = torchrun(2, *NET, "--run-folder", str(tmp_path))
    assert "the integer weights of 2 ranks are the same" in said
    ranks = json.loads((tmp_path / "ranks.json").read_text())["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert [rank["images"] for rank in ranks] == [6 * 22 * 32] * 2
    epochs = log_of(tmp_path)
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3, 4, 5, 6]
    assert epochs[-1]["test_accuracy"] > 0.85 and epochs[-1]["train_accuracy"] > 0.85
    assert 0 < epochs[-1]["flipped"]["block1"] < 1
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["data"]["spec"] == "digits" and config["recipe"]["batch"] == 64
    for names in ("samples", "images"):
        assert [config["data"][f"{part}_{names}"] for part in ("train", "test", "validation")] == [1437, 360, 0]
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("optimizer", ["diodemix", "sgd"])
def test_a_run_goes_on_to_the_bit(tmp_path, train, optimizer):
    whole, part = tmp_path / "whole", tmp_path / "part"
    options = [*NET, "--epochs", "3", "--optimizer", optimizer]
    train(*options, "--run", str(whole))
    stopped = Run(parse([*options, "--run", str(part)]))
    stopped.start()
    for _ in range(30):  # in the middle of the second epoch
        stopped.train_step()
        if stopped.step == 22:
            stopped._end_of_epoch()
    stopped.save()
    assert "goes on after step 30" in train(*options, "--run", str(part), "--resume")
    one, two = (torch.load(folder / "checkpoint.pt", weights_only=True)["model"] for folder in (whole, part))
    assert all(torch.equal(one[key], two[key]) for key in one)
    logs = [log_of(folder) for folder in (whole, part)]
    for key in ("epoch", "step", "loss", "train_accuracy", "test_accuracy", "flipped", "rate"):
        assert [line[key] for line in logs[0]] == [line[key] for line in logs[1]]


def test_another_run_is_not_gone_on_with_and_not_written_over(tmp_path, train, refused):
    options = [*NET, "--epochs", "1", "--run", str(tmp_path)]
    train(*options)
    assert "is of a run; --resume goes on with that run" in refused(*options)
    assert "is of a run with lr None, not 0.1" in refused(*options, "--lr", "0.1", "--resume")


def test_a_run_ends_when_patience_does(tmp_path, train):
    # A rate of nothing: what an epoch changes is BatchNorm's statistics.
    options = ["--hidden", "16", "--depth", "1", "--lr", "1e-12", "--epochs", "30", "--patience", "2"]
    said = train(*options, "--run", str(tmp_path))
    epochs = log_of(tmp_path)
    best = max(range(len(epochs)), key=lambda i: epochs[i]["test_accuracy"])
    assert "stopped early" in said and len(epochs) < 30
    assert sum(epoch["step"] > 50 for epoch in epochs[best + 1 :]) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "mist:X"], "expected digits, mnist:DIR, cifar10:DIR or images:DIR, got mist:X"),
        (["--data", "mnist:/nowhere"], "No such file"),
        (["--epochs", "0"], "expected a number from 1 on, got"),
        (["--lr", "nan"], "expected a positive number, got"),
        (["--warmup", "1"], "expected a share in [0, 1), got"),
        (["--resume"], "--resume wants --run"),
        (["--arch", "lenet"], "lenet wants images of at least 16x16, these are 8x8"),
        (["--arch", "lenet", "--depth", "2"], "but lenet has no depth"),
        (["--arch", "vgg-small", "--no-norm"], "does not train without BatchNorm"),
        (["--linear-bits", "4"], "all layers of an mlp are linear"),
        (["--bits-of", "blok=4"], "there is no layer 'blok'; the layers are block0"),
        (["--bits-of", "block1=5"], "expected NAME=BITS of 32, 8, 4 or 1 bits, got"),
        (["--bits-of", "block0=4", "--first", "8"], "expected one option for layer block0, got --first 8 too"),
        (["--hidden", "8", "--width", "8"], "expected one of them"),
        (["--weights", "int8"], "has float weights alone"),
        (["--freeze-binary", "--bits", "4"], "--freeze-binary wants 1-bit weights"),
        (["--integer-memory", "0.2", "--bits", "1", "--freeze-binary"], "--integer-memory wants 1-bit int8 weights"),
        (["--gradients", "reference", "--bits", "1"], "wants layers of 8 and 4 bits"),
        (["--gradients", "exact", "--compat", "bie-0.2.6"], "computes the reference's gradients"),
        (["--compat", "bie-0.2.6"], "wants quantised layers, the model has none"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(refused, arguments, sentence):
    assert sentence in refused(*arguments)


def stopped(options, steps):
    """A run that ended in the middle of an epoch, as one that is killed behind a checkpoint."""
    run = Run(parse(options))
    run.start()
    for _ in range(steps):
        run.train_step()
    run.save()
    return run


@pytest.mark.parametrize("bits", ["1", "8", "4"])
def test_a_run_that_stopped_inside_an_epoch_goes_on_as_if_it_had_not(tmp_path, bits, train):
    options = ["--bits", bits, "--hidden", "24", "--depth", "2", "--epochs", "2", "--seed", "2", "--lr", "0.3"]
    options += ["--batch", "100", "--step-floor", "0.9"]  # a rate that drives step sizes down to their floors
    whole, part = tmp_path / "whole", tmp_path / "part"
    train(*options, "--run", str(whole))
    stopped([*options, "--run", str(part)], 5)
    resumed = Run(parse([*options, "--run", str(part), "--resume"]))
    resumed.resume()
    assert resumed.step == 5
    resumed.start()
    resumed.train_all()
    resumed.finish()
    kept = ("epoch", "step", "loss", "train_accuracy", "test_accuracy", "step_sizes")
    for a, b in zip(log_of(whole), log_of(part), strict=True):
        assert {key: a[key] for key in kept} == {key: b[key] for key in kept}
    assert (whole / "model.safetensors").read_bytes() == (part / "model.safetensors").read_bytes()


def test_no_output_is_an_input(tmp_path, refused):
    net, run = tmp_path / "n.json", tmp_path / "run"
    text = '{"layers": [{"kind": "linear", "out": 10}]}'
    net.write_text(text)
    run.mkdir()
    (tmp_path / "link").symlink_to(net)
    os.link(net, run / "ranks.json")
    (run / "checkpoint.pt").write_text("a checkpoint")
    data = tmp_path / "mnist"
    data.mkdir()
    (data / "train-images-idx3-ubyte").write_text("images")
    for words in (
        ["--net", str(net), "-o", str(net)],
        ["--net", str(net), "-o", str(tmp_path / "link")],
        ["--net", str(net), "-o", str(run / "ranks.json")],
        ["--net", str(net), "--run", str(run)],
        ["--data", f"mnist:{data}", "-o", str(data / "train-images-idx3-ubyte")],
        ["--run", str(run), "--resume", "-o", str(run / "checkpoint.pt")],
    ):
        assert "expected another file to write" in refused(*words)
    assert net.read_text() == text and (data / "train-images-idx3-ubyte").read_text() == "images"
    assert (run / "checkpoint.pt").read_text() == "a checkpoint"
