"""bie report: the page and the results of a run once more, of the same rows as at its end."""

import json
import os
from random import Random

import pytest

SMALL = ["--hidden", "16", "--depth", "1", "--epochs", "2", "--bits", "8"]


def noisy(path, count: int, start: int, *, comment: str = ""):
    """Rows whose labels are noise: those that were learnt score higher than others."""
    random = Random(start)
    rows = [f"{random.random()},{random.random()},{i % 3}" for i in range(count)]
    path.write_text("a,b,label\n" + comment + "\n".join(rows) + "\n")
    return path


def report_again(program, run, *options):
    """results.json before and after, and what is said."""
    before = json.loads((run / "results.json").read_text())
    (run / "results.json").unlink()
    said = program.json("report", run, *options)
    return before, json.loads((run / "results.json").read_text()), said


@pytest.mark.parametrize(
    "options",
    [
        ["--test-data", "test.csv"],
        ["--test-data", "test.csv", "--best"],
        ["--best"],
        ["--split", "order", "--test-share", "0.4"],
        ["--split-seed", "7"],
        ["--comment", "#"],
        ["--header", "yes", "--drop", "b"],
    ],
    ids=" ".join,
)
def test_a_report_counts_the_rows_that_the_run_counted(program, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    noisy(tmp_path / "train.csv", 200, 0, comment="# a remark\n" if "--comment" in options else "")
    noisy(tmp_path / "test.csv", 100, 11)
    done = program.run("train", *SMALL, "--data", "csv:train.csv", *options, "--run", "r")
    assert done.returncode == 0, done.stderr
    before, after, said = report_again(program, tmp_path / "r")
    for key in ("test_samples", "test_score", "test_loss", "confusion"):
        assert after[key] == before[key], key
    assert said["test_accuracy"] == before["test_score"]


def test_a_test_file_that_has_moved_is_named(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noisy(tmp_path / "train.csv", 120, 0)
    noisy(tmp_path / "test.csv", 60, 11)
    done = program.run("train", *SMALL, "--data", "csv:train.csv", "--test-data", "test.csv", "--run", "r")
    assert done.returncode == 0, done.stderr
    (tmp_path / "test.csv").rename(tmp_path / "moved.csv")
    results = (tmp_path / "r" / "results.json").read_bytes()
    program.refused(program.run("report", "r"), "test.csv")
    assert (tmp_path / "r" / "results.json").read_bytes() == results
    before, after, _ = report_again(program, tmp_path / "r", "--test-data", "moved.csv")
    assert after["test_score"] == before["test_score"] and after["test_samples"] == 60


def test_a_report_of_nested_pictures(program, tmp_path, photos):
    for kind in ("across", "upright"):
        (photos / kind / "more").mkdir()
        for i in range(10):
            (photos / kind / f"{i}.png").rename(photos / kind / "more" / f"{i}.png")
    run = tmp_path / "r"
    train = ["train", "--arch", "mlp", *SMALL, "--data", f"images:{photos}", "--nested", "--run", run]
    done = program.run(*train)
    assert done.returncode == 0, done.stderr
    before, after, _ = report_again(program, run)
    assert (after["test_samples"], after["test_score"]) == (before["test_samples"], before["test_score"])
    assert after["test_samples"] == 8


def test_a_run_of_data_whose_name_is_no_utf8(program, tmp_path):
    """JSON cannot hold the name, which is asked for."""
    table = os.fsencode(tmp_path) + b"/caf\xe9.csv"
    noisy(tmp_path / "train.csv", 120, 0).rename(os.fsdecode(table))
    data, run = f"csv:{os.fsdecode(table)}", tmp_path / "r"
    done = program.run("train", *SMALL, "--data", data, "--run", run)
    assert done.returncode == 0, done.stderr
    program.refused(program.run("report", run), "does not say which data set it is of", "--data")
    before, after, _ = report_again(program, run, "--data", data)
    assert after["test_score"] == before["test_score"]
    program.refused(program.run("train", "--run", run, "--resume"), "the whole command with --resume")


def test_training_rows_are_not_called_test_rows(program, tmp_path, monkeypatch):
    """The whole table was learnt, as another one was for testing."""
    monkeypatch.chdir(tmp_path)
    noisy(tmp_path / "train.csv", 120, 0)
    noisy(tmp_path / "test.csv", 60, 11)
    train = ["train", *SMALL[:-2], "--bits", "32", "--data", "csv:train.csv", "--test-data", "test.csv"]
    done = program.run(*train, "-o", "m")
    assert done.returncode == 0, done.stderr
    program.refused(program.run("quantize", "m", "--calib", "csv:train.csv"), "training rows", "--test-data")
    said = program.json("quantize", "m", "--calib", "csv:train.csv", "--test-data", "test.csv")
    assert f"{100 * said['test_accuracy_before']:.2f}" == program.accuracy(done)
    done = program.run("eval", "m", "--data", "csv:train.csv")
    assert done.stdout.startswith("training accuracy") and "training rows" in done.stderr
    assert program.json("eval", "m", "--data", "csv:train.csv")["rows"] == "training"
    assert program.json("eval", "m", "--data", "csv:test.csv")["rows"] == "test"
