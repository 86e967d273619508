"""predict, inspect, bench and quantize on saved models; data that users bring."""

import json
import os
import re
import struct

import pytest
from user_files import SPECIES, flower, striped, write_png

TINY = ["--hidden", "32", "--depth", "1", "--epochs", "4"]


@pytest.fixture
def digits(program, tmp_path):
    """A function that trains a net on digits and names its file."""

    def train(*options):
        path = tmp_path / f"digits{len(list(tmp_path.iterdir()))}.safetensors"
        program.accuracy(program.run("train", *TINY, *options, "-o", path))
        return path

    return train


def test_a_table_is_trained_on_and_asked_about(program, tmp_path, flowers):
    path = tmp_path / "model"
    options = ["--hidden", "32", "--depth", "1", "--epochs", "30", "--batch", "8", "--bits", "8"]
    trained = program.run("train", "--data", f"csv:{flowers}", *options, "-o", path)
    assert "flowers: 72 training and 18 test rows" in trained.stderr
    assert float(program.accuracy(trained)) > 90
    assert program.accuracy(program.run("eval", path, "--data", f"csv:{flowers}")) == program.accuracy(trained)
    asked = tmp_path / "asked.csv"
    rows = "".join(f"{i},{','.join(map(str, reversed(flower(i))))}\n" for i in range(6))
    asked.write_text("number,hue,width,length\n" + rows)
    program.refused(program.run("predict", path, asked), 'has a column "number"', "--drop")
    document = program.json("predict", path, asked, flowers, "--top", "2", "--drop", "number")
    guesses = [prediction["guesses"] for prediction in document["predictions"]]
    assert len(guesses) == 6 + 90
    assert [guess[0]["class"] for guess in guesses[:6]] == [SPECIES[i % 3] for i in range(6)]
    assert all(len(guess) == 2 and guess[0]["probability"] >= guess[1]["probability"] for guess in guesses)
    assert document["predictions"][7] == document["predictions"][7] | {"file": str(flowers), "index": 1}


def test_inspect_tells_two_lists_of_two_names_apart(program, tmp_path):
    files = []
    for names in (["cat", "dog"], ["cat", "emu"]):
        table = tmp_path / f"{names[1]}.csv"
        table.write_text("".join(f"{i},{i % 2},{names[i % 2]}\n" for i in range(20)))
        files.append(tmp_path / names[1])
        program.accuracy(program.run("train", "--data", f"csv:{table}", *TINY, "-o", files[-1]))
    document = program.json("inspect", files[0], "--diff", files[1])
    assert document["settings"]["class_names"] == [["cat", "dog"], ["cat", "emu"]]
    assert 'class_names: ["cat","dog"], ["cat","emu"]' in program.run("inspect", files[0], "--diff", files[1]).stdout


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_small_table_is_learnt_with_the_defaults(program, flowers, seed):
    """The example of `bie train --help`."""
    options = ["--data", f"csv:{flowers}", "--hidden", "64", "--bits", "8", "--patience", "5", "--seed", seed]
    document = program.json("train", *options)
    assert document["test_accuracy"] > 0.9
    whole = program.json("train", *options, "--batch", "72")
    assert whole["steps"] > 50, "a step an epoch: patience does not end the run before its accuracies mean anything"
    assert whole["test_accuracy"] > 0.9


def test_a_table_has_no_pixels_to_move(program, flowers):
    process = program.run("train", "--data", f"csv:{flowers}", *TINY, "--augment", "crop-flip")
    program.refused(process, "flowers is a table", "augment is crop-flip")


def test_a_run_does_not_go_on_with_other_numbers(program, tmp_path, flowers):
    run = ["train", "--data", f"csv:{flowers}", *TINY, "--run", tmp_path / "run"]
    program.accuracy(program.run(*run))
    program.accuracy(program.run(*run, "--resume"))
    flowers.write_text(flowers.read_text().replace("0.5", "0.6"))
    program.refused(program.run(*run, "--resume"), str(tmp_path / "run"), "data_crc32", "another run")


def test_names_that_are_not_utf_8(program, tmp_path, photos):
    """Of a run, a data set and a class."""
    table = os.fsdecode(bytes(tmp_path) + b"/gr\xfcn.csv")
    with open(table, "w") as file:
        file.writelines(f"{i},{i % 2},{'ab'[i % 2]}\n" for i in range(20))
    run = os.fsdecode(bytes(tmp_path) + b"/\xff run")
    options = ["--data", f"csv:{table}", *TINY, "--run", run]
    program.accuracy(program.run("train", *options))
    program.accuracy(program.run("train", *options, "--resume"))
    with open(table, "wb") as file:
        file.writelines(b"%d,%d,%s\n" % (i, i % 2, [b"gr\xfcn", b"red"][i % 2]) for i in range(20))
    program.refused(program.run("train", "--data", f"csv:{table}", *TINY), "gr\\xfcn", "is not UTF-8")
    (photos / "across").rename(os.fsdecode(bytes(photos) + b"/acr\xf6ss"))
    program.refused(program.run("train", "--data", f"images:{photos}", *TINY), "acr\\xf6ss", "is not UTF-8")


def test_photos_are_trained_on_and_asked_about(program, tmp_path, photos):
    path = tmp_path / "model"
    data = ["--data", f"images:{photos}"]
    trained = program.run("train", *data, "--epochs", "10", "--batch", "8", "--hidden", "32", "--bits", "8", "-o", path)
    assert "photos: 32 training and 8 test images" in trained.stderr
    assert float(program.accuracy(trained)) > 80
    write_png(tmp_path / "new.png", striped(77, upright=True))
    process = program.run("predict", path, tmp_path / "new.png", photos / "across" / "3.png", "--top", "1")
    new, old = process.stdout.splitlines()
    assert re.fullmatch(re.escape(str(tmp_path / "new.png")) + r": upright \d+\.\d\d %", new)
    assert ": across " in old
    assert process.stderr == ""


def test_coloured_photos(program, tmp_path):
    folder = tmp_path / "colours"
    for i in range(10):
        for name, colour in (("red", (200, i, 5)), ("blue", (i, 5, 200))):
            write_png(folder / name / f"{i}.png", [[colour] * 8 for _ in range(8)])
    document = program.json("train", "--data", f"images:{folder}", "--epochs", "10", "--batch", "8", *TINY[:4])
    assert document["test_accuracy"] == 1


def test_classes_of_other_data_are_refused(program, tmp_path, photos):
    path = tmp_path / "model"
    program.accuracy(program.run("train", "--data", f"images:{photos}", *TINY, "-o", path))
    (photos / "across").rename(photos / "askew")
    program.refused(program.run("eval", path, "--data", f"images:{photos}"), str(path), "classes")


def npy(values, shape) -> bytes:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(values)


def test_one_image_in_four_formats(program, tmp_path, digits):
    path = digits("--bits", "4")
    values = [(x * y * 7) % 17 * 15 for y in range(8) for x in range(8)]
    write_png(tmp_path / "i.png", [values[8 * y : 8 * y + 8] for y in range(8)])
    (tmp_path / "i.npy").write_bytes(npy(values, (8, 8)))
    (tmp_path / "i.idx").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 1, 8, 8) + bytes(values))
    (tmp_path / "i.csv").write_text(",".join(map(str, values)) + "\n")
    files = [tmp_path / f"i.{suffix}" for suffix in ("png", "npy", "idx")]
    document = program.json("predict", path, *files)
    first, *others = [prediction["guesses"] for prediction in document["predictions"]]
    assert others == [first, first]
    (table,) = program.json("predict", path, tmp_path / "i.csv", "--white", "255")["predictions"]
    assert table["guesses"] == first
    program.refused(program.run("predict", path, tmp_path / "i.csv"), "i.csv", "--white")
    for white in ("0", "-1", "nan", "inf", "x"):
        process = program.run("predict", path, tmp_path / "i.csv", "--white", white)
        assert process.returncode == 2
        assert process.stderr.startswith(f"--white: {white} is no number above 0\n")


def test_predict_says_nothing_where_a_file_is_bad(program, tmp_path, digits):
    path = digits()
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    write_png(good, [[0] * 8 for _ in range(8)])
    write_png(bad, [[0] * 9 for _ in range(8)])
    program.refused(program.run("predict", path, good, bad), str(bad), "8x9", "[1, 8, 8]")
    bad.write_text("a,b\n")
    program.refused(program.run("predict", path, good, bad), str(bad), "expected 64 columns")
    program.refused(program.run("predict", path, tmp_path / "none"), "none", "cannot be opened")
    assert program.run("predict", path).returncode == 2
    assert program.run("predict", path, good, "--top", "0").returncode == 2


def test_inspect_lists_the_layers(program, tmp_path, digits):
    path = digits("--bits", "4")
    document = program.json("inspect", path)
    first, inner, head = document["layers"]
    assert (first["kind"], first["bits"], first["shape"]) == ("Linear", 32, [32, 64])
    assert (inner["kind"], inner["bits"], inner["form"]) == ("Q4Linear", 4, "packed")
    assert 32 * 32 / 2 <= inner["bytes_at_rest"] < 32 * 32
    assert inner["bytes_resident"] > inner["bytes_at_rest"], "the kernel's panels"
    assert 4 < inner["compression"] < 8
    assert inner["scale_a"] > 0 < inner["scale_w"]
    assert inner["saturated"] is None
    assert head["scale_a"] is None
    measured = program.json("inspect", path, "--data", "digits")["layers"][1]["saturated"]
    assert 0 <= measured < 0.5
    text = program.run("inspect", path, "--data", "digits").stdout
    assert f"{100 * measured:.3f} %" in text
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_inspect_reads_checkpoints_and_other_files(program, tmp_path):
    folder = tmp_path / "checkpoints"
    program.accuracy(program.run("train", *TINY, "--checkpoints", folder, "--logits", tmp_path / "logits"))
    newest = max(folder.iterdir())
    document = program.json("inspect", newest)
    assert document["kind"] == "training checkpoint"
    assert document["step"] == 88
    assert "after step 88" in program.run("inspect", newest).stdout
    (tensor,) = program.json("inspect", tmp_path / "logits")["tensors"]
    assert tensor["shape"] == [360, 10]
    program.refused(program.run("inspect", newest, "--data", "digits"), "no model")
    for command in (["eval"], ["quantize"], ["bench"]):
        program.refused(program.run(*command, newest), str(newest), "expected a model, got a training checkpoint")
    program.refused(program.run("inspect", tmp_path), str(tmp_path))


def test_inspect_tells_two_files_apart(program, digits):
    eight, four, other = digits("--bits", "8"), digits("--bits", "4"), digits("--bits", "8", "--seed", "1")
    same = program.run("inspect", eight, "--diff", eight).stdout
    (count,) = re.fullmatch(r"(\d+) of \1 tensors are the same\n", same).groups()
    assert int(count) > 10
    document = program.json("inspect", eight, "--diff", four)
    assert document["settings"]["bits"] == [8, 4]
    kinds = {tensor["name"]: tensor["difference"] for tensor in document["tensors"]}
    assert kinds["block1.product.qweight"] == "form"
    document = program.json("inspect", eight, "--diff", other)
    assert document["settings"] == {}
    moved = {tensor["name"]: tensor for tensor in document["tensors"]}["block1.product.qweight"]
    assert moved["difference"] == "values"
    assert 0.5 < moved["share"] <= 1
    assert moved["largest"] >= 1
    assert program.run("inspect", eight, "--diff", four, "--data", "digits").returncode == 2


def test_bench_times_models(program, digits):
    paths = [digits("--bits", bits) for bits in ("32", "8")]
    document = program.json("bench", *paths, "--batch", "1,16", "--repeats", "2")
    assert [model["bits"] for model in document["models"]] == [32, 8]
    for model in document["models"]:
        assert [time["batch"] for time in model["times"]] == [1, 16]
        assert all(time["seconds_an_image"] > 0 for time in model["times"])
    text = program.run("bench", *paths, "--batch", "4", "--repeats", "1").stdout
    head, first, second = text.splitlines()
    assert head.split() == ["batch", "us/image", "images/s", "bytes", "speed", "model"]
    assert first.split()[-2:] == ["1.00x", str(paths[0])]
    assert second.split()[-1] == str(paths[1])
    assert program.run("bench", *paths, "--batch", "0").returncode == 2

    profiled = program.json("bench", *paths, "--batch", "8", "--repeats", "2", "--profile")
    for model in profiled["models"]:
        (time,) = model["times"]
        names = [part["operator"] for part in time["profile"]]
        assert "outside of operators" in names
        assert "bie::block_tail" in names
        assert ("bie::q8_linear" in names) == (model["bits"] == 8)
        assert all(part["seconds"] >= 0 and part["calls"] >= 0 for part in time["profile"])
    assert " us a pass" in program.run("bench", paths[0], "--batch", "8", "--repeats", "2", "--profile").stdout
    refused = program.run("bench", paths[0], "--profile", "--device", "cuda")
    assert refused.returncode == 2
    assert "is for the CPU" in refused.stderr


@pytest.mark.parametrize(("arch", "depth"), [("vgg-small", "1"), ("resnet20", "2")])
def test_nets_of_another_width_and_depth(program, tmp_path, small_cifar, arch, depth):
    """What train makes of --width and --depth is what the file holds."""
    path, eight, data = tmp_path / "model", tmp_path / "eight", ["--data", small_cifar]
    options = ["--arch", arch, "--width", "5", "--depth", depth, "--epochs", "1", "--batch", "8"]
    document = program.json("train", *data, *options, "-o", path)
    assert program.json("eval", path, *data)["test_accuracy"] == document["test_accuracy"]
    convolutions = [layer for layer in program.json("inspect", path)["layers"] if len(layer["shape"]) == 4]
    assert [layer["shape"][0] for layer in convolutions] == (
        [5, 10, 20] if arch == "vgg-small" else [5] * 5 + [10] * 4 + [20] * 4
    )
    usual = program.json("train", *data, "--arch", arch, "--epochs", "1", "--batch", "8")
    assert usual["weights"] > 10 * document["weights"]
    write_png(tmp_path / "i.png", [[(x, y, 0) for x in range(32)] for y in range(32)])
    (prediction,) = program.json("predict", path, tmp_path / "i.png")["predictions"]
    assert len(prediction["guesses"]) == 3
    quantised = program.json("quantize", path, "--calib", small_cifar, "-o", eight)
    assert program.json("eval", eight, *data)["test_accuracy"] == quantised["test_accuracy"]


def test_width_is_another_word_for_the_hidden_size_of_an_mlp(program, tmp_path):
    files = []
    for option in ("--hidden", "--width"):
        files.append(tmp_path / option.lstrip("-"))
        program.accuracy(program.run("train", option, "33", "--depth", "1", "--epochs", "1", "-o", files[-1]))
    assert files[0].read_bytes() == files[1].read_bytes()


PTQ = [[], ["--fold"], ["--per-channel"], ["--fold", "--per-channel"], ["--method", "percentile"]]


@pytest.mark.parametrize("options", PTQ, ids=" ".join)
def test_eight_bits_without_training(program, tmp_path, options):
    whole, path = tmp_path / "float", tmp_path / "eight"
    trained = program.run("train", "--hidden", "256", "--depth", "2", "--epochs", "12", "-o", whole)
    before = float(program.accuracy(trained))
    document = program.json("quantize", whole, "--bits", "8", *options, "-o", path)
    assert 100 * document["test_accuracy_before"] == pytest.approx(before, abs=0.01)
    assert abs(100 * document["test_accuracy"] - before) <= 0.3
    assert [layer["name"] for layer in document["layers"]] == ["block1", "block2"]
    assert all(0 < layer["error"] < 0.05 for layer in document["layers"])
    assert document["file_bytes"] == path.stat().st_size < 0.5 * whole.stat().st_size
    assert program.json("eval", path)["test_accuracy"] == document["test_accuracy"]


@pytest.mark.parametrize("train", [["--no-norm"], []], ids=["without norm", "with norm"])
def test_scales_of_channels_in_every_layer(program, digits, tmp_path, train):
    """The head has no BatchNorm, nor has any layer of a net without: their errors fall too."""
    path, four = digits(*train), tmp_path / "four"
    words = ["quantize", path, "--bits", "4", "--first", "4", "--last", "4"]
    whole = {layer["name"]: layer["error"] for layer in program.json(*words)["layers"]}
    document = program.json(*words, "--per-channel", "-o", four)
    errors = {layer["name"]: layer["error"] for layer in document["layers"]}
    assert whole.keys() == errors.keys() == {"block0", "block1", "head"}
    assert errors["head"] < whole["head"]
    assert sum(errors.values()) < sum(whole.values())
    assert program.json("eval", four)["test_accuracy"] == document["test_accuracy"]


def test_quantize_prints_a_table(program, digits):
    text = program.run("quantize", digits(), "--bits", "4", "--last", "8").stdout
    lines = text.splitlines()
    assert lines[0].split() == ["layer", "bits", "scale_a", "scale_w", "saturated", "error"]
    assert [line.split()[:2] for line in lines[1:3]] == [["block1", "4"], ["head", "8"]]
    assert re.fullmatch(r"test accuracy \d+\.\d\d % before, \d+\.\d\d % after", lines[3])


def test_quantize_refuses_what_it_cannot_do(program, tmp_path, digits, small_mnist):
    path, eight = digits(), digits("--bits", "8")
    for words, parts in [
        ([path, "--bits", "1"], ["bits: expected 8 or 4, as 1 bit has to be trained, got 1"]),
        ([eight], ["expected a float model, got a quantised one"]),
        ([path, "--method", "guess"], ["'guess'", "mse or percentile"]),
        (
            [path, "--method", "percentile", "--percentile", "0"],
            ["percentile: expected a number above 0 and up to 100, got 0"],
        ),
        ([path, "--calib", small_mnist], ["[1, 17, 17]", "[1, 8, 8]"]),
        ([path, "--bits-of", "conv9=8"], ["'conv9'"]),
        ([path, "-o", path], ["--out"]),
        ([tmp_path / "none"], ["none"]),
    ]:
        program.refused(program.run("quantize", *words), *parts)
    assert json.loads(program.run("quantize", eight, "--json").stdout)["exit_code"] == 3
