"""Whole modules that earlier versions pickled, under the class paths of bitorch_engine, load and compute the same.

modules_of_1c36502.pt.gz was written by commit 1c36502 with torch 2.11, one thread, on a Zen 4 CPU: ``torch.save`` of
every kind of tests/python/kinds.py after its first batch, some packed besides, with an input and its output in
evaluation; of a model in training with its DiodeMix; and of one object of each other class that a pickle may hold.
"""

import gzip
import io
import pickle
import re
import zipfile
from pathlib import Path

import pytest
import torch

import bie
from bitorch_engine.layers.qembedding import BinaryEmbeddingParameter
from bitorch_engine.layers.qlinear.binary.cuda import BMM
from bitorch_engine.layers.qlinear.nbit import MPQLinearBase, MPQWeightParameter

RECORD = gzip.decompress(Path(__file__).with_name("modules_of_1c36502.pt.gz").read_bytes())
NAMES = sorted(torch.load(io.BytesIO(RECORD), weights_only=False)["modules"])


@pytest.fixture
def saved():
    return torch.load(io.BytesIO(RECORD), weights_only=False)


def close(found, wanted):
    # Results of torch's own products and exponentials differ between CPUs.
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_record_names_old_paths_alone():
    with zipfile.ZipFile(io.BytesIO(RECORD)) as record:
        (name,) = (name for name in record.namelist() if name.endswith("data.pkl"))
        classes = set(re.findall(rb"c([\w.]+)\n(\w+)\n", record.read(name)))
    packages = {module.partition(b".")[0] for module, _ in classes}
    assert b"bitorch_engine" in packages and b"bie" not in packages and len(classes) > 30


@pytest.mark.parametrize("name", NAMES)
def test_modules(saved, name):
    module, x, y = (saved[key][name] for key in ("modules", "inputs", "outputs"))
    assert not module.training
    with torch.no_grad():
        found = module(*x)
    found = found[0] if isinstance(found, tuple) else found
    if name in ("BMHA", "averaged"):
        close(found, y)
    else:
        assert torch.equal(found, y)
    again = pickle.loads(pickle.dumps(module))
    with torch.no_grad():
        again(*x)  # whose kernel repr names
    assert type(again) is type(module) and repr(again) == repr(module)
    assert again.state_dict().keys() == module.state_dict().keys()


def test_training_goes_on(saved):
    model, optimizer, x = saved["training"]
    assert isinstance(optimizer, bie.optim.DiodeMix)
    optimizer.zero_grad()
    model.train()(x).square().mean().backward()
    optimizer.step()
    for key, value in model.state_dict().items():
        close(value.float(), saved["after"][key].float())


def test_what_else_pickles_hold(saved):
    assert type(saved["mpq"]) is MPQLinearBase and type(saved["mpq"].qweight) is MPQWeightParameter
    assert saved["mpq"].qweight.group_size == 32 and saved["mpq"].extra_repr().startswith("64, 32, w_bit=4")
    assert saved["mpq"](torch.ones(2, 64, dtype=saved["mpq"].dtype)).shape == (2, 32)
    assert isinstance(saved["projector"], bie.optim.GaLoreProjector)
    assert saved["projector"].project(torch.ones(4, 3), 1).shape == (4, 2)
    assert str(saved["report"]).endswith("1 swapped, 0 unchanged")
    assert saved["bmm"] is BMM.BTC32
    assert type(saved["embedding"]) is BinaryEmbeddingParameter and saved["embedding"].active_indices.tolist() == [1]
    assert isinstance(saved["error"], bie.ShapeError) and str(saved["error"]) == "said"
