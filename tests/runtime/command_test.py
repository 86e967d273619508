"""bie run, predict, inspect and bench of nets that were written by hand."""

import numpy as np
import pytest
from net_writer import coded_net


@pytest.fixture
def images(tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, np.array([[[1, 2], [3, 4]], [[0, -1], [8, 0]]], np.float32))
    return path


def test_run_says_classes_and_logits(answer, float_net, images):
    said = answer("run", float_net, "--input", images)
    assert said["shape"] == [2, 5]
    assert said["logits"] == [[3, 7, 4, 6, 9], [-1, 8, 8, -1, 6]]
    assert said["classes"] == ["all", "bottom"]


def test_white_divides(answer, float_net, images):
    said = answer("run", float_net, "--input", images, "--white", 2)
    assert said["logits"][0] == [1.5, 3.5, 2, 3, 4]


def test_predict_has_the_softmax(answer, float_net, images):
    (first, second) = answer("predict", float_net, images, "--top", 2)["predictions"]
    assert [guess["class"] for guess in first["guesses"]] == ["all", "bottom"]
    shares = np.exp(np.array([3, 7, 4, 6, 9.0]) - 9)
    assert first["guesses"][0]["probability"] == pytest.approx(1 / shares.sum())
    assert [guess["class"] for guess in second["guesses"]] == ["bottom", "left"], "the first of two that are equal"


def test_csv_rows_are_samples(answer, float_net, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("1,2,3,4\n0,0,0,5\n")
    assert answer("run", float_net, "--input", table)["logits"][1] == [0, 5, 0, 5, 4]


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_inspect_names_the_nodes(answer, tmp_path, bits):
    path = tmp_path / "codes.net.bie"
    path.write_bytes(coded_net(bits).bytes())
    said = answer("inspect", path)
    assert said["bits"] == str(bits)
    assert said["input"] == [2, 4, 4]
    assert len(said["nodes"]) == 6
    assert f"conv2d of {bits} bits" in said["nodes"][0]


def test_bench_times_every_net_and_batch(answer, float_net):
    (net,) = answer("bench", float_net, "--batch", "1,3", "--repeats", 3)["models"]
    assert [time["batch"] for time in net["times"]] == [1, 3]
    assert all(time["seconds_an_image"] > 0 for time in net["times"])


def refused(process, *parts):
    assert process.returncode == 3, process
    assert process.stdout == ""
    (line,) = process.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(part in line for part in parts), line


def test_bad_files_are_sentences(command, float_net, images, tmp_path):
    data = bytearray(float_net.read_bytes())
    data[-70] ^= 1
    damaged = tmp_path / "damaged.net.bie"
    damaged.write_bytes(data)
    refused(command("run", damaged, "--input", images), str(damaged), "damaged")
    damaged.write_bytes(data[:100])
    refused(command("inspect", damaged), str(damaged), "its header says")
    refused(command("run", tmp_path / "absent", "--input", images), "absent")
    refused(command("run", float_net, "--input", tmp_path / "absent"), "absent")
    np.save(images, np.zeros((3, 3), np.float32))
    refused(command("run", float_net, "--input", images), "[3, 3]", "[1, 2, 2]")
    np.save(images, np.full((2, 2), np.nan, np.float32))
    refused(command("run", float_net, "--input", images), "NaN or infinity")


def test_the_other_half_is_named_where_it_is_missing(command, bie):
    if "torch none" not in command("--version").stdout:
        pytest.skip("this build has both halves")
    for name in ("train", "eval", "quantize", "export", "demo", "tune"):
        process = command(name, "x", "--bits", "4")
        assert process.returncode == 1
        (line,) = process.stderr.splitlines()
        assert line.startswith(f"error: bie {name} needs the training half of bie, which has torch: bie-torch is not ")
