"""Whole models: preparing, packing, saving and loading."""

import copy
import os
import stat

import pytest
import torch
from torch import nn

from bie import load_checkpoint, pack, packed_state_dict, prepare, save_checkpoint
from bie.nn import BinaryLinear, PlainBinaryLinear, Q4Conv2d, Q4Linear, Q8Linear
from bie.weights.parameters import SignsParameter
from bitorch_engine.layers.qlinear.binary.cuda import BinaryLinearCuda
from bitorch_engine.layers.qlinear.binary.layer import BinaryLinearParameter
from bitorch_engine.layers.qlinear.nbit import MPQLinearBase

KINDS = [BinaryLinear, BinaryLinearCuda, PlainBinaryLinear, Q8Linear, Q4Linear]


class Net(nn.Module):
    """Every kind of layer, one of them under two names."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(10, 32)
        self.blocks = nn.Sequential(
            BinaryLinearCuda(32, 32), nn.BatchNorm1d(32), Q8Linear(32, 32), nn.PReLU(), Q4Linear(32, 32)
        )
        self.again = BinaryLinear(32, 32)
        self.alias = self.again
        self.cpp = PlainBinaryLinear(32, 16)
        self.conv = Q4Conv2d(1, 2, 3, padding=1)

    def forward(self, x):
        x = self.alias(self.again(self.blocks(self.first(x))))
        return self.conv(self.cpp(x).view(-1, 1, 4, 4))


def trained(seed=0):
    """(net, a batch) after a few steps, so that scales and weights are not what they start as."""
    net = Net(seed)
    prepare(net)
    x = torch.randn(6, 10)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    net.eval()
    return net, x


def snapshot(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


@pytest.mark.parametrize("cls", KINDS)
def test_the_root_is_included(cls):
    layer = cls(16, 8)
    prepare(layer)
    integer = cls in (BinaryLinear, BinaryLinearCuda)
    assert (layer.weight.dtype == torch.int8) == integer
    pack(layer)
    assert layer.weight is None and layer.qweight is not None


def test_prepare_reaches_every_layer_once():
    net = Net()
    prepare(net)
    assert type(net.blocks[0].weight) is BinaryLinearParameter and type(net.again.weight) is SignsParameter
    scale = 2 * net.blocks[4].weight.detach().abs().double().mean() / 5.6345
    assert torch.allclose(net.blocks[4].scale_w.double(), scale, rtol=1e-6)
    before = snapshot(net)
    prepare(net)
    assert same(before, snapshot(net))


def test_layers_can_be_chosen():
    net = Net()
    prepare(net, [BinaryLinearCuda])
    assert net.blocks[0].weight.dtype == torch.int8 and net.again.weight.dtype == torch.float32
    pack(net, True, [Q8Linear])
    assert net.blocks[2].weight is None and net.blocks[4].weight is not None


def test_pack_beside_the_weight():
    net, x = trained()
    wanted = net(x)
    pack(net, qweight_only=False)
    assert net.again.weight is not None and net.again.qweight is not None
    assert torch.equal(net(x), wanted)
    pack(net)
    assert all(
        key.rpartition(".")[2] != "weight" for key in net.state_dict() if key.startswith(("again", "cpp", "conv"))
    )
    assert torch.equal(net(x), wanted)


def test_weight_only_layers_are_prepared_and_not_packed():
    model = nn.Sequential(MPQLinearBase(32, 8))
    prepare(model)
    assert "qstatistic" not in model[0]._buffers
    pack(model)
    assert model[0].qweight is not None


@pytest.mark.parametrize("only", [True, False])
def test_a_file_gives_the_same_outputs_and_leaves_the_model_alone(tmp_path, only):
    net, x = trained()
    wanted, before = net(x), snapshot(net)
    weight = net.again.weight
    save_checkpoint(net, str(tmp_path / "net.pth"), qweight_only=only)
    assert same(before, snapshot(net)) and net.again.weight is weight and net.again.qweight is None
    other = Net(seed=9).eval()
    assert not torch.equal(other.first.weight, net.first.weight)
    load_checkpoint(other, tmp_path / "net.pth", qweight_only=only)
    assert torch.equal(other(x), wanted)
    assert other.alias is other.again and (other.again.weight is None) == only
    net.train()
    net(x).sum().backward()  # the saved model still trains


def test_the_file_is_what_torch_save_writes(tmp_path):
    net, _ = trained()
    save_checkpoint(net, tmp_path / "net.pth")
    file = torch.load(tmp_path / "net.pth", weights_only=True)
    assert set(file) == {"state_dict"}
    state = file["state_dict"]
    assert set(state) == set(packed_state_dict(net))
    packed = [key for key in state if key.endswith("qweight")]
    assert len(packed) == 7 and not [
        key.replace("qweight", "weight") for key in packed if key.replace("qw", "w") in state
    ]
    assert state["again.qweight"].data_ptr() == state["alias.qweight"].data_ptr()  # written once
    assert state["blocks.0.qweight"].dtype == torch.uint8 and state["blocks.4.qweight"].shape == (32, 16)
    assert all(type(value) is torch.Tensor for value in state.values())


def test_a_file_with_both_weights(tmp_path):
    net, x = trained()
    save_checkpoint(net, tmp_path / "both.pth", qweight_only=False)
    state = torch.load(tmp_path / "both.pth", weights_only=True)["state_dict"]
    assert {"again.weight", "again.qweight"} <= set(state)
    packed = Net(1).eval()
    load_checkpoint(packed, tmp_path / "both.pth")
    assert packed.again.weight is None and torch.equal(packed(x), net(x))


def test_a_plain_float_file_loads(tmp_path):
    net, x = trained()
    torch.save({"state_dict": net.state_dict()}, tmp_path / "float.pth")
    other = Net(4).eval()
    load_checkpoint(other, tmp_path / "float.pth")
    assert torch.equal(other(x), net(x)) and other.cpp.weight is not None


def test_the_root_layer_has_keys_without_a_prefix(tmp_path):
    layer = BinaryLinearCuda(128, 8).eval()
    x = torch.randn(3, 128)
    layer.scale_a.data.fill_(0.5)
    save_checkpoint(layer, tmp_path / "layer.pth")
    assert "qweight" in torch.load(tmp_path / "layer.pth", weights_only=True)["state_dict"]
    other = BinaryLinearCuda(128, 8).eval()
    load_checkpoint(other, tmp_path / "layer.pth")
    assert torch.equal(other(x), layer(x))


def damaged(tmp_path, change):
    net, _ = trained()
    save_checkpoint(net, tmp_path / "bad.pth")
    file = torch.load(tmp_path / "bad.pth", weights_only=True)
    change(file["state_dict"])
    torch.save(file, tmp_path / "bad.pth")
    return tmp_path / "bad.pth"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("again.qweight"), r"again\.weight"),
        (lambda state: state.pop("blocks.0.bias_a"), r"blocks\.0\.bias_a"),
        (lambda state: state.pop("first.weight"), r"first\.weight"),
        (lambda state: state.update({"more.weight": torch.ones(2)}), r"more\.weight"),
        (lambda state: state.update({"cpp.bias_a": torch.ones(32)}), r"cpp\.bias_a"),
        (lambda state: state.update({"blocks.2.qweight": torch.ones(32, 31, dtype=torch.int8)}), r"blocks\.2\.qweight"),
        (
            lambda state: state.update({"blocks.2.qweight": torch.ones(32, 32, dtype=torch.int16)}),
            r"blocks\.2\.qweight",
        ),
        (lambda state: state.update({"again.bias_a": torch.ones(31)}), r"again\.bias_a"),
        (lambda state: state.update({"first.weight": torch.ones(3, 3)}), r"first\.weight"),
        (lambda state: state.update({"blocks.4.scale_w": torch.tensor(float("nan"))}), r"blocks\.4\.scale_w"),
    ],
)
def test_every_mismatch_is_named(tmp_path, change, words):
    with pytest.raises(RuntimeError, match=words):
        load_checkpoint(Net(), damaged(tmp_path, change))


def test_files_that_are_no_checkpoint(tmp_path):
    torch.save({"weights": {}}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="holds no 'state_dict'"):
        load_checkpoint(Net(), tmp_path / "other.pth")
    torch.save(torch.ones(3), tmp_path / "tensor.pth")
    with pytest.raises(ValueError, match="holds no 'state_dict'"):
        load_checkpoint(Net(), tmp_path / "tensor.pth")
    with pytest.raises(FileNotFoundError):
        load_checkpoint(Net(), tmp_path / "absent.pth")
    torch.save({"state_dict": {"first.weight": os.getcwd}}, tmp_path / "code.pth")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        load_checkpoint(Net(), tmp_path / "code.pth")


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    net, _ = trained()
    path = tmp_path / "net.pth"
    save_checkpoint(net, path)
    before = path.read_bytes()

    def half(_, file):
        file.write(b"PK half")
        raise OSError("the disk is full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="the disk is full"):
        save_checkpoint(net, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["net.pth"]


def test_the_file_keeps_its_mode_and_its_link(tmp_path):
    net, _ = trained()
    path, link = tmp_path / "real.pth", tmp_path / "link.pth"
    save_checkpoint(net, path)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    link.symlink_to(path)
    save_checkpoint(net, link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(IsADirectoryError):
        save_checkpoint(net, tmp_path)
    with pytest.raises(FileNotFoundError):
        save_checkpoint(net, tmp_path / "no" / "folder.pth")


def test_half_trained_models_round_trip_in_training_form(tmp_path):
    net, x = trained()
    save_checkpoint(net, tmp_path / "net.pth", qweight_only=False)
    other = Net(3)
    load_checkpoint(other, tmp_path / "net.pth", qweight_only=False)
    before, after = snapshot(net), snapshot(other)
    scale = after.pop("blocks.2.scale_w")  # of the packed weight: training computes it anew and leaves the buffer at 1
    assert torch.allclose(scale, 2 * net.blocks[2].weight.abs().mean() / 11.269) and before.pop("blocks.2.scale_w") == 1
    assert same(before, {name: after[name] for name in before})
    other.train()(x).sum().backward()
    assert other.again.weight.grad is not None


def test_weight_only_layers_in_files(tmp_path):
    model = nn.Sequential(MPQLinearBase(32, 8))
    model[0].qweight.copy_(torch.randint(-9, 9, (4, 8)).int())
    save_checkpoint(model, tmp_path / "mpq.pth")
    other = nn.Sequential(MPQLinearBase(32, 8))
    load_checkpoint(other, tmp_path / "mpq.pth")
    assert same(model.state_dict(), other.state_dict())


def test_what_is_packed_for_a_file_is_its_own():
    net, x = trained()
    wanted = net(x)
    state = packed_state_dict(net)
    for name in ("blocks.0", "blocks.2", "blocks.4", "again", "cpp", "conv"):
        state[f"{name}.qweight"].zero_()
    assert torch.equal(net(x), wanted) and torch.equal(copy.deepcopy(net)(x), wanted)
