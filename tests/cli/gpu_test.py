"""Training and evaluation on a GPU: the same options give the same bytes, interrupted or not, and files of one device
serve the other."""

import re

import pytest

SGD = ["--optimizer", "sgd", "--lr", "0.02", "--augment", "crop-flip"]
CUDA = ["--device", "cuda"]

WAYS = {
    "mlp of 1 bit": ["--bits", "1", "--hidden", "48", "--depth", "1"],
    "mlp of 4 bits, int8 weights": ["--bits", "4", "--weights", "int8", "--hidden", "48", "--depth", "1"],
    "lenet of 8 bits, adam": ["--arch", "lenet", "--bits", "8", "--hidden", "16", "--optimizer", "adam"],
    "resnet20": ["--arch", "resnet20", *SGD],
    "resnet20 of 8 bits": ["--arch", "resnet20", "--bits", "8", *SGD],
    "resnet20 of 4 bits, binary linear": [
        *("--arch", "resnet20", "--bits", "4", "--linear-bits", "1", "--hidden", "32"),
        *SGD,
    ],
    "resnet20, int8 weights": ["--arch", "resnet20", "--bits", "8", "--weights", "int8", "--augment", "crop-flip"],
    "vgg-small of 4 bits": ["--arch", "vgg-small", "--bits", "4", *SGD],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_the_same_to_the_bit(program, gpu, tmp_path, small_cifar, way):
    whole, resumed, logits, evaluated = (tmp_path / name for name in ("whole", "resumed", "logits", "evaluated"))
    folder = tmp_path / "checkpoints"
    data = ["--data", small_cifar]
    options = ["train", *data, *WAYS[way], "--batch", "8", "--epochs", "2", "--checkpoints", folder]
    options += ["--checkpoint-every", "3"]
    trained = program.run(*options, *CUDA, "-o", whole, "--logits", logits)
    assert program.accuracy(program.run("eval", whole, *data, *CUDA, "--logits", evaluated)) == program.accuracy(
        trained
    )
    assert evaluated.read_bytes() == logits.read_bytes()
    newer = max(folder.iterdir())
    newer.unlink()
    again = program.run(*options, *CUDA, "--resume", "-o", resumed)
    assert "info: resumed after step 6\n" in again.stderr
    assert program.accuracy(again) == program.accuracy(trained)
    assert resumed.read_bytes() == whole.read_bytes()
    # A file written on the GPU is read without one.
    program.accuracy(program.run("eval", whole, *data))
    newer.unlink()
    program.accuracy(program.run(*options, "--resume"))


@pytest.mark.parametrize("bits", [32, 8, 4, 1])
def test_a_file_of_the_cpu_predicts_alike(program, gpu, tmp_path, bits):
    path = tmp_path / "model"
    options = ["--hidden", "64", "--depth", "1", "--epochs", "4", "--bits", bits]
    trained = program.accuracy(program.run("train", *options, "-o", path))
    evaluated = program.accuracy(program.run("eval", path, *CUDA))
    assert float(evaluated) == pytest.approx(float(trained), abs=1), (
        "360 images: three of them may fall to the other side"
    )


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_a_diverged_run_fails_and_saves_nothing(program, gpu, tmp_path, small_cifar, bits):
    options = ["--arch", "resnet20", "--bits", bits, "--epochs", "2", "--batch", "8", "--lr", "1e30"]
    process = program.run("-q", "train", "--data", small_cifar, *options, *CUDA, "-o", tmp_path / "model")
    assert process.returncode == 1
    assert process.stderr.startswith("error: training diverged in epoch 1: ")
    assert len(process.stderr.splitlines()) == 1
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("bits", [32, 8, 4, 1])
def test_digits_are_learned(program, gpu, tmp_path, bits):
    trained = program.run("train", "--bits", bits, "--hidden", "256", "--depth", "2", "--epochs", "15", *CUDA)
    assert float(program.accuracy(trained)) > 92


def test_doctor_names_the_gpu(program, gpu):
    assert re.search(r"^GPU 0: .+, sm_\d+, \d+ multiprocessors", program.run("doctor").stdout, re.MULTILINE)


def test_tune_prints_and_remembers_rows(program, gpu, tmp_path):
    model = tmp_path / "model"
    program.accuracy(
        program.run("train", "--bits", "4", "--hidden", "96", "--depth", "2", "--epochs", "1", "-o", model)
    )
    words = ["--gemm", "8,64,512,512", "--gemm", "1,1,512,512", "--model", model, "--batch", "32"]
    done = program.run("tune", *words, env={"BIE_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\d) bit, m (\d+), n (\d+), k (\d+): \w+_gemm_\w+$", done.stdout, re.MULTILINE) == [
        ("8", "64", "512", "512"),
        ("1", "1", "512", "512"),
        ("4", "32", "96", "96"),
        ("4", "32", "96", "96"),
    ]
    assert len((tmp_path / "cache/gemm_tuning.tsv").read_text().splitlines()) == 4


def test_a_gpu_that_is_not_there(program, gpu):
    program.refused(program.run("train", "--device", "cuda:63"), "cuda:63", "GPUs can be used here", code=4)


def test_demo_prints_its_table(program, gpu):
    done = program.run("demo", "--epochs", "3", *CUDA)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ *(\S+) .* %.*x$", done.stdout, re.MULTILINE) == ["32", "8", "4", "1", "1*"]
