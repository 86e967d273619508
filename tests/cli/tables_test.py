"""Tables as people bring them: what is trained, asked, counted and refused."""

import csv
import io
import json
import math
import subprocess
from random import Random

import numpy as np
import pytest

TINY = ["--epochs", "3", "--hidden", "16"]
HOUSES = "id,area,rooms,town,price\n" + "".join(
    f"h{i},{50 + 7 * i % 90},{1 + i % 5},{'Ulm' if i % 2 else 'Bonn'},{1000 * (50 + 7 * i % 90) + 500 * (i % 5)}\n"
    for i in range(100)
)


@pytest.fixture
def houses(tmp_path):
    path = tmp_path / "houses.csv"
    path.write_text(HOUSES)
    return path


def answers(process):
    assert process.returncode == 0, process.stderr
    return list(csv.DictReader(io.StringIO(process.stdout)))


def test_iris_is_learnt_in_spite_of_patience(program, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    iris = datasets.load_iris(as_frame=True).frame
    iris.to_csv(tmp_path / "iris.csv", index=False)
    words = ["train", "--data", f"csv:{tmp_path / 'iris.csv'}", "--hidden", "64", "--bits", "8", "--patience", "5"]
    for seed in range(3):
        assert float(program.accuracy(program.run(*words, "--seed", seed))) > 85, f"seed {seed}, a third by chance"


def test_numbers_that_name_classes_stay_as_they_are(program, tmp_path):
    path, model = tmp_path / "cultivars.csv", tmp_path / "m.safetensors"
    path.write_text("a,b,class\n" + "".join(f"{10 * (i % 3) + i % 4},{i % 5},{1 + i % 3}\n" for i in range(60)))
    assert float(program.accuracy(program.run("train", "--data", f"csv:{path}", "-o", model))) > 90
    assert program.json("inspect", model)["model"]["class_names"] == ["1", "2", "3"]
    turned = tmp_path / "turned.csv"
    turned.write_text("class,b,a\n" + "".join(f"{1 + i % 3},{i % 5},{10 * (i % 3) + i % 4}\n" for i in range(60)))
    assert float(program.accuracy(program.run("eval", model, "--data", f"csv:{turned}"))) > 90


def test_a_regression_answers_in_the_unit_of_the_table(program, tmp_path, houses):
    path, run = tmp_path / "price.safetensors", tmp_path / "run"
    options = ["--data", f"csv:{houses}", "--task", "regression", "--id", "id", "--bits", "8", "--run", run, "-o", path]
    found = program.json("train", *options)
    assert found["label"] == "price" and found["r2"] > 0.9
    assert found["mae"] <= found["rmse"] < 20000
    assert "Predicted and true price" in (run / "report.html").read_text()
    evaluated = program.json("eval", path, "--data", f"csv:{houses}")
    assert (evaluated["r2"], evaluated["mae"]) == (found["r2"], found["mae"]), "the same test rows"
    asked = tmp_path / "asked.csv"
    asked.write_text("town,id,rooms,area\nUlm,a,2,60\nBonn,b,2,120\n")
    rows = answers(program.run("predict", path, asked))
    assert [row["id"] for row in rows] == ["a", "b"]
    assert 40000 < float(rows[0]["prediction"]) < 80000 < float(rows[1]["prediction"]) < 160000
    net = tmp_path / "price.net.bie"
    program.json("export", path, "-o", net)
    exported = answers(program.run("predict", net, asked))
    assert [r["prediction"] for r in exported] == [r["prediction"] for r in rows]


def test_answers_to_a_table_are_a_table(program, tmp_path, flowers):
    path, out = tmp_path / "model", tmp_path / "answers.csv"
    program.accuracy(program.run("train", "--data", f"csv:{flowers}", "-o", path))
    piped = program.run("predict", path, flowers)
    rows = answers(piped)
    assert list(rows[0]) == ["row", "prediction", "probability", "label"] and len(rows) == 90
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert f"accuracy {100 * right / 90:.2f} % of 90 rows with labels" in piped.stderr
    assert program.run("predict", path, flowers, "-o", out).stdout == ""
    assert out.read_text() == piped.stdout
    assert program.json("predict", path, flowers)["accuracy"] == right / 90
    program.refused(program.run("predict", path, flowers, "-o", flowers), "--out", "is a file that is read")
    assert program.run("predict", path, "/dev/stdin", "--json").returncode == 3, "no regular file"


def test_a_held_out_file_is_counted_as_a_whole(program, tmp_path, flowers):
    path, held = tmp_path / "model", tmp_path / "held.csv"
    run = tmp_path / "run"
    trained = program.json("train", "--data", f"csv:{flowers}", "-o", path, "--run", run)
    own = program.json("eval", path, "--data", f"csv:{flowers}")
    data = json.loads((run / "config.json").read_text())["data"]
    for names in ("samples", "images"):  # the older name stays, as schema 1 says
        assert [data[f"{part}_{names}"] for part in ("train", "test", "validation")] == [72, 18, 0]
        assert own[f"test_{names}"] == 18
    assert (own["test_samples"], own["test_accuracy"]) == (18, trained["test_accuracy"])
    lines = flowers.read_text().splitlines()
    held.write_text("\n".join(lines[:41]))
    assert program.json("eval", path, "--data", f"csv:{held}")["test_samples"] == 40
    held.write_text("\n".join(",".join(reversed(line.split(","))) for line in lines[:41]))
    reversed_columns = program.json("eval", path, "--data", f"csv:{held}")
    held.write_text("\n".join(lines[:41]))
    assert reversed_columns["test_accuracy"] == program.json("eval", path, "--data", f"csv:{held}")["test_accuracy"]


def test_rows_to_test_with_may_be_a_file_of_their_own(program, tmp_path, flowers):
    lines = flowers.read_text().splitlines()
    test = tmp_path / "test.csv"
    test.write_text("\n".join([lines[0], *lines[61:]]))
    flowers.write_text("\n".join(lines[:61]))
    process = program.run("train", "--data", f"csv:{flowers}", "--test-data", test, *TINY)
    assert "flowers: 60 training and 30 test rows" in process.stderr
    process = program.run("train", "--data", f"csv:{flowers}", "--test-share", "0.5", *TINY)
    assert "flowers: 30 training and 30 test rows" in process.stderr


def test_what_was_found_out_is_said(program, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("id,x,kind\n" + "".join(f"{i},{i % 4},{'ab'[i % 2]}\n" for i in range(40)))
    process = program.run("train", "--data", f"csv:{table}", *TINY)
    assert process.returncode == 0
    assert '"id" counts the rows and is left out' in process.stderr
    assert 'the label is the column "kind", the last' in process.stderr


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_missing_values(program, tmp_path, flowers, missing):
    lines = flowers.read_text().splitlines()
    lines[3] = "," + lines[3].split(",", 1)[1]
    flowers.write_text("\n".join(lines))
    train = ["train", "--data", f"csv:{flowers}", *TINY]
    program.refused(program.run(*train), 'line 4, column 1: expected a value, got ""; --missing')
    path = tmp_path / "model"
    found = program.run(*train, "--missing", missing, "-o", path)
    assert found.returncode == 0
    assert ("1 rows with missing values are left out" in found.stderr) == (missing == "drop")
    asked = program.run("predict", path, flowers)
    if missing == "mean":
        assert len(answers(asked)) == 90
    else:
        program.refused(asked, 'line 4, column 1: expected a value, got ""')


def test_standard_input_is_a_table_too(program, tmp_path, flowers):
    path = tmp_path / "model"
    text = flowers.read_text()
    train = [program.path, "--threads", "1", "train", "--data", "csv:-", *TINY, "-o", path]
    done = subprocess.run(train, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ask = [program.path, "predict", path, "-"]
    done = subprocess.run(ask, input=text, capture_output=True, text=True, check=False)
    assert done.stdout == program.run("predict", path, flowers).stdout


@pytest.mark.parametrize(
    ("options", "sentence", "code"),
    [
        (["--label", "colour"], 'has no column "colour"; it has "length", "width", "hue", "label"', 3),
        (["--drop", "colour"], 'has no column "colour"', 3),
        (["--test-share", "0"], "expected a number between 0 and 1, got", 3),
        (["--test-share", "0.01"], "no class has enough rows", 3),
        (["--test-share", "2"], "--test-share", 2),
        (["--missing", "zero"], "--missing", 2),
        (["--comment", "xy"], "xy is no mark", 2),
        (["--task", "ranking"], "--task", 2),
        (["--task", "regression"], "expected the number to be predicted", 3),
        (["--id", "label"], "cannot be the label and be left out", 3),
        (["--size", "8x8"], "is no folder of pictures", 3),
        (["--test-data", "/nowhere.csv"], "cannot be opened", 3),
    ],
)
def test_options_that_the_table_cannot_meet(program, flowers, options, sentence, code):
    done = program.run("train", "--data", f"csv:{flowers}", *TINY, *options)
    assert done.returncode == code and sentence in done.stderr, done.stderr
    assert done.stdout == ""


def test_options_of_tables_are_for_tables(program):
    program.refused(program.run("train", "--label", "x", *TINY), '"digits" is no table')


def test_a_broken_table_in_a_model_is_told(program, tmp_path, flowers):
    path = tmp_path / "model"
    program.accuracy(program.run("train", "--data", f"csv:{flowers}", *TINY, "-o", path))
    metadata = program.json("inspect", path)["model"]
    assert metadata["table"]["inputs"][1]["name"] == "width"
    assert json.dumps(metadata["table"]).count("width") == 1


def test_a_table_with_heavy_tails_is_learnt_at_every_width(program, tmp_path):
    random = Random(7)
    rows = []
    for _ in range(600):
        logs = [1.5 * random.gauss(0, 1) for _ in range(3)]
        rows.append(",".join([*(str(math.exp(log)) for log in logs), "up" if sum(logs) > 0 else "down"]))
    path, model, net = tmp_path / "t.csv", tmp_path / "m.safetensors", tmp_path / "m.net.bie"
    path.write_text("\n".join(["a,b,c,label", *rows]) + "\n")
    for bits in (32, 8, 1):
        words = ["train", "--data", f"csv:{path}", "--bits", bits, "--epochs", "40", "-o", model]
        assert float(program.accuracy(program.run(*words))) > 93, f"{bits} bits; a half by chance"
    program.json("export", model, "-o", net)
    exported = answers(program.run("predict", net, path))
    assert [r["prediction"] for r in exported] == [
        r["prediction"] for r in answers(program.run("predict", model, path))
    ]


def test_an_offset_costs_no_accuracy(program, tmp_path):
    random = Random(3)
    path = tmp_path / "t.csv"
    for offset in (0, 1e7):
        numbers = [random.gauss(0, 1) for _ in range(400)]
        path.write_text("a,label\n" + "".join(f"{x + offset!r},{'ab'[x > 0]}\n" for x in numbers))
        assert float(program.accuracy(program.run("train", "--data", f"csv:{path}", "--epochs", "30"))) > 95, offset


def test_a_number_has_the_digits_of_its_labels(program, tmp_path):
    random = Random(5)
    path, model, net = tmp_path / "t.csv", tmp_path / "m.safetensors", tmp_path / "m.net.bie"
    numbers = [random.gauss(0, 1) for _ in range(400)]
    path.write_text("x,label\n" + "".join(f"{x!r},{1e9 + 3 * x!r}\n" for x in numbers))
    words = ["train", "--data", f"csv:{path}", "--task", "regression", "--epochs", "30", "-o", model]
    assert program.json(*words)["mae"] < 0.5
    program.json("export", model, "-o", net)
    for asked in (model, net):
        rows = answers(program.run("predict", asked, path))
        errors = [abs(float(row["prediction"]) - float(row["label"])) for row in rows]
        assert sum(errors) / len(errors) < 0.5, "of labels with a deviation of 3"
    text = program.run("run", net, "--input", path).stdout.splitlines()[0].split(": ")[1].split()[0]
    assert abs(float(text) - 1e9 - 3 * numbers[0]) < 1.5


def test_ids_are_left_out_and_noise_is_told_as_noise(program, tmp_path):
    random = Random(2)
    path = tmp_path / "t.csv"
    rows = [f"{i},{random.gauss(0, 1)},{'ab'[i >= 150]}" for i in range(300)]
    path.write_text("\n".join(["nr,x,label", *rows]) + "\n")
    found = program.run("train", "--data", f"csv:{path}", "--epochs", "10")
    assert '"nr" has 300 different whole numbers in 300 rows and is left out; --keep nr' in found.stderr
    assert float(program.accuracy(found)) < 75, "noise"
    kept = program.run("train", "--data", f"csv:{path}", "--epochs", "10", "--keep", "nr")
    assert float(program.accuracy(kept)) > 90, "the order of the rows tells the class"


def test_splits(program, tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"p{i // 5},{2000 + i // 4},{i % 7},{'ab'[i % 2]}" for i in range(100)]
    path.write_text("\n".join(["who,year,x,label", *rows]) + "\n")
    train = ["train", "--data", f"csv:{path}", *TINY]
    for split in ("order", "shuffle", "group:who", "time:year"):
        done = program.run(*train, "--split", split, "--drop", "who" if "who" not in split else "year")
        assert "t: 80 training and 20 test rows" in done.stderr, done.stderr
    program.refused(program.run(*train, "--split", "group:town"), 'has no column "town"')
    assert program.run(*train, "--split", "group").returncode == 2
    config = program.json("train", "--data", f"csv:{path}", "--split", "time:year", "--drop", "who", "--dry-run")[
        "config"
    ]
    assert config["data"]["options"]["split"] == "time" and config["data"]["options"]["split_column"] == "year"


def test_rows_with_unseen_texts_are_answered(program, tmp_path, houses):
    model, net, asked = tmp_path / "m", tmp_path / "m.net.bie", tmp_path / "asked.csv"
    words = ["--task", "regression", "--id", "id", *TINY, "-o", model]
    assert program.run("train", "--data", f"csv:{houses}", *words).returncode == 0
    program.json("export", model, "-o", net)
    asked.write_text("area,rooms,town\n60,2,Rom\n60,2,Ulm\n")
    for path in (model, net):
        done = program.run("predict", path, asked)
        assert len(answers(done)) == 2
        assert (
            'column "town" has 1 value that the training rows lack' in done.stderr and 'line 2 has "Rom"' in done.stderr
        )
        refused = program.run("predict", path, asked, "--unseen", "refuse")
        assert refused.returncode == 3 and "the model was trained with" in refused.stderr
    asked.write_text("area,rooms,town\n,2,Ulm\n")
    done = program.run("predict", model, asked)
    assert done.returncode == 3 and "was trained without missing values (bie train --missing mean" in done.stderr


def test_all_probabilities_stand_in_the_csv_file(program, tmp_path, flowers):
    model, net = tmp_path / "m", tmp_path / "m.net.bie"
    program.accuracy(program.run("train", "--data", f"csv:{flowers}", *TINY, "-o", model))
    program.json("export", model, "-o", net)
    for path in (model, net):
        rows = answers(program.run("predict", path, flowers, "--probabilities"))
        names = [name for name in rows[0] if name.startswith("p_")]
        assert names == ["p_aster", "p_begonia", "p_crocus"] and "probability" not in rows[0]
        for row in rows:
            assert abs(sum(float(row[name]) for name in names) - 1) < 1e-5
            assert max(names, key=lambda name: float(row[name])) == "p_" + row["prediction"]
        done = program.run("predict", path, flowers, "--top", "1")
        assert done.returncode == 2 and "--probabilities" in done.stderr


def test_a_class_with_a_line_break_stays_one(program, tmp_path):
    path, model, net = tmp_path / "t.csv", tmp_path / "m", tmp_path / "m.net.bie"
    names = ['"class\na"', "b", "c"]
    path.write_text("x,label\n" + "".join(f"{i % 3}.{i % 5},{names[i % 3]}\n" for i in range(60)))
    program.accuracy(program.run("train", "--data", f"csv:{path}", "-o", model))
    program.json("export", model, "-o", net)
    rows = answers(program.run("predict", net, path))
    assert {row["prediction"] for row in rows} == {"class\na", "b", "c"}
    assert sum(row["prediction"] == row["label"] for row in rows) > 50
    assert program.json("inspect", net)["classes"] == ["b", "c", "class\na"]


def test_numbers_of_another_country_are_kept_with_the_model(program, tmp_path):
    path, model = tmp_path / "t.csv", tmp_path / "m"
    path.write_text("x;label\n" + "".join(f"{i % 9},5;{'ab'[i % 9 > 4]}\n" for i in range(90)) + "-;a\n")
    train = ["train", "--data", f"csv:{path}", "--epochs", "10", "-o", model]
    program.refused(program.run(*train), "numbers have a decimal point", "--decimal ,")
    options = ["--decimal", ",", "--missing-words", "-", "--missing", "drop"]
    assert float(program.accuracy(program.run(*train, *options))) > 90
    assert program.json("eval", model, "--data", f"csv:{path}")["test_samples"] == 18


def test_a_model_of_an_older_build_answers_as_it_did(program, root, tmp_path):
    """The form of its table has no scales: the net begins with a BatchNorm."""
    folder = root / "tests/cli/old_table"
    rows = answers(program.run("predict", folder / "model.safetensors", folder / "asked.csv"))
    wanted = answers_in(folder / "answers.csv")
    net = answers(program.run("predict", folder / "model.net.bie", folder / "asked.csv"))
    for found in (rows, net):
        assert [float(row["prediction"]) for row in found] == pytest.approx(
            [float(row["prediction"]) for row in wanted], rel=1e-5
        )


def answers_in(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


@pytest.mark.parametrize("kind", ["classes", "skewed numbers"])
def test_the_python_runtime_takes_rows_and_gives_labels(program, tmp_path, root, build, monkeypatch, kind):
    """bie_runtime's table beside bie predict: texts, missing numbers, an offset of 1e6, a label with a heavy tail."""
    random = np.random.default_rng(3)
    rows = []
    for i in range(300):
        width, colour = random.standard_normal(), ("red", "blue", "green")[i % 3]
        tail = float(np.exp(2 * random.standard_normal()))
        score = width + (colour == "red") + np.log(tail) / 2
        label = ("high" if score > 0 else "low") if kind == "classes" else f"{np.exp(2 * score):.6g}"
        number = "" if i % 17 == 5 else f"{1e6 + width:.6f}"
        rows.append({"width": number, "colour": colour, "tail": f"{tail:.6g}", "label": label})
    table, model, net = (tmp_path / name for name in ("t.csv", "m.safetensors", "m.net.bie"))
    with table.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    task = [] if kind == "classes" else ["--task", "regression"]
    train = ["train", "--data", f"csv:{table}", "--label", "label", "--missing", "mean", "--bits", "8", *task]
    assert program.run(*train, "--epochs", "5", "-o", model).returncode == 0
    program.json("export", model, "-o", net)
    wanted = [row["prediction"] for row in answers(program.run("predict", net, table))]

    monkeypatch.syspath_prepend(str(root / "python/bie-runtime"))
    monkeypatch.setenv("BIE_RUNTIME_LIBRARY", str(build / "src/runtime/libbie_runtime.so"))
    import bie_runtime

    run = bie_runtime.Net(net)
    assert run.table.columns == ["width", "colour", "tail"]
    given = [
        {**row, "width": float(row["width"]) if row["width"] else None, "tail": float(row["tail"])} for row in rows
    ]
    outputs = run.run(run.table.features(given))
    if kind == "classes":
        assert [run.class_names[i] for i in outputs.argmax(1)] == wanted
        with pytest.raises(ValueError, match="labels are of a regression"):
            run.table.labels(outputs)
    else:
        assert run.table.labels(outputs) == pytest.approx([float(w) for w in wanted], rel=1e-4)
    by_place = run.table.features([[row[name] for name in run.table.columns] for row in given])
    assert np.array_equal(by_place, run.table.features(given))
    for row, sentence in (({"width": 1}, "has no column 'colour'"), ([1, 2], "expected 3 values, got 2"),
                          (["x", "red", 1], "expected a number, got 'x'"), ([1e999, "red", 1], "finite")):  # fmt: skip
        with pytest.raises(ValueError, match=sentence):
            run.table.features([row])


def test_the_default_data_are_no_table(program, tmp_path, flowers):
    path = tmp_path / "model"
    assert program.run("train", "--data", f"csv:{flowers}", *TINY, "-o", path).returncode == 0
    for command in (["eval", path], ["quantize", path, "--bits", "4", "-o", tmp_path / "small"]):
        program.refused(program.run(*command), "digits: expected csv:FILE, as ", "is a model of tables, got no table")


def test_a_part_of_a_runs_command_resumes_nothing(program, tmp_path, flowers):
    run = tmp_path / "run"
    train = ["train", "--data", f"csv:{flowers}", *TINY, "--run", run]
    program.accuracy(program.run(*train))
    part = program.run("train", "--run", run, "--resume", "--epochs", "5", "--patience", "2")
    program.refused(part, "expected the whole command of the run, or --epochs alone", "without --data")
    program.accuracy(program.run("train", f"--run={run}", "--resume", "--epochs", "5"))


def test_every_row_counts_once_in_cross_validation(program, flowers, tmp_path):
    train = ["train", "--data", f"csv:{flowers}", "--epochs", "12", "--folds", "4"]
    planned = program.json(*train, "--dry-run")["config"]["data"]
    said = program.json(*train)
    assert planned["test_samples"] == said["folds"][0]["test_samples"], "the plan is that of the first fold"
    rows = [fold["test_samples"] for fold in said["folds"]]
    assert len(rows) == 4 and sum(rows) == 90 and max(rows) - min(rows) <= 3
    right = sum(n * fold["test_accuracy"] for n, fold in zip(rows, said["folds"], strict=True))
    assert said["metric"] == "accuracy" and said["mean"] == pytest.approx(right / 90)
    assert said["low"] < said["mean"] <= said["high"] and said["mean"] > 0.9
    text = program.run(*train).stdout.splitlines()
    assert len(text) == 5 and text[0].startswith("fold 1 of 4: test accuracy ") and " to " in text[4]


def test_cross_validation_of_a_number(program, tmp_path):
    random, table = Random(3), tmp_path / "t.csv"
    rows = [(random.gauss(0, 1), random.gauss(0, 1), random.gauss(0, 0.5)) for _ in range(200)]
    table.write_text("a,b,label\n" + "".join(f"{a},{b},{3 * a - b + noise}\n" for a, b, noise in rows))
    said = program.json("train", "--data", f"csv:{table}", "--task", "regression", "--epochs", "20", "--folds", "3")
    scores = [fold["r2"] for fold in said["folds"]]
    mean = sum(scores) / 3
    half = 4.303 * (sum((score - mean) ** 2 for score in scores) / 2 / 3) ** 0.5
    assert (said["mean"], said["low"], said["high"]) == pytest.approx((mean, mean - half, mean + half), abs=1e-4)


@pytest.mark.parametrize("option", ["--out m", "--run r", "--logits l", "--checkpoints c", "--test-data t.csv"])
def test_cross_validation_keeps_no_model(program, flowers, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    done = program.run("train", "--data", f"csv:{flowers}", "--folds", "3", *option.split())
    assert done.returncode == 2 and "--folds 3" in done.stderr and option.split()[0] in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flowers.csv"]


def test_cross_validation_is_of_tables(program):
    done = program.run("train", "--folds", "3")
    assert done.returncode == 2 and "--data csv:FILE" in done.stderr
