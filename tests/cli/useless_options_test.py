"""Options that would do nothing beside the others: one sentence, exit code 2."""

import json

import pytest

TINY = ["--hidden", "16", "--depth", "1", "--epochs", "1"]

USELESS = {
    "checkpoint interval without a folder": (
        ["train", *TINY, "--checkpoint-every", "5"],
        ["--checkpoint-every 5", "--run"],
    ),
    "compat of floats": (["train", *TINY, "--compat", "bie-0.2.6"], ["--compat bie-0.2.6", "quantised layers"]),
    "gradients of floats": (["train", *TINY, "--gradients", "reference"], ["--gradients reference", "8 and 4 bits"]),
    "gradients of signs": (["train", *TINY, "--bits", "1", "--gradients", "reference"], ["--gradients reference"]),
    "step floor of floats": (["train", *TINY, "--step-floor", "0.1"], ["--step-floor", "quantised layers"]),
    **{
        f"bfloat16 moments of {name}": (
            ["train", *TINY, "--bits", "8", "--optimizer", name, "--bfloat16-moments"],
            ["--bfloat16-moments", "DiodeMix"],
        )
        for name in ("sgd", "adam")
    },
    "bfloat16 moments of frozen signs": (
        ["train", *TINY, "--bits", "1", "--optimizer", "sgd", "--freeze-binary", "--bfloat16-moments"],
        ["--bfloat16-moments"],
    ),
    "a float first layer, quantised": (
        ["train", *TINY, "--bits", "4", "--first", "32", "--quantise-first"],
        ["--first 32", "--quantise-first", "block0"],
    ),
    "a first layer said twice": (
        ["train", *TINY, "--bits", "4", "--first", "8", "--bits-of", "block0=4"],
        ["--bits-of block0=4", "--first 8", "block0"],
    ),
    "a last layer said twice": (
        ["train", *TINY, "--last", "8", "--bits-of", "head=4"],
        ["--bits-of head=4", "--last 8", "head"],
    ),
    "a layer said twice": (
        ["train", *TINY, "--bits-of", "block1=4", "--bits-of", "block1=8"],
        ["--bits-of block1=8", "--bits-of block1=4"],
    ),
    "nothing to quantise first": (["train", *TINY, "--quantise-first"], ["--quantise-first", "the first layer has 32"]),
    "a form that is not saved": (["train", *TINY, "--training-form"], ["--training-form", "--out"]),
    "patience beyond the last epoch": (["train", *TINY, "--patience", "5"], ["--patience 5", "1 epoch"]),
    "rows of no model": (["tune", "--gemm", "8,64,512,512", "--batch", "8"], ["--batch", "--model"]),
}


@pytest.mark.parametrize("name", USELESS)
def test_an_option_that_would_do_nothing_exits_2(program, name):
    arguments, parts = USELESS[name]
    process = program.run(*arguments)
    assert process.returncode == 2
    assert process.stdout == ""
    (line,) = [line for line in process.stderr.splitlines() if not line.startswith(("info: ", "Run with "))]
    assert all(part in line for part in parts), line


def test_an_option_of_quantize_that_would_do_nothing_exits_2(program, tmp_path):
    path = tmp_path / "model"
    assert program.run("train", *TINY, "-o", path).returncode == 0
    for options, parts in (
        (["--percentile", "99"], ["--percentile", "--method percentile"]),
        (["--method", "mse", "--percentile", "99"], ["--percentile", "mse"]),
        (["--first", "8", "--bits-of", "block0=4"], ["--first 8", "block0"]),
        (["--bits-of", "block0=4", "--bits-of", "block0=4"], ["--bits-of block0=4"]),
    ):
        process = program.run("quantize", path, *options)
        assert process.returncode == 2
        assert all(part in process.stderr for part in parts), process.stderr
    assert program.run("quantize", path, "--method", "percentile", "--percentile", "99").returncode == 0


def test_widths_that_a_described_net_has_no_layer_for(program, tmp_path):
    net, linear = tmp_path / "net.json", {"type": "linear", "out": 8}
    for layers, options, code in (
        ([linear | {"bits": 8}], ["--bits", "4"], 2),
        ([linear, linear | {"bits": 8}], ["--bits", "4"], 2),
        ([linear, linear | {"bits": 8}], ["--bits", "4", "--quantise-first"], 0),
        ([linear, linear], ["--bits", "4"], 0),
        ([linear, linear], ["--linear-bits", "4"], 2),
    ):
        net.write_text(json.dumps({"format_version": 1, "layers": layers}))
        process = program.run("train", "--net", net, "--epochs", "1", *options)
        assert process.returncode == code, (layers, options, process.stderr)
        assert code == 0 or " ".join(options[:2]) in process.stderr


def test_options_that_do_something_are_taken(program, tmp_path):
    for options in (
        ["--bits", "1", "--compat", "bie-0.2.6"],
        ["--bits", "1", "--optimizer", "sgd", "--bfloat16-moments"],
        ["--bfloat16-moments"],
        ["--bits", "8", "--weights", "int8", "--optimizer", "adam", "--bfloat16-moments"],
        ["--bits-of", "block1=4", "--gradients", "reference", "--step-floor", "0.1"],
        ["--first", "8", "--last", "8"],
        ["--bits", "4", "--quantise-first", "--bits-of", "block1=8"],
    ):
        assert program.run("train", *TINY, *options).returncode == 0, options
    assert program.run("train", *TINY[:-1], "2", "--patience", "1").returncode == 0
