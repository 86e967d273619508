"""What is said of classes beside accuracy, and the models that `eval` and `predict` are asked about."""

import csv
import io
import json
import re
from random import Random

import pytest
from user_files import striped, write_png

TINY = ["--epochs", "3", "--hidden", "16"]


@pytest.fixture
def rare(tmp_path):
    """A class of one row in twenty, which a column tells with much noise."""
    random = Random(6)
    rows = [f"{random.gauss(1.5 * (i % 20 == 0), 1)},{'yes' if i % 20 == 0 else 'no'}" for i in range(2000)]
    path = tmp_path / "rare.csv"
    path.write_text("\n".join(["x,label", *rows]) + "\n")
    return path


def test_what_accuracy_hides_stands_beside_it(program, tmp_path, rare, flowers):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    model = tmp_path / "m"
    text = program.run("train", "--data", f"csv:{rare}", *TINY, "-o", model).stdout
    assert 'always "no" is right for 95.00 %' in text and "balanced accuracy" in text and "AUC" in text
    lines = rare.read_text().splitlines()
    held = tmp_path / "held.csv"
    held.write_text("\n".join(lines[:801]) + "\n")
    found = program.json("eval", model, "--data", f"csv:{held}")
    asked = program.run("predict", model, held, "--probabilities").stdout
    rows = list(csv.DictReader(io.StringIO(asked)))
    truth = [row["label"] for row in rows]
    share = [float(row["p_yes"]) for row in rows]
    assert found["auc"] == pytest.approx(metrics.roc_auc_score([t == "yes" for t in truth], share), abs=1e-3)
    guesses = [row["prediction"] for row in rows]
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(truth, guesses))
    assert found["majority"] == 0.95
    assert "balanced" not in program.run("train", "--data", f"csv:{flowers}", *TINY).stdout, "classes of one size"


def test_balanced_classes_find_the_rare_one(program, tmp_path, rare):
    train = ["train", "--data", f"csv:{rare}", "--epochs", "10", "--hidden", "16"]
    plain, balanced = (
        program.json(*train),
        program.json(*train, "--class-weights", "balanced", "--run", tmp_path / "run"),
    )
    assert balanced["balanced_accuracy"] > plain["balanced_accuracy"] + 0.1
    assert json.loads((tmp_path / "run/config.json").read_text())["recipe"]["class_weights"] == "balanced"
    page = (tmp_path / "run/report.html").read_text()
    assert "balanced accuracy" in page and "share of the commonest class" in page
    done = program.run(*train, "--task", "regression", "--label", "x", "--drop", "label", "--class-weights", "balanced")
    assert done.returncode == 2 and "--class-weights balanced" in done.stderr


def test_the_page_says_which_columns_count(program, tmp_path):
    random = Random(8)
    rows = [f"{i % 2 + random.random() / 4},{random.random()},{'ab'[i % 2]}" for i in range(300)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["tells,noise,label", *rows]) + "\n")
    run = tmp_path / "run"
    program.json("train", "--data", f"csv:{path}", "--epochs", "10", "--hidden", "16", "--run", run)
    page = (run / "report.html").read_text().partition("loses when a column is shuffled")[2]
    found = dict(re.findall(r"(tells|noise)<.*?(-?\d+\.\d+) points", page, flags=re.DOTALL))
    assert float(found["tells"]) > 30 and abs(float(found["noise"])) < 5
    assert page.index("tells") < page.index("noise"), "the largest first"


def test_nets_and_runs_are_evaluated_as_their_models(program, tmp_path, flowers, photos):
    houses = tmp_path / "numbers.csv"
    houses.write_text("x,z,label\n" + "".join(f"{i % 9}.5,{i % 7},{1e6 + i % 9 + i % 7}\n" for i in range(90)))
    for data, words in (
        (f"csv:{flowers}", TINY),
        (f"csv:{houses}", [*TINY, "--task", "regression"]),
        (f"images:{photos}", ["--epochs", "1", "--arch", "lenet"]),
    ):
        run, net = tmp_path / f"run{len(words)}{data[:3]}", tmp_path / "m.net.bie"
        trained = program.json("train", "--data", data, "--bits", "8", *words, "--run", run)
        program.json("export", run, "-o", net)
        wanted = {key: trained[key] for key in ("test_accuracy", "auc", "r2", "mae") if key in trained}
        assert wanted
        for model in (run, run / "model.safetensors", net):
            found = program.json("eval", model, "--data", data)
            assert {key: found[key] for key in wanted} == pytest.approx(wanted, rel=1e-4), model
    program.refused(program.run("eval", tmp_path, "--data", f"csv:{flowers}"), "holds no model.safetensors of a run")


def test_folders_are_asked_about_file_by_file(program, tmp_path, photos):
    run, asked = tmp_path / "run", tmp_path / "asked"
    assert (
        program.run("train", "--data", f"images:{photos}", "--epochs", "1", "--arch", "lenet", "--run", run).returncode
        == 0
    )
    for i in (2, 0, 1):
        write_png(asked / f"{i}.png", striped(i, upright=True))
    (asked / "notes.txt").write_text("x")
    done = program.run("predict", run, asked, "--top", "1")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [str(asked / f"{i}.png") for i in range(3)]
    assert "1 other entries are left out" in done.stderr
    net = tmp_path / "m.net.bie"
    program.json("export", run, "-o", net)
    assert len(program.run("predict", net, asked).stdout.splitlines()) == 3
    (tmp_path / "empty").mkdir()
    program.refused(program.run("predict", run, tmp_path / "empty"), "the folder holds no pictures, arrays or tables")
