"""A model takes a folder, or is left alone."""

import pytest
import torch
from torch import nn
from weight_folders import gptq, write

import bie
from bie.formats import load_weights_folder


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 64)
        self.up, self.down = nn.Linear(64, 96, bias=True), nn.Linear(96, 64, bias=False)
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.down(self.up(self.embed(ids)).relu())))


def net_folder(tmp_path):
    net = Net()
    up, up_weight = gptq(64, 96, 4, 32, bias=True)
    down, down_weight = gptq(96, 64, 8, 32, 1)
    rest = {key: value for key, value in net.state_dict().items() if key.partition(".")[0] not in ("up", "down")}
    with torch.no_grad():
        net.up.weight.copy_(up_weight.t())
        net.up.bias.copy_(up["bias"])
        net.down.weight.copy_(down_weight.t())
    path = write(tmp_path / "m", {"up": up, "down": down}, quantize_config={"bits": 4, "group_size": 32}, rest=rest)
    return net, load_weights_folder(path)


@torch.no_grad()
def test_a_model_takes_a_folder(tmp_path):
    net, folder = net_folder(tmp_path)
    with torch.device("meta"):
        empty = Net()
    folder.load_into(empty)
    assert isinstance(empty.up, bie.nn.MPQLinear)
    ids = torch.arange(10)
    assert torch.allclose(empty.eval()(ids), net.eval()(ids), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_a_model_takes_a_folder_with_int8_activations(tmp_path):
    net, folder = net_folder(tmp_path)
    model = Net()
    folder.load_into(model, activation="int8")
    assert (model.up.activation, model.down.activation) == ("int8", "int8")
    assert folder["up"].linear(activation="int8").activation == "int8"
    ids = torch.arange(10)
    y, wanted = model.eval()(ids), net.eval()(ids)
    assert (y - wanted).norm() < 0.03 * wanted.norm()


def test_an_entry_that_no_layer_knows_stays_with_the_others(tmp_path):
    tensors = gptq(64, 32, 4, 32)[0] | {"wf": torch.zeros(1, 8).int(), "extra": torch.ones(2)}
    folder = load_weights_folder(write(tmp_path / "m", {"a": tensors}))
    assert list(folder.tensors) == ["a.extra"]


def test_a_model_that_does_not_fit_is_left_alone(tmp_path):
    _, folder = net_folder(tmp_path)
    net = Net()
    before = {key: value.clone() for key, value in net.state_dict().items()}

    def unchanged():
        state = net.state_dict()
        return list(state) == list(before) and all(torch.equal(state[key], before[key]) for key in before)

    folder.tensors["extra"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match="unexpected extra"):
        folder.load_into(net)
    del folder.tensors["extra"]
    missing = folder.tensors.pop("norm.bias")
    with pytest.raises(RuntimeError, match=r"missing norm\.bias"):
        folder.load_into(net)
    folder.tensors["norm.bias"] = missing[:5]
    with pytest.raises(RuntimeError, match=r"norm\.bias: expected \[64\], got \[5\]"):
        folder.load_into(net)
    assert unchanged()
    net.up = nn.Linear(64, 95)
    with pytest.raises(bie.ShapeError, match="does not fit"):
        folder.load_into(net)
    del net.up
    with pytest.raises(ValueError, match="has the linear 'up', the model has none"):
        folder.load_into(net)
    with pytest.raises(KeyError, match="no weight-only layer 'x'"):
        folder["x"]


@torch.no_grad()
def test_a_parameter_under_two_names_is_in_the_file_under_one(tmp_path):
    class Tied(Net):
        def __init__(self):
            super().__init__()
            self.head.weight = self.embed.weight

    _, folder = net_folder(tmp_path)
    del folder.tensors["head.weight"]
    with torch.device("meta"):
        model = Tied()
    folder.load_into(model)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.embed.weight, folder.tensors["embed.weight"])
    assert model(torch.arange(3)).shape == (3, 10)
    with pytest.raises(RuntimeError, match=r"missing head\.weight"):
        folder.load_into(Net())
