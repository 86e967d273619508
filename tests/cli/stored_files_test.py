"""Files that earlier versions wrote are read, and compute what they computed.

tests/stored was written by commit 3d48733, on one thread of an AMD EPYC: models of the format versions 3 to 5, one as
it trains, one with scales of output channels, the logits of each (`bie eval --logits`); and the checkpoint of step 22
of a run with the model at its end. A format whose version is raised gets files of its own; those that are there stay.
tests/models/model_file_test.cpp has the versions 1 and 2.
"""

import json
import shutil
import struct

import pytest
import torch
from safetensors.torch import load_file

ACCURACIES = {
    "model_3": 58.33,  # --hidden 16 --depth 1 --bits 4
    "model_4": 65.28,  # --hidden 16 --depth 2 --bits 8 --bits-of block1=4
    "model_5": 65.28,  # --arch vgg-small --width 4 --depth 1 --bits 1
    "training_form": 83.06,  # --hidden 16 --depth 1 --bits 1 --training-form
    "channel_scales": 25.56,  # quantize --bits 8 --first 8 --last 8 --per-channel
}
RUN = ["--hidden", 16, "--depth", 1, "--bits", 8, "--weights", "int8", "--epochs", 2]
IMAGE = 100 / 360


@pytest.fixture
def stored(root):
    return root / "tests/stored"


def version_of(path):
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return json.loads(json.loads(file.read(size))["__metadata__"]["bie"])["format_version"]


@pytest.mark.parametrize("name", ACCURACIES)
def test_a_model_computes_what_it_computed(program, stored, tmp_path, name):
    logits = tmp_path / "logits.safetensors"
    done = program.run("eval", stored / f"{name}.safetensors", "--logits", logits)
    # Another CPU's float layers may turn the sign or the code of an activation: two images, one logit in a hundred.
    assert abs(float(program.accuracy(done)) - ACCURACIES[name]) < 2.5 * IMAGE
    found, wanted = (load_file(path)["logits"] for path in (logits, stored / f"{name}.logits.safetensors"))
    near = torch.isclose(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
    assert near.double().mean() >= 0.99


def test_these_versions_are_there(stored):
    assert {version_of(stored / f"{name}.safetensors") for name in ACCURACIES} == {3, 4, 5}
    assert version_of(stored / "step-000000000022.safetensors") == 1


def test_a_run_goes_on_from_its_checkpoint(program, stored, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    shutil.copy(stored / "step-000000000022.safetensors", folder)
    model = tmp_path / "run.safetensors"
    done = program.run("train", *RUN, "--checkpoints", folder, "--resume", "-o", model)
    assert done.returncode == 0, done.stderr
    assert "resumed after step 22" in done.stderr
    found, wanted = load_file(model), load_file(stored / "run.safetensors")
    assert found.keys() == wanted.keys()
    codes = "block0.qweight" if "block0.qweight" in found else next(name for name in found if name.endswith("qweight"))
    assert (found[codes] == wanted[codes]).double().mean() > 0.95


def test_a_newer_version_is_refused(program, stored, tmp_path):
    path = tmp_path / "newer.safetensors"
    text = (stored / "model_3.safetensors").read_bytes()
    path.write_bytes(text.replace(rb"\"format_version\":3", rb"\"format_version\":9"))
    assert path.read_bytes() != text
    program.refused(program.run("eval", path), "newer.safetensors")
