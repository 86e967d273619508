"""The nets and optimizers of ``python -m bie.train`` are those of the command, whose files it writes."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bie.train.__main__ import main
from bie.train.batches import Batches
from bie.train.config import NetConfig
from bie.train.data import Split
from bie.train.nets import build
from bie.train.options import parse
from bie.train.recipe import Recipe, default_batch
from bie.train.run import Run
from bie.train.run_folder import save_model


@pytest.fixture
def answer(bie):
    """What the command prints with --json; skipped where it is neither installed nor built."""
    found = next((path for path in (Path(sys.executable).with_name("bie"), bie) if path.exists()), None)
    if found is None:
        pytest.skip("the command bie is not there")

    def run(*arguments):
        command = [found, "--threads", "1", "--json", *arguments]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """CIFAR-10's files, of a few images: a colour and a place a class."""
    folder = tmp_path_factory.mktemp("cifar")
    numbers = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 200, (10, 3072), generator=numbers)

    def write(name, count):
        labels = torch.arange(count) % 10
        pixels = patterns[labels] + torch.randint(0, 56, (count, 3072), generator=numbers)
        (folder / name).write_bytes(torch.cat([labels[:, None], pixels], 1).to(torch.uint8).numpy().tobytes())

    for i in range(1, 6):
        write(f"data_batch_{i}.bin", 20)
    write("test_batch.bin", 200)
    return folder


CUSTOM = [
    {"type": "pool", "size": 2},
    {"type": "conv", "out": 6, "kernel": 3, "padding": 1, "activation": "relu"},
    {"type": "conv", "out": 8, "kernel": 3, "stride": 2, "bits": 8},
    {"type": "pool", "size": 2},
    {"type": "linear", "out": 24, "activation": "none"},
]


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.json"
    path.write_text(json.dumps({"format_version": 1, "layers": CUSTOM}))
    return path


NETS = [
    ["--arch", "mlp", "--hidden", "32", "--depth", "1", "--quantise-first"],
    ["--arch", "mlp", "--hidden", "32", "--no-norm"],
    ["--arch", "lenet", "--width", "4", "--hidden", "32"],
    ["--arch", "vgg-small", "--width", "8", "--linear-bits", "1", "--hidden", "32", "--first", "8", "--last", "8"],
    ["--arch", "resnet20", "--width", "8", "--depth", "1", "--weights", "int8"],
    ["--net", "DESCRIBED"],
    ["--net", "DESCRIBED", "--quantise-first", "--no-norm"],
]


def options_of(net, cifar, described):
    return ["--data", f"cifar10:{cifar}", *(str(described) if word == "DESCRIBED" else word for word in net)]


@pytest.mark.parametrize(
    ("net", "bits"),
    [*((net, bits) for net in NETS for bits in (1, 4)), (NETS[0], 8), (NETS[3], 8), (NETS[1], 32), (NETS[2], 32)],
    ids=lambda value: str(value) if isinstance(value, int) else " ".join(value[1:]),
)
def test_the_command_reads_what_is_trained(answer, cifar, described, tmp_path, net, bits):
    options = [*options_of(net, cifar, described), "--bits", str(bits), "--epochs", "2", "--augment", "crop-flip"]
    run = Run(parse(options))
    run.train_all()
    ours = run.accuracy(run.test)
    for training_form in (False, True):
        path = tmp_path / f"{training_form}.safetensors"
        save_model(run.net, path, training_form)
        theirs = answer("eval", path, "--data", f"cifar10:{cifar}", "--logits", tmp_path / "logits.safetensors")
        # Sums of floats may round a last bit differently, which can move a code: up to two images of 200; none here.
        assert abs(theirs["test_accuracy"] - ours) <= 2 / 200 + 1e-9
        assert theirs["data"] == "cifar10"


@pytest.mark.parametrize("net", NETS, ids=lambda net: " ".join(net[1:]))
def test_the_net_is_the_commands(answer, cifar, described, tmp_path, net):
    """Names, shapes and dtypes of a file by the command, and its configuration."""
    from safetensors import safe_open

    options = [*options_of(net, cifar, described), "--bits", "1", "--epochs", "1"]
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    answer("train", *options, "-o", theirs)
    run = Run(parse(options))
    run.train_all()
    save_model(run.net, ours)
    found = []
    for path in (theirs, ours):
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            config = json.loads(file.metadata()["bie"])
        found.append(({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}, config))
    assert found[0][0] == found[1][0]
    for key in found[0][1].keys() - {"format_version", "width", "depth"}:
        assert found[0][1][key] == found[1][1][key]


@pytest.mark.parametrize(
    "options",
    [
        ["--bits", "1", "--hidden", "64", "--seed", "3"],
        ["--bits", "4", "--hidden", "64", "--weights", "int8"],
        ["--bits", "8", "--hidden", "64", "--optimizer", "sgd", "--seed", "1"],
        ["--bits", "32", "--hidden", "64", "--optimizer", "adam", "--no-norm", "--weight-decay", "0.1"],
        ["--bits", "8", "--quantise-first", "--no-norm", "--hidden", "64", "--schedule", "linear", "--warmup", "0.2"],
        ["--bits", "1", "--hidden", "64", "--freeze-binary", "--compat", "bie-0.2.6"],
    ],
    ids=" ".join,
)
def test_one_process_trains_as_the_command_does(answer, options):
    """The same weights at the start, the same batches and rates: losses differ by what floats round and signs flip.

    Nothing where both have one thread, as the command has for nets so small.
    """
    options = [*options, "--epochs", "3"]
    theirs = answer("train", *options)["epochs"]
    run = Run(parse(options))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run.train_all()
    finally:
        torch.set_num_threads(threads)
    for ours, other in zip(run.history, theirs, strict=True):
        assert ours["loss"] == pytest.approx(other["loss"], rel=0.1)
        assert ours["rate"] == pytest.approx(other["rate"])
        assert ours["train_accuracy"] == pytest.approx(other["train_accuracy"], abs=0.02)
        assert ours["step_sizes"].keys() == other["step_sizes"].keys()
        assert ours["flipped"] == pytest.approx(other["flipped"], abs=0.05)
    assert run.history[0]["loss"] == pytest.approx(theirs[0]["loss"], rel=0.02)


def test_the_command_reports_photos_with_a_validation_part(answer, tmp_path, capsys):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    photos = tmp_path / "photos"
    for part, count in (("train", 12), ("val", 4), ("test", 4)):
        for name, colour in (("bright", 200), ("dark", 40)):
            (photos / part / name).mkdir(parents=True)
            for i in range(count):
                picture = image.new("RGB", (40 + i, 30), (colour + i, colour, 20))
                picture.save(photos / part / name / f"{i}.jpg")
    run = tmp_path / "run"
    options = ["--hidden", "8", "--depth", "1", "--epochs", "4", "--size", "16x20", "--fit", "pad", "--run", str(run)]
    main(["--data", f"images:{photos}", *options])
    said = capsys.readouterr().out
    assert "24 training, 8 validation and 8 test images" in said and "validation accuracy" in said
    epochs = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert all(0 <= epoch["validation_accuracy"] <= 1 for epoch in epochs)
    theirs = answer("report", run)
    assert abs(theirs["test_accuracy"] - epochs[-1]["test_accuracy"]) <= 1 / 8 + 1e-9
    assert "validation accuracy" in (run / "report.html").read_text()
    guess = answer("predict", run / "model.safetensors", photos / "test" / "dark" / "0.jpg")
    assert guess["predictions"][0]["guesses"][0]["class"] in ("bright", "dark")


RECIPES = [
    ["--bits", "1", "--hidden", "8"],
    ["--bits", "4", "--optimizer", "sgd", "--hidden", "8"],
    ["--no-norm", "--optimizer", "adam", "--hidden", "8"],
    ["--no-norm", "--optimizer", "sgd", "--hidden", "8"],
    ["--arch", "resnet20", "--bits", "1", "--width", "4"],
    ["--arch", "vgg-small", "--optimizer", "sgd", "--width", "4"],
]


@pytest.mark.parametrize("options", RECIPES, ids=" ".join)
def test_recipes_are_the_commands(answer, tmp_path, options):
    """config.json of a run by the command says the defaults that it filled in."""
    answer("train", *options, "--epochs", "1", "--run", tmp_path)
    theirs = json.loads((tmp_path / "config.json").read_text())["recipe"]
    asked = parse(options)
    ours = vars(Recipe(asked.optimizer).filled(NetConfig(asked.arch, asked.bits, norm=not asked.no_norm)))
    assert {name: theirs[name] for name in ours} == ours
    assert theirs["batch"] == default_batch(1437)


@pytest.mark.parametrize(("images", "batch"), [(1, 8), (95, 8), (96, 16), (383, 32), (384, 64), (10**6, 64)])
def test_the_default_batch(images, batch):
    assert default_batch(images) == batch


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_schedules(schedule):
    recipe = Recipe("sgd", schedule=schedule, warmup=0.1).filled(NetConfig())
    factors = [recipe.factor(step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([(i + 1) / 11 for i in range(10)])
    assert factors[10] == 1
    middle = {"cosine": 0.5, "linear": 0.5, "constant": 1}[schedule]
    assert factors[55] == pytest.approx(middle)


def test_weights_keep_their_variance_without_norm():
    torch.manual_seed(0)
    weight = build(NetConfig(hidden=256, norm=False)).block1.product.weight
    assert float(weight.detach().abs().max()) == pytest.approx((6 / 1.0625 / 256) ** 0.5, rel=1e-2)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([], "is no array of 1 to 1000 layers"),
        ([3], r"layers\[0\]: expected an object, got 3"),
        ([{"type": "norm"}], r'layers\[0\]\.type: expected one of conv, linear, pool, got "norm"'),
        ([{"type": "conv", "out": 3}], r"layers\[0\] has no kernel"),
        ([{"type": "conv", "out": 3, "kernel": 0}], r"layers\[0\]\.kernel: expected 1 to 64, got 0"),
        ([{"type": "linear", "out": True}], r"layers\[0\]\.out: expected 1 to .*, got true"),
        ([{"type": "linear", "out": 3, "bits": 2}], r"layers\[0\]\.bits: expected one of .*, got 2"),
        ([{"type": "linear", "out": 3, "size": 2}], r"layers\[0\]\.size is no entry"),
        ([{"type": "linear", "out": 3}, {"type": "pool", "size": 2}], r"layers\[1\] is a pool behind a linear"),
        ([{"type": "pool", "size": 9}], r"layers\[0\] takes squares of 9, what reaches it is 8x8"),
        ([{"type": "pool", "size": 2}], "the net has no layers"),
    ],
)
def test_bad_descriptions(tmp_path, layers, sentence):
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"format_version": 1, "layers": layers}))
    with pytest.raises(ValueError, match=sentence):
        Run(parse(["--net", str(path)]))


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"format_version": 2, "layers": []}', '{"format_version": 1, "x": 1}']
)
def test_other_files_describe_no_net(tmp_path, text):
    path = tmp_path / "net.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"net description .*net\.json: "):
        Run(parse(["--net", str(path)]))


def split(count=10, side=6):
    images = torch.arange(1.0, count + 1).view(-1, 1, 1, 1) * torch.ones(1, 3, side, side)
    images[..., 0, 0] = 0  # a corner, which mirrors to another
    return Split(images, torch.arange(count))


@pytest.mark.parametrize("crop_flip", [False, True])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_one_batch(crop_flip, world):
    """Whatever the number of ranks, and wherever a run goes on."""
    alone = Batches(split(), 4, crop_flip, seed=1)
    for step in (5, 0, 3):
        parts = [Batches(split(), 4, crop_flip, seed=1).of_step(step, rank, world) for rank in range(world)]
        images, labels = (torch.cat(part) for part in zip(*parts, strict=True))
        whole, truth = alone.of_step(step, 0, 1)
        assert torch.equal(images, whole) and torch.equal(labels, truth)
    seen = torch.cat([alone.of_step(step, 0, 1)[1] for step in range(alone.per_epoch)])
    assert len(seen.unique()) == len(seen) == 8


def test_crops_and_mirrors():
    """Each image is one of 81 crops of the padded image or of the crop's mirror; many of both come."""
    data, found = split(), set()
    batches = Batches(data, 10, True, seed=0)
    padded = torch.nn.functional.pad(data.images, (4,) * 4)
    places = list(itertools.product(range(9), range(9), (False, True)))
    for step in range(30):
        for image, label in zip(*batches.of_step(step, 0, 1), strict=True):
            fits = set()
            for top, left, mirrored in places:
                crop = padded[label, :, top : top + 6, left : left + 6]
                if torch.equal(image, crop.flip(2) if mirrored else crop):
                    fits.add((top, left, mirrored))
            assert fits
            found |= fits if len(fits) == 1 else set()
    assert len({crop[:2] for crop in found}) > 20 and len({crop[2] for crop in found}) == 2
