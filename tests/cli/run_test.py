"""Run folders, runs that are interrupted or stop early, and what --json prints."""

import html
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

TINY = ["--hidden", "33", "--depth", "1", "--epochs", "3"]
LONG = ["--hidden", "128", "--depth", "2", "--epochs", "1000"]


def log_of(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_a_run_folder_holds_the_run(program, tmp_path):
    run = tmp_path / "runs" / "first"
    document = program.json("train", *TINY, "--bits", "4", "--run", run)
    names = {path.name for path in run.iterdir()}
    assert {"config.json", "log.jsonl", "checkpoints", "model.safetensors", "report.html"} < names
    assert sum(name.startswith("events.out.tfevents.") for name in names) == 1
    config = json.loads((run / "config.json").read_text())
    assert config["schema"] == 1
    assert config["model"]["bits"] == 4
    assert config["recipe"]["epochs"] == 3
    assert config["command"].startswith("bie --threads 1 train --hidden 33 ")
    log = log_of(run)
    assert [line.pop("schema") for line in log] == [1] * 3
    assert log == document["epochs"]
    assert [line["epoch"] for line in log] == [1, 2, 3]
    assert log[2]["loss"] < log[0]["loss"]
    assert document["test_accuracy"] == log[-1]["test_accuracy"]
    assert document["end"] == "finished"
    assert document["saved"] == [str(run / "model.safetensors")]
    again = program.json("eval", run / "model.safetensors")
    assert again["test_accuracy"] == document["test_accuracy"]
    page = (run / "report.html").read_text()
    assert "4-bit mlp on digits" in page
    assert "Step size of the activations, by epoch" in page
    assert log[-1]["step_sizes"].keys() == {"block1"}
    assert 0.5 < log[-1]["train_accuracy"] <= 1
    assert log[-1]["integer_rate"] is None, "there are no int8 weights"
    assert "training accuracy" in page
    assert page.count(">classes<") == 1
    assert "Learning rate of the int8 weights" not in page
    assert "http" not in page.replace("http://www.w3.org/", ""), "no network"
    for layer in ("block0", "block1", "head"):
        assert layer in page


def test_a_run_of_one_bit_shows_its_flips(program, tmp_path):
    run = tmp_path / "run"
    document = program.json("train", *TINY, "--bits", "1", "--run", run)
    assert document["epochs"][-1]["flipped"] == {"block1": pytest.approx(document["flipped"])}
    assert document["flipped"] > 0
    assert document["epochs"][0]["integer_rate"] > document["epochs"][-1]["integer_rate"] > 0
    page = (run / "report.html").read_text()
    assert "Weights flipped since the start, by epoch" in page
    assert "Binary weights flipped since the start" in page
    assert "Learning rate of the int8 weights" in page


def test_a_run_is_not_written_over(program, tmp_path):
    run = tmp_path / "run"
    first = program.json("train", *TINY, "--run", run)
    kept = (run / "model.safetensors").read_bytes()
    program.refused(program.run("train", *TINY, "--run", run), str(run), "resume")
    again = program.json("train", *TINY, "--run", run, "--resume")
    assert again["epochs"] == first["epochs"]
    assert (run / "model.safetensors").read_bytes() == kept


def test_run_and_checkpoints_exclude_each_other(program, tmp_path):
    process = program.run("train", "--run", tmp_path / "a", "--checkpoints", tmp_path / "b")
    assert process.returncode == 2
    assert list(tmp_path.iterdir()) == []


def interrupted(program, sent, *arguments, after):
    """The finished process; the signal is sent once `after` exists."""
    command = [str(word) for word in (program.path, "--threads", "1", *arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not after():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_the_run_and_says_how_to_go_on(program, tmp_path, sent):
    run = tmp_path / "a run"
    options = ["--hidden", "64", "--depth", "1", "--epochs", "400", "--bits", "1"]
    log = run / "log.jsonl"
    process = interrupted(
        program, sent, "train", *options, "--run", run, after=lambda: log.exists() and len(log_of(run)) >= 2
    )
    assert process.returncode == 130
    assert process.stdout == ""
    last = process.stderr.splitlines()[-1]
    assert last.startswith("warning: interrupted after step ")
    step = int(last.split()[4].rstrip(","))
    assert (run / "checkpoints" / f"step-{step:012}.safetensors").exists()
    assert not (run / "model.safetensors").exists()
    line = last.split("go on with: ")[1]
    page = html.unescape((run / "report.html").read_text())
    assert f"The run was interrupted after step {step}, " in page
    assert line in page
    assert f"test accuracy after epoch {len(log_of(run))}" in page
    assert "Loss" in page
    assert "Worst mistakes" not in page
    assert line.endswith(f"--run '{run}' --resume")
    # The line is one that a shell takes, and the run goes on: it is interrupted again.
    environment = os.environ | {"PATH": f"{program.path.parent}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["sh", "-c", f"exec {line}"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as again:
        before = len(log_of(run))
        end = time.monotonic() + 60
        while len(log_of(run)) <= before and time.monotonic() < end:
            time.sleep(0.01)
        again.send_signal(sent)
        _, err = again.communicate(timeout=60)
    assert f"info: resumed after step {step}\n" in err
    epochs = [line["epoch"] for line in log_of(run)]
    assert epochs == list(range(1, len(epochs) + 1)), "no epoch is logged twice"


def test_ctrl_c_before_the_first_epoch_ends(program, tmp_path, small_mnist):
    """The page holds the layers as they are, and no curves."""
    run = tmp_path / "run"
    options = ["--data", small_mnist, "--arch", "lenet", "--hidden", "16", "--batch", "2", "--epochs", "1000"]
    started = run / "config.json"
    process = interrupted(program, signal.SIGINT, "train", *options, "--run", run, after=started.exists)
    assert process.returncode == 130
    page = (run / "report.html").read_text()
    assert "The run was interrupted after step " in page
    assert "conv2" in page
    assert f"the run's page is {run}/report.html" in process.stderr


def test_a_page_that_cannot_be_written_is_no_reason_to_lose_the_run(program, tmp_path):
    run = tmp_path / "run"
    options = ["--hidden", "64", "--depth", "1", "--epochs", "400", "--run", run]

    def ready():
        if not (run / "log.jsonl").exists() or not log_of(run):
            return False
        (run / "report.html").mkdir(exist_ok=True)  # what a page cannot replace
        return True

    process = interrupted(program, signal.SIGINT, "train", *options, after=ready)
    assert process.returncode == 130
    page, last = process.stderr.splitlines()[-2:]
    assert page.startswith("warning: ")
    assert "report.html" in page
    assert "go on with: " in last


def test_ctrl_c_without_a_folder_says_what_would_keep_the_run(program, tmp_path):
    started = time.monotonic()
    process = interrupted(
        program, signal.SIGINT, "train", *LONG, "--json", after=lambda: time.monotonic() > started + 1.5
    )
    assert process.returncode == 130
    document = json.loads(process.stdout)
    assert document["exit_code"] == 130
    assert "--run DIR" in document["error"]


def test_early_stopping(program, tmp_path):
    run = tmp_path / "run"
    document = program.json("train", "--hidden", "64", "--epochs", "200", "--patience", "2", "--run", run)
    accuracies = [epoch["test_accuracy"] for epoch in document["epochs"]]
    assert document["end"] == "patience"
    assert len(accuracies) < 200
    # Two epochs after the best one, those within the first 50 steps left out.
    counted = [epoch["epoch"] for epoch in document["epochs"] if epoch["step"] > 50]
    assert len([epoch for epoch in counted if epoch > accuracies.index(max(accuracies)) + 1]) == 2
    assert "Stopped early" in (run / "report.html").read_text()
    (run / "report.html").unlink()
    program.json("report", run)
    assert "Stopped early" in (run / "report.html").read_text()


def test_bits_of_single_layers(program, tmp_path):
    path = tmp_path / "model"
    widths = ["--bits", "4", "--first", "8", "--last", "8", "--bits-of", "block1=1"]
    document = program.json("train", *TINY, *widths, "-o", path)
    assert program.json("eval", path)["test_accuracy"] == document["test_accuracy"]
    layers = program.json("inspect", path)["layers"]
    assert [(layer["name"], layer["bits"]) for layer in layers] == [("block0", 8), ("block1", 1), ("head", 8)]
    tiny = ["train", *TINY]
    program.refused(program.run(*tiny, "--bits-of", "block9=8"), "'block9'", "block0, block1, head")
    program.refused(program.run(*tiny, "--bits-of", "block1"), "NAME=BITS")
    program.refused(program.run(*tiny, "--bits-of", "block1=3"), "block1=3", "32, 8, 4 or 1")
    program.refused(program.run(*tiny, "--first", "3"), "'block0': expected 32, 8, 4 or 1, got 3")


NET = """{
  "format_version": 1,
  "layers": [
    {"type": "conv", "out": 8, "kernel": 3, "padding": 1},
    {"type": "pool", "size": 2},
    {"type": "linear", "out": 32}
  ]
}
"""


def test_a_net_of_ones_own(program, tmp_path):
    net, path = tmp_path / "net.json", tmp_path / "model"
    net.write_text(NET)
    document = program.json("train", "--net", net, "--bits", "4", "--epochs", "3", "-o", path)
    assert document["test_accuracy"] > 0.5
    assert program.json("eval", path)["test_accuracy"] == document["test_accuracy"]
    assert [layer["bits"] for layer in program.json("inspect", path)["layers"]] == [32, 4, 32]
    net.write_text(NET.replace('"kernel": 3', '"kernel": 0'))
    program.refused(program.run("train", "--net", net), str(net), "line 4: layers[0].kernel: expected 1 to 64, got 0")
    net.write_text(NET.replace("]", ""))
    program.refused(program.run("train", "--net", net), str(net), "line 8: this is no JSON")
    net.write_text(NET)
    program.refused(program.run("train", "--net", net, "--hidden", "9"), "--hidden 9", "description")
    program.refused(program.run("train", "--net", net, "--width", "9"), "width is 9", "custom has no width")
    program.refused(program.run("train", "--arch", "custom"), "--net FILE")
    assert program.run("train", "--net", net, "--arch", "mlp").returncode == 2


def test_json_goes_through_jq(program):
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    command = f"'{program.path}' --threads 1 train {' '.join(TINY)} --json | jq -e .test_accuracy"
    process = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0
    assert 0.5 < float(process.stdout) <= 1


def test_an_error_is_json_too(program):
    process = program.run("train", "--hidden", "16", "--epochs", "0", "--json")
    assert process.returncode == 3
    document = json.loads(process.stdout)
    assert document == {"schema": 1, "command": "train", "error": document["error"], "exit_code": 3}
    assert f"error: {document['error']}\n" == process.stderr[-len(document["error"]) - 8 :]


def test_doctor_and_demo_print_json(program):
    document = program.json("doctor")
    assert document["program"]["version"]
    assert {row["state"] for row in document["kernels"]} <= {
        "available",
        "left out by BIE_MAX_ISA",
        "not on this machine",
    }
    document = program.json("demo", "--epochs", "1")
    assert [width["name"] for width in document["widths"]] == ["32", "8", "4", "1", "1*"]


def test_demo_writes_a_page(program, tmp_path):
    page = tmp_path / "demo.html"
    assert program.run("demo", "--epochs", "1", "--report", page).returncode == 0
    assert "One net at 32, 8, 4 and 1 bit on digits" in page.read_text()
    program.refused(program.run("demo", "--report", tmp_path / "no" / "page"), "--report")


def test_tensorboard_reads_the_events(program, tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the package tensorboard is not installed"
    )
    run = tmp_path / "run"
    epochs = program.json("train", *TINY, "--run", run)["epochs"]
    events = accumulator.EventAccumulator(str(run))
    events.Reload()
    for tag in ("loss", "train_accuracy", "test_accuracy", "rate"):
        scalars = events.Scalars(tag)
        assert [scalar.step for scalar in scalars] == [epoch["step"] for epoch in epochs]
        assert [scalar.value for scalar in scalars] == pytest.approx([epoch[tag] for epoch in epochs])


def test_the_page_of_a_folder_is_the_runs(program, tmp_path):
    """`bie report` from the files alone; an 8-bit layer's histogram is of floats, which a packed model has not."""
    run = tmp_path / "run"
    program.json("train", *TINY, "--bits", "1", "--run", run)
    before = (run / "report.html").read_text()
    (run / "report.html").unlink()
    document = program.json("report", run)
    assert document["report"] == str(run / "report.html")
    assert document["test_accuracy"] == log_of(run)[-1]["test_accuracy"]
    after = (run / "report.html").read_text()
    for part in ("1-bit mlp on digits", "Learning rate of the int8 weights", "Confusion", "binary weights flipped"):
        assert part in before and part in after
    assert "<h2>Ranks</h2>" not in after


def test_the_page_of_several_processes(program, tmp_path):
    run = tmp_path / "run"
    program.json("train", *TINY, "--run", run)
    ranks = [{"rank": i, "host": f"host{i}", "device": "cpu", "images": 640, "seconds": 2.0} for i in range(2)]
    (run / "ranks.json").write_text(json.dumps({"schema": 1, "ranks": ranks}))
    program.json("report", run)
    page = (run / "report.html").read_text()
    assert "<h2>Ranks</h2>" in page and "host1" in page and ">320<" in page


@pytest.mark.parametrize(
    ("file", "content", "parts"),
    [
        ("config.json", '{"command": "c", "sta', ["config.json", "is no JSON, or is cut off"]),
        ("config.json", '{"command": "c", "started": "s", "data": 3}', ["its entry 'data': expected an object, got 3"]),
        (
            "config.json",
            '{"command": "c", "started": "s", "data": {}, "model": {}, "recipe": {}, "program": {}}',
            ["does not say which data set", "--data"],
        ),
        ("log.jsonl", "{}\n{", ["log.jsonl", "no JSON"]),
        ("log.jsonl", "{}\n", ["the history of a run cannot be read"]),
        ("ranks.json", "[]", ["ranks.json", "its entry 'ranks': expected a list, got none"]),
        ("ranks.json", '{"ranks": [{"rank": -1}]}', ["its entry 'rank': expected a whole number, got"]),
        ("ranks.json", '{"ranks": [3]}', ["its entry 'rank': expected a whole number, got"]),
        ("model.safetensors", "", ["model.safetensors"]),
    ],
)
def test_bad_files_of_a_run(program, tmp_path, file, content, parts):
    run = tmp_path / "run"
    program.json("train", *TINY, "--run", run)
    page = (run / "report.html").read_bytes()
    (run / file).write_text(content)
    program.refused(program.run("report", run), *parts)
    assert (run / "report.html").read_bytes() == page


def test_a_folder_without_a_run_has_no_page(program, tmp_path):
    program.refused(program.run("report", tmp_path), "config.json")
    program.refused(program.run("report", tmp_path / "none"), str(tmp_path / "none"))


def test_a_folder_knows_its_command(program, tmp_path):
    run = tmp_path / "run"
    whole = ["train", "--hidden", "32", "--depth", "1", "--bits=4", "--run", run]
    program.accuracy(program.run(*whole, "--epochs", "2"))
    moved = run.rename(tmp_path / "moved")
    again = program.run("train", "--run", moved, "--resume")
    program.accuracy(again)
    longer = program.json("train", f"--run={moved}", "--resume", "--epochs", "3")
    assert [epoch["epoch"] for epoch in longer["epochs"]] == [1, 2, 3]
    config = json.loads((moved / "config.json").read_text())
    assert config["recipe"]["epochs"] == 3 and config["model"]["bits"] == 4
    process = program.run("train", "--run", moved, "--resume", "--epochs", "2")
    program.refused(process, "a checkpoint of another run", "epochs is 2, the checkpoint's is 3")
    config.pop("words")
    (moved / "config.json").write_text(json.dumps(config))
    program.refused(program.run("train", "--run", moved, "--resume"), "does not say the words of its command")
    (moved / "config.json").write_text("[")
    program.refused(program.run("train", "--run", moved, "--resume"), "does not say the words of its command")
    program.refused(program.run("train", "--run", tmp_path / "none", "--resume"), "cannot be opened")
