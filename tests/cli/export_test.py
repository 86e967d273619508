"""bie export, and what the commands make of exported nets beside the models they came from."""

import subprocess

import pytest


@pytest.fixture
def model(program, small_mnist, tmp_path):
    """A trained model of one width, as its file."""

    def train(*options):
        path = tmp_path / "model.safetensors"
        process = program.run("-q", "train", "--data", small_mnist, "--epochs", 1, "-o", path, *options)
        assert process.returncode == 0, process.stderr
        return path

    return train


@pytest.mark.parametrize("options", [("--arch", "lenet", "--bits", "1"), ("--bits", "4"), ("--bits", "8", "--no-norm")])
def test_an_exported_net_predicts_as_its_model(program, model, small_mnist, tmp_path, options):
    path, net = model(*options), tmp_path / "model.net.bie"
    said = program.json("export", path, "-o", net)
    assert said["bytes"] == net.stat().st_size
    images = small_mnist.removeprefix("mnist:") + "/t10k-images-idx3-ubyte"
    of_model, of_net = (program.json("predict", file, images)["predictions"] for file in (path, net))
    assert len(of_net) == 40
    for wanted, got in zip(of_model, of_net, strict=True):
        assert [guess["class"] for guess in got["guesses"]] == [guess["class"] for guess in wanted["guesses"]]
        for a, b in zip(wanted["guesses"], got["guesses"], strict=True):
            assert b["probability"] == pytest.approx(a["probability"], abs=1e-6)
    best = [p["guesses"][0]["class"] for p in of_net]
    assert program.json("run", net, "--input", images)["classes"] == best


def test_the_same_model_gives_the_same_bytes(program, model, tmp_path):
    path = model("--bits", "4")
    for name in ("a", "b"):
        program.json("export", path, "-o", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_c_array_holds_the_bytes_of_the_file(program, model, tmp_path):
    path, net, source = model("--bits", "1"), tmp_path / "net.bie", tmp_path / "net.c"
    program.json("export", path, "-o", net, "--c-array", source)
    library = tmp_path / "net.so"
    built = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    import ctypes

    loaded = ctypes.CDLL(str(library))
    size = ctypes.c_size_t.in_dll(loaded, "bie_net_size").value
    array = (ctypes.c_ubyte * size).in_dll(loaded, "bie_net_bytes")
    assert bytes(array) == net.read_bytes()
    assert ctypes.addressof(array) % 64 == 0


def test_refusals(program, model, tmp_path):
    path = model("--bits", "8")
    assert program.run("export", path).returncode == 2, "neither file was asked for"
    program.refused(program.run("export", path, "-o", path), "is the model's file")
    program.refused(program.run("export", tmp_path / "absent", "-o", tmp_path / "x"), "absent")
    net = tmp_path / "net.bie"
    program.json("export", path, "-o", net)
    assert program.run("bench", path, net).returncode == 2
