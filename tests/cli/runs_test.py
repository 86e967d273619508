"""Runs beside each other: where they start, what is kept of them, how they are compared."""

import json
import re
import signal
import subprocess
import time

import pytest

SMALL = ["--hidden", "32", "--depth", "1", "--epochs", "3"]


@pytest.fixture
def finished(program, tmp_path):
    """Two runs of one grid."""
    folders = []
    for bits in ("8", "4"):
        folders.append(tmp_path / f"bits{bits}")
        done = program.run("train", *SMALL, "--bits", bits, "--run", folders[-1])
        assert done.returncode == 0, done.stderr
    return folders


def wilson(right: float, count: int) -> tuple[float, float]:
    """The ends of Wilson's interval: the shares p whose distance from `right` is 1.96 of their own deviations."""
    ends = []
    for sign in (-1, 1):
        low, high = (0.0, right) if sign < 0 else (right, 1.0)
        for _ in range(100):
            middle = (low + high) / 2
            inside = abs(middle - right) <= 1.959964 * (middle * (1 - middle) / count) ** 0.5
            if (sign > 0) == inside:
                low = middle
            else:
                high = middle
        ends.append((low + high) / 2)
    return ends[0], ends[1]


def test_runs_are_compared(program, tmp_path, finished):
    page = tmp_path / "page.html"
    said = program.json("compare", *finished, "--report", page)
    assert [run["run"] for run in said["runs"]] == ["bits8", "bits4"]
    assert said["differences"] == {"--bits": ["8", "4"]}
    for run, folder in zip(said["runs"], finished, strict=True):
        results = json.loads((folder / "results.json").read_text())
        assert run["test_accuracy"] == results["test_score"] and run["test_samples"] == 360
        assert (run["low"], run["high"]) == pytest.approx(wilson(run["test_accuracy"], 360), abs=1e-6)
        assert run["model_bytes"] == (folder / "model.safetensors").stat().st_size
        right = sum(results["confusion"][i][i] for i in range(10))
        assert right == round(360 * results["test_score"]) and sum(map(sum, results["confusion"])) == 360
    text = page.read_text()
    for part in ("What differs", "F1 by class", "Training loss", "bits8", "--bits"):
        assert part in text
    lines = program.run("compare", *finished).stdout
    assert re.search(r"bits8 +\d+\.\d\d\s% \(\d+\.\d to \d+\.\d\)", lines) and "--bits:  8  4" in lines


def test_only_finished_runs_are_compared(program, tmp_path, finished):
    (finished[0] / "results.json").unlink()
    program.refused(program.run("compare", *finished), str(finished[0]), "holds no finished run")
    (finished[1] / "results.json").write_text('{"metric": "accuracy", "test_score": "high"}')
    program.refused(
        program.run("compare", finished[1]), "results.json", "its entry 'test_score': expected a number, got \"high\""
    )
    assert program.run("report", finished[0]).returncode == 0
    assert program.json("compare", finished[0])["runs"][0]["epochs"] == 3
    program.refused(program.run("compare", tmp_path / "nothing"), "nothing", "No such file")


def test_a_regression_and_a_classification_have_no_common_score(program, tmp_path, finished):
    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "".join(f"{i % 17},{3 * (i % 17) + i % 2}\n" for i in range(80)))
    train = ["train", "--data", f"csv:{table}", "--task", "regression", "--epochs", "3", "--run", tmp_path / "r"]
    assert program.run(*train).returncode == 0
    program.refused(program.run("compare", finished[0], tmp_path / "r"), "cannot be compared")
    assert "test_r2" in program.json("compare", tmp_path / "r")["runs"][0]


def test_a_sweep_trains_every_point_once(program, tmp_path):
    sweep = ["sweep", "--run", tmp_path / "s", "--grid", "bits=8,4", "--grid", "seed=0,1"]
    done = program.run(*sweep, "--json", "--", *SMALL)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    names = [f"bits-{bits},seed-{seed}" for bits in (8, 4) for seed in (0, 1)]
    assert [run["run"] for run in said["runs"]] == names
    assert (tmp_path / "s" / "sweep.html").exists()
    before = {name: (tmp_path / "s" / name / "results.json").stat().st_mtime_ns for name in names}
    (tmp_path / "s" / names[1] / "results.json").unlink()
    again = program.run(*sweep, "--", *SMALL)
    assert again.returncode == 0 and again.stderr.count("finished already") == 3
    assert "--resume" not in again.stderr and "resumed after step" in again.stderr
    after = {name: (tmp_path / "s" / name / "results.json").stat().st_mtime_ns for name in names}
    assert [name for name in names if before[name] != after[name]] == [names[1]]


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        (["bits"], "expected OPTION=VALUE,VALUE,..."),
        (["bits=8,"], "expected OPTION=VALUE,VALUE,..."),
        (["=8"], "expected OPTION=VALUE,VALUE,..."),
        (["run=a,b"], "a folder of its own"),
        (["bits=8", "bits=4"], "is in the grid already"),
        (["seed=" + ",".join(map(str, range(17))), "lr=" + ",".join(f"0.{i}" for i in range(1, 17))], "more than 256"),
    ],
)
def test_a_grid_that_is_none(program, tmp_path, grid, sentence):
    words = [word for axis in grid for word in ("--grid", axis)]
    done = program.run("sweep", "--run", tmp_path / "s", *words, "--", *SMALL)
    assert done.returncode == 2 and sentence in done.stderr
    assert not (tmp_path / "s").exists()


def test_a_sweep_names_the_run_that_failed(program, tmp_path):
    (tmp_path / "good.csv").write_text("x,label\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(60)))
    (tmp_path / "bad.csv").write_text("x,label\n1\n")
    grid = f"data=csv:{tmp_path}/good.csv,csv:{tmp_path}/bad.csv"
    done = program.run("sweep", "--run", tmp_path / "s", "--grid", grid, "--", *SMALL)
    assert done.returncode == 1 and "run 2 of 2" in done.stderr and "ended with exit code 3" in done.stderr


@pytest.mark.parametrize(
    ("axis", "sentence", "code"),
    [
        ("bits=8,3", "bits: expected 32, 8, 4 or 1, got 3", 3),
        ("lr=0.01,-1", "lr", 3),
        ("nothing=1,2", "--nothing", 2),
        ("net=absent.json,x", "absent", 3),
    ],
)
def test_every_point_is_checked_before_the_first_one_trains(program, tmp_path, axis, sentence, code):
    done = program.run("sweep", "--run", tmp_path / "s", "--grid", axis, "--", *SMALL[2:])
    assert done.returncode == code and sentence in done.stderr, done.stderr
    assert "of 2, " in done.stderr and not (tmp_path / "s").exists()


@pytest.mark.parametrize("changed", [["--epochs", "4"], ["--epochs", "3", "--bits", "8"]], ids=" ".join)
def test_a_sweeps_folder_is_of_one_sweep(program, tmp_path, changed):
    """The results of other options would pass for those of this grid."""
    sweep = ["sweep", "--run", tmp_path / "s", "--grid", "seed=0,1", "--", *SMALL[:4]]
    assert program.run(*sweep, "--epochs", "3").returncode == 0
    program.refused(program.run(*sweep, *changed), str(tmp_path / "s" / "seed-0"), "--epochs 3", " ".join(changed))
    again = program.run("--threads", "2", "-q", *sweep, "--epochs", "3", threads=None)
    assert again.returncode == 0, again.stderr


def test_points_of_a_grid_have_folders_of_their_own(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    for name, out in (("a/n.json", 8), ("a_n.json", 9), ("a%2Fn.json", 10)):
        (tmp_path / name).write_text(
            json.dumps({"format_version": 1, "layers": [{"type": "linear", "out": out, "bits": 32}]})
        )
    grid = ["--grid", "net=a/n.json,a_n.json,a%2Fn.json"]
    done = program.run("sweep", "--run", "s", *grid, "--json", "--", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert len({run["weights"] for run in json.loads(done.stdout)["runs"]}) == 3
    done = program.run("sweep", "--run", "t", "--grid", "seed=0,1,0", "--", *SMALL)
    assert done.returncode == 2 and "0 stands there twice" in done.stderr


def test_the_page_of_a_sweep_is_left_out_of_a_comparison(program, tmp_path, finished):
    page = tmp_path / "sweep.html"
    page.write_text("<html>")
    done = program.run("compare", *finished, page)
    assert done.returncode == 0 and f"{page} is no folder and is left out" in done.stderr
    program.refused(program.run("compare", page), "expected the folder of a run, got a file")


def test_repeated_options_are_compared_whole(program, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,c,label\n" + "".join(f"{i % 5},{i % 3},{i % 7},{i % 2}\n" for i in range(60)))
    for name, dropped in (("r", ("a", "c")), ("s", ("b", "c"))):
        words = [word for column in dropped for word in ("--drop", column)]
        done = program.run("train", *SMALL, "--data", f"csv:{table}", *words, "--run", tmp_path / name)
        assert done.returncode == 0, done.stderr
    assert program.json("compare", tmp_path / "r", tmp_path / "s")["differences"]["--drop"] == ["a, c", "b, c"]


def test_an_interrupted_sweep_goes_on(program, tmp_path):
    sweep = ["sweep", "--run", str(tmp_path / "s"), "--grid", "bits=8,4", "--", *SMALL[:4], "--epochs", "2000"]
    process = subprocess.Popen([program.path, "--threads", "1", *sweep], stderr=subprocess.PIPE, text=True)
    log = tmp_path / "s" / "bits-8" / "log.jsonl"
    end = time.monotonic() + 60
    while not (log.exists() and log.stat().st_size > 0):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command goes on" in said
    assert not (tmp_path / "s" / "bits-8" / "results.json").exists()
    assert any((tmp_path / "s" / "bits-8" / "checkpoints").iterdir())


def test_training_starts_from_float_weights(program, tmp_path):
    source, path = tmp_path / "float", tmp_path / "four"
    trained = program.run("train", "--bits", "32", "--hidden", "48", "--depth", "2", "--epochs", "8", "-o", source)
    done = program.run("train", "--from", source, "--bits", "4", "--epochs", "1", "-o", path)
    assert float(program.accuracy(done)) > float(program.accuracy(trained)) - 5
    scratch = program.run("train", "--bits", "4", "--hidden", "48", "--depth", "2", "--epochs", "1")
    assert float(program.accuracy(done)) > float(program.accuracy(scratch))
    model = program.json("inspect", path)["model"]
    assert (model["hidden"], model["depth"], model["bits"]) == (48, 2, 4)
    for option in (["--hidden", "9"], ["--arch", "lenet"], ["--no-norm"]):
        assert program.run("train", "--from", source, *option).returncode == 2
    program.refused(
        program.run("train", "--from", path), "expected a float model (bie train --bits 32), got a quantised one"
    )
    program.refused(program.run("train", "--from", source, "-o", source), "the model that training starts from")


def test_a_dry_run_trains_nothing(program, tmp_path):
    words = ["train", "--bits", "4", *SMALL, "--run", tmp_path / "r", "-o", tmp_path / "m", "--dry-run"]
    said = program.json(*words)
    assert said["steps"] == 1437 // 64 * 3 and said["config"]["model"]["hidden"] == 32
    assert "66 steps of 64 in 3 epochs" in program.run(*words).stdout
    assert not list(tmp_path.iterdir())
    assert program.run(*words[:-1]).returncode == 0
    assert program.json(*words)["steps"] == 1437 // 64 * 3, "beside a finished run too"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--schedule sudden", "sudden"),
        ("--bits 5", "expected 32, 8, 4 or 1, got 5"),
        ("--bits-of block9=4", "there is no layer 'block9'"),
        ("--hidden 0", "a model size: expected 1 to 1048576, got 0"),
        ("--depth 0", "depth: expected 1 to 1000, got 0"),
        ("--epochs 0", "epochs and batch: expected at least 1 and 2, got 0"),
        ("--batch 1", " and 1\n"),
        ("--batch 100000000000", " and 100000000000\n"),
        ("--epochs 99999999999", "epochs and batch: expected at most"),
        ("--lr -1", "lr: expected a positive number, got -1"),
        ("--warmup 2", "warm"),
        ("--bits 8 --step-floor 3", "floor: expected a number in [0, 1], got 3"),
        ("--freeze-binary", "freeze_binary wants 1-bit weights"),
        ("--compat bie-0.2.6", "--compat bie-0.2.6"),
    ],
)
def test_options_are_checked_before_the_data_are_read(program, options, named):
    done = program.run("train", "--data", "csv:nowhere.csv", *options.split())
    assert done.returncode in (2, 3) and named in done.stderr and "nowhere.csv" not in done.stderr


def test_a_run_of_one_epoch_is_numbers(program, tmp_path):
    done = program.run("train", *SMALL[:4], "--epochs", "1", "--run", tmp_path / "r")
    assert done.returncode == 0
    page = (tmp_path / "r" / "report.html").read_text()
    training = page[page.index("<h2>Training</h2>") : page.index("<h2>Layers</h2>")]
    assert "<svg" not in training and "<table" in training and "<details" not in training


def test_the_time_of_all_parts_counts(program, tmp_path):
    run = ["train", *SMALL, "--run", tmp_path / "r"]
    first = program.json(*run)
    longer = program.json("train", "--run", tmp_path / "r", "--resume", "--epochs", "4")
    assert longer["seconds"] > first["seconds"]
