"""Every form of model: what train printed is what eval prints in another process, from the packed file and from the one
in the form that trains; the logits of the test images are the same bytes."""

import json
import struct

import pytest

TINY = ["--hidden", "48", "--depth", "2", "--epochs", "2"]
DEEP = ["--epochs", "1", "--batch", "16", "--optimizer", "sgd", "--augment", "crop-flip"]
LENET = ["--arch", "lenet", "--hidden", "16", "--epochs", "2", "--batch", "16"]

FORMS = [
    *([*TINY, "--bits", bits] for bits in ("32", "8", "4", "1")),
    *([*TINY, "--bits", bits, "--weights", form] for bits in ("8", "4", "1") for form in ("float", "int8")),
    *([*TINY, "--bits", bits, "--no-norm"] for bits in ("32", "8", "4", "1")),
    *([*TINY, "--bits", bits, "--quantise-first"] for bits in ("8", "4", "1")),
    [*TINY, "--bits", "4", "--no-norm", "--quantise-first", "--weights", "int8"],
    *([*LENET, "--bits", bits] for bits in ("32", "8", "4")),
    [*LENET, "--bits", "4", "--no-norm", "--quantise-first", "--weights", "int8"],
    [*LENET, "--bits", "8", "--linear-bits", "4"],
    *([*DEEP, "--arch", "resnet20", "--bits", bits] for bits in ("32", "8", "4", "1")),
    [
        *(*DEEP, "--arch", "resnet20", "--bits", "8", "--linear-bits", "8", "--hidden", "16"),
        *("--weights", "int8", "--quantise-first"),
    ],
    [*DEEP, "--arch", "resnet20", "--bits", "4", "--width", "5", "--depth", "1"],
    [*DEEP, "--arch", "vgg-small", "--bits", "4"],
    [*DEEP, "--arch", "vgg-small", "--bits", "1", "--width", "8"],
    [*DEEP, "--arch", "vgg-small", "--bits", "8", "--width", "3", "--depth", "1"],
    [*LENET, "--bits", "4", "--width", "5"],
]


def entries(path) -> dict:
    """Name to dtype."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return {name: entry["dtype"] for name, entry in header.items() if name != "__metadata__"}


def option(form, name, default):
    return form[form.index(name) + 1] if name in form else default


@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(w.lstrip("-") for w in form if w not in TINY + DEEP))
def test_what_is_saved_is_what_was_trained(program, tmp_path, small_mnist, small_cifar, form):
    sets = {"lenet": (small_mnist, 40), "resnet20": (small_cifar, 12), "vgg-small": (small_cifar, 12)}
    name, images = sets.get(option(form, "--arch", "mlp"), ("digits", 360))
    data = ["--data", name]
    packed, training, logits, evaluated = (tmp_path / n for n in ("packed", "training", "logits", "evaluated"))
    trained = program.run("train", *form, *data, "-o", packed, "--logits", logits)
    again = program.run("train", *form, *data, "-o", training, "--training-form", "--logits", evaluated)
    assert program.accuracy(again) == program.accuracy(trained)
    assert evaluated.read_bytes() == logits.read_bytes()
    assert entries(logits) == {"logits": "F32"}
    assert logits.stat().st_size > 4 * 10 * images
    for path in (packed, training):
        evaluated.unlink()
        assert program.accuracy(program.run("eval", path, *data, "--logits", evaluated)) == program.accuracy(trained)
        assert evaluated.read_bytes() == logits.read_bytes()
    bits = option(form, "--bits", None)
    held = entries(training)
    weights = {name: held[name] for name in held if name.removesuffix(".weight") + ".scale_a" in held}
    if bits == "32":
        assert training.read_bytes() == packed.read_bytes()
        return
    integer = {"usual": bits == "1", "float": False, "int8": True}[option(form, "--weights", "usual")]
    assert set(weights.values()) == {"I8" if integer else "F32"}
    assert {name.replace(".weight", ".qweight") for name in weights} <= set(entries(packed))
    assert not set(weights) & set(entries(packed))
    if bits != "8":
        assert packed.stat().st_size < training.stat().st_size


def test_a_binary_linear_behind_codes(program, tmp_path, small_cifar):
    path, data = tmp_path / "model", ["--data", small_cifar]
    options = [*DEEP, "--arch", "resnet20", "--bits", "4", "--linear-bits", "1", "--hidden", "16"]
    process = program.run("train", *data, *options, "-o", path)
    accuracy = program.accuracy(process)
    assert "binary weights flipped" in process.stdout
    assert program.accuracy(program.run("eval", path, *data)) == accuracy
    held = entries(path)
    assert held["inner.product.qweight"] == "U8"
    assert held["block0.conv1.product.qweight"] == "I8"
