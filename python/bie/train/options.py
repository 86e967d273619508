"""The options of ``python -m bie.train``: those of ``bie train`` that do not belong to one process alone."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path

from bie._output_files import check_outputs
from bie.nn.state.quant_layer import quant_layers
from bie.train.config import ARCHITECTURES, BITS, NetConfig, plan
from bie.train.data import Dataset
from bie.train.description import load_description
from bie.train.nets import Net
from bie.train.pictures import FITS
from bie.train.recipe import Recipe
from bie.train.run_folder import RunFolder

_DESCRIPTION = "Trains a classifier with one process or, under torchrun, with several; takes options of `bie train`."


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", choices=[name for name in ARCHITECTURES if name != "custom"], help="mlp by default")
    parser.add_argument("--net", type=Path, help="a file that describes the layers (JSON), in place of --arch")
    parser.add_argument("--bits", type=int, default=32, choices=BITS, help="of the inner layers")
    parser.add_argument("--first", type=int, choices=BITS, help="bits of the first layer")
    parser.add_argument("--last", type=int, choices=BITS, help="bits of the last layer")
    parser.add_argument("--bits-of", action="append", default=[], metavar="NAME=BITS", help="of one layer")
    parser.add_argument(
        "--linear-bits", type=int, default=0, choices=[0, *BITS], help="of the inner linear of a convnet"
    )
    parser.add_argument("--hidden", type=int, help="outputs of the inner linears (1024)")
    parser.add_argument("--width", type=int, help="channels of the first stage; of an mlp the same as --hidden")
    parser.add_argument("--depth", type=int, help="how many layers")
    parser.add_argument("--no-norm", action="store_true", help="no BatchNorm, output biases instead")
    parser.add_argument("--quantise-first", action="store_true", help="quantise the first layer too")
    parser.add_argument("--weights", default="usual", choices=["usual", "int8", "float"])
    parser.add_argument("--gradients", choices=["exact", "reference"], help="reference is the default with --compat")
    parser.add_argument("--compat", default="none", choices=["none", "bie-0.2.6"], help="BITorch Engine's values")


def _recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument(
        "--batch", type=int, help="images a step, of all ranks together (64, fewer of a small data set)"
    )
    parser.add_argument("--patience", type=int, default=0, help="epochs without a better test accuracy; 0: never ends")
    parser.add_argument("--augment", default="none", choices=["none", "crop-flip"])
    parser.add_argument("--optimizer", default="diodemix", choices=["diodemix", "adam", "sgd"], help="of the floats")
    parser.add_argument("--lr", type=float, help="rate of the float parameters")
    parser.add_argument("--weight-decay", type=float, help="of the float weights")
    parser.add_argument("--integer-lr", type=float, help="rate of the int8 weights")
    parser.add_argument("--integer-memory", type=float, help="share of the steps that DiodeMix remembers votes")
    parser.add_argument("--schedule", default="cosine", choices=["cosine", "linear", "constant"])
    parser.add_argument("--warmup", type=float, help="share of the steps over which the rates rise")
    parser.add_argument("--step-floor", type=float, default=0.03, help="least step size, as a share of its first")
    parser.add_argument("--renew-scale-every", type=int, default=0, help="steps between new scales of codes")
    parser.add_argument("--wide-gradients", action="store_true", help="float32 gradients for int8 weights")
    parser.add_argument("--bfloat16-moments", action="store_true")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"], help="of a step's products")
    parser.add_argument("--freeze-binary", action="store_true", help="leave the 1-bit weights as they start")
    parser.add_argument("--seed", type=int, default=0)


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="cuda, a GPU a rank, where there is one")
    parser.add_argument("-o", "--out", type=Path, help="where to save the model (safetensors)")
    # torchrun takes --run for an option of its own.
    parser.add_argument("--run", "--run-folder", type=Path, help="a folder for the run: config, log, checkpoint, model")
    parser.add_argument("--training-form", action="store_true", help="save the weights as they train, not packed")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps between checkpoints; 0: once an epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text)
    if found is None or max(map(int, found.groups())) > 4096:
        raise argparse.ArgumentTypeError(f"{text} is no size like 64x48, at most 4096x4096")
    return int(found[1]), int(found[2])


def _check(options: argparse.Namespace) -> None:
    for name, least in (("hidden", 1), ("width", 1), ("depth", 1), ("epochs", 1), ("batch", 2)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name}: expected a number from {least} on, got {value}")
    for name in ("lr", "integer_lr", "integer_memory"):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"--{name.replace('_', '-')}: expected a positive number, got {value}")
    decay, floor = options.weight_decay, options.step_floor
    if decay is not None and not (math.isfinite(decay) and decay >= 0):
        raise ValueError(f"--weight-decay: expected a number >= 0, got {decay}")
    if options.warmup is not None and not 0 <= options.warmup < 1:
        raise ValueError(f"--warmup: expected a share in [0, 1), got {options.warmup}")
    if not 0 <= floor <= 1:
        raise ValueError(f"--step-floor: expected a number in [0, 1], got {floor}")
    for name in ("patience", "renew_scale_every", "checkpoint_every", "seed"):
        if getattr(options, name) < 0:
            raise ValueError(f"--{name.replace('_', '-')}: expected a number >= 0, got {getattr(options, name)}")
    for name in ("resume", "checkpoint_every"):
        if getattr(options, name) and options.run is None:
            raise ValueError(f"--{name.replace('_', '-')} wants --run, the folder to go on in")
    if options.compat != "none" and options.gradients == "exact":
        raise ValueError(f"--gradients exact: --compat {options.compat} computes the reference's gradients")
    if options.net is not None:
        if options.arch is not None:
            raise ValueError("--net takes the place of --arch")
        for name in ("hidden", "width", "depth", "linear_bits"):
            if getattr(options, name):
                raise ValueError(f"--{name.replace('_', '-')} {getattr(options, name)}: the net's description says it")
    _check_files(options)
    options.arch = "custom" if options.net is not None else options.arch or "mlp"
    if options.no_norm and ARCHITECTURES[options.arch].deep:
        raise ValueError(f"{options.arch} does not train without BatchNorm")
    if options.arch == "mlp" and options.hidden and options.width:
        raise ValueError("--hidden and --width: expected one of them, as they are the same size of an mlp, got both")


def _check_files(options: argparse.Namespace) -> None:
    inputs = {} if options.net is None else {"--net": options.net}
    kind, _, place = options.data.partition(":")
    if place:
        inputs[f"--data {kind}:"] = Path(place)
    outputs = {} if options.out is None else {"--out": options.out}
    files = [] if options.run is None else RunFolder(options.run).files
    check_outputs(outputs | {f"--run {options.run}: {file.name},": file for file in files}, inputs)
    states = [file for file in files if file.name != "model.safetensors"]  # which --out names a second time
    check_outputs(outputs, {f"--run {options.run}: {file.name},": file for file in states})


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; ends the program with a sentence where one of them is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bie.train", description=_DESCRIPTION)
    parser.add_argument("--data", default="digits", help="digits, mnist:DIR, cifar10:DIR or images:DIR")
    parser.add_argument("--size", type=_size, metavar="HxW", help="what pictures are brought to")
    parser.add_argument("--fit", choices=FITS, help="how: crop, their middle, by default")
    _model(parser)
    _recipe(parser)
    _output(parser)
    options = parser.parse_args(arguments)
    try:
        _check(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def _bits_of(options: argparse.Namespace, names: list[str]) -> dict[str, int]:
    """The bits of single layers: --first, --last and --bits-of."""
    found: dict[str, int] = {}
    said = {names[0]: "--quantise-first"} if options.quantise_first else {}
    given = [(names[0], options.first, f"--first {options.first}"), (names[-1], options.last, f"--last {options.last}")]
    for word in options.bits_of:
        name, _, bits = word.rpartition("=")
        if not name or bits not in map(str, BITS):
            raise ValueError(f"--bits-of: expected NAME=BITS of 32, 8, 4 or 1 bits, got {word}")
        given.append((name, int(bits), f"--bits-of {word}"))
    for name, bits, option in given:
        if bits is None:
            continue
        if name in said:
            raise ValueError(f"{option}: expected one option for layer {name}, got {said[name]} too")
        found[name], said[name] = bits, option
    return found


def net_config(options: argparse.Namespace, data: Dataset) -> NetConfig:
    """The net of the options for a data set."""
    sizes = {"depth": options.depth, "width": options.width, "hidden": options.hidden or 1024}
    if options.arch == "mlp" and options.width:
        sizes |= {"hidden": options.width, "width": None}
    config = NetConfig(
        arch=options.arch,
        bits=options.bits,
        image=tuple(data.train.images.shape[1:]),
        classes=data.classes,
        norm=not options.no_norm,
        quantise_first=options.quantise_first,
        weights=options.weights,
        linear_bits=options.linear_bits,
        layers=[] if options.net is None else load_description(options.net),
        class_names=data.class_names,
        fit=data.fit,
        **sizes,
    )
    config.bits_of = _bits_of(options, [layer.name for layer in plan(config)])
    plan(config)  # refuses a name that is none
    return config


def recipe(options: argparse.Namespace, config: NetConfig) -> Recipe:
    names = ("optimizer", "lr", "weight_decay", "integer_lr", "integer_memory", "schedule", "warmup")
    return Recipe(**{name: getattr(options, name) for name in names}).filled(config)


def check_use(options: argparse.Namespace, net: Net) -> None:
    """Refuses what would do nothing to the net, before its layers are prepared."""
    layers = [layer for _, layer in quant_layers(net)]
    integer = [layer._bits for layer in layers if not net.config.is_latent(layer._bits)]
    signs = 1 in integer and not options.freeze_binary
    codes = any(bits > 1 for bits in integer)
    bits = {layer._bits for layer in layers}
    if options.weights == "int8" and not layers:
        raise ValueError("--weights int8: a model of 32 bits has float weights alone")
    wanted = [
        ("--freeze-binary", options.freeze_binary, "1-bit weights", 1 in bits),
        ("--integer-lr", options.integer_lr is not None, "int8 weights that are trained", signs or codes),
        ("--wide-gradients", options.wide_gradients, "int8 weights that are trained", signs or codes),
        ("--integer-memory", options.integer_memory is not None, "1-bit int8 weights that are trained", signs),
        ("--renew-scale-every", options.renew_scale_every > 0, "4-bit weights or int8 weights", 4 in bits or codes),
        (f"--compat {options.compat}", options.compat != "none", "quantised layers", layers),
        ("--gradients reference", options.gradients == "reference", "layers of 8 and 4 bits", bits - {1}),
    ]
    for option, given, what, has in wanted:
        if given and not has:
            raise ValueError(f"{option} wants {what}, the model has none")
