"""State dicts that earlier versions saved load and compute what they computed.

tests/stored/layers.pt.gz was written by `write` of this file at commit 3d48733, on an AMD EPYC: the packed state of a
layer of each kind with an input and its output. A kind that is added gets a file of its own; this one stays.
"""

import gzip
import io
import sys
from pathlib import Path

import pytest
import torch

import bie
from bitorch_engine.layers.qconv.binary.cutlass import BinaryConv2dCutlass
from bitorch_engine.layers.qconv.nbit.cutlass import Q4Conv2dCutlass
from bitorch_engine.layers.qlinear.binary.cpp import BinaryLinearCPP
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.cutlass import BinaryLinearCutlass
from bitorch_engine.layers.qlinear.nbit.cutlass import Q4LinearCutlass, Q8LinearCutlass

PATH = Path(__file__).resolve().parents[1] / "stored/layers.pt.gz"
LINEAR, IMAGE = (5, 24), (2, 6, 5, 7)
KINDS = {
    "BinaryLinear": (lambda: bie.nn.BinaryLinear(24, 7), LINEAR),
    "Q8Linear": (lambda: bie.nn.Q8Linear(24, 7, bias=True), LINEAR),
    "Q4Linear": (lambda: bie.nn.Q4Linear(24, 7), LINEAR),
    "Q8Linear, channel_scale": (lambda: bie.nn.Q8Linear(24, 7, channel_scale=True), LINEAR),
    "Q4Linear, odd": (lambda: bie.nn.Q4Linear(23, 7), (5, 23)),
    "BinaryConv2d": (lambda: bie.nn.BinaryConv2d(6, 4, 3, padding=1), IMAGE),
    "Q8Conv2d": (lambda: bie.nn.Q8Conv2d(6, 4, 3, padding=1, groups=2), IMAGE),
    "Q4Conv2d": (lambda: bie.nn.Q4Conv2d(6, 4, 3, stride=2), IMAGE),
    "PlainBinaryLinear": (lambda: bie.nn.PlainBinaryLinear(24, 7), LINEAR),
    "PlainBinaryConv2d": (lambda: bie.nn.PlainBinaryConv2d(6, 4, 3), IMAGE),
    "BinaryLinearCutlass": (lambda: BinaryLinearCutlass(24, 7), LINEAR),
    "BinaryLinearCuda, btc": (lambda: BinaryLinearCuda(128, 8), (5, 128)),
    "BinaryLinearCuda, bstc": (lambda: BinaryLinearCuda(32, 32), (5, 32)),
    "BinaryLinearCPP": (lambda: BinaryLinearCPP(24, 8), LINEAR),
    "Q8LinearCutlass": (lambda: Q8LinearCutlass(24, 8), LINEAR),
    "Q4LinearCutlass": (lambda: Q4LinearCutlass(24, 8), LINEAR),
    "BinaryConv2dCutlass": (lambda: BinaryConv2dCutlass(8, 4, 3), (2, 8, 5, 7)),
    "Q4Conv2dCutlass": (lambda: Q4Conv2dCutlass(6, 4, 3), IMAGE),
}


def write() -> None:
    torch.manual_seed(0)
    record = {}
    for name, (make, shape) in KINDS.items():
        layer, x = make(), torch.randn(shape)
        layer(x)  # the first batch sets the step size
        layer.eval()
        record[name] = {"state": bie.packed_state_dict(layer), "x": x, "y": layer(x).detach()}
    buffer = io.BytesIO()
    torch.save(record, buffer)
    PATH.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


@pytest.fixture(scope="module")
def record():
    return torch.load(io.BytesIO(gzip.decompress(PATH.read_bytes())), weights_only=True)


@pytest.mark.filterwarnings("ignore:.*computes no convolution")
@pytest.mark.parametrize("name", KINDS)
def test_a_state_computes_what_it_computed(record, name):
    torch.manual_seed(1)
    layer = KINDS[name][0]().eval()
    layer.load_state_dict(record[name]["state"])
    # Integers, and floats made of them in a fixed order: to the bit on every machine.
    assert torch.equal(layer(record[name]["x"]), record[name]["y"])


def test_every_kind_is_there(record):
    assert record.keys() == KINDS.keys()


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    write()
