"""Models of weight-only layers written as safetensors: ours, and GPTQ's as other readers unpack them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import bie
from bie.formats import load_weights_folder, save_gptq, save_weights


def generator(seed):
    return torch.Generator().manual_seed(seed)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 70, padding_idx=3)
        self.layers = nn.ModuleList([nn.Linear(70, 96, bias=True), nn.Linear(96, 70, bias=False)])
        self.norm, self.head = nn.LayerNorm(70), nn.Linear(70, 12, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(self.norm(x + self.layers[1](self.layers[0](x).relu())))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, -1])
def test_a_converted_model_comes_back_to_the_bit(bits, group, tmp_path):
    torch.manual_seed(bits)
    model = bie.convert(Net(), f"w{bits}", inplace=False, group_size=group).model.eval()
    path = tmp_path / "model.safetensors"
    save_weights(path, model)
    folder = load_weights_folder(path)
    assert {layer.kind for layer in folder.layers.values()} == {"gba", "embedding"}
    assert {layer.bits for layer in folder.layers.values()} == {bits}
    again = Net().eval()
    folder.load_into(again)
    ids = torch.arange(12)
    assert torch.equal(again(ids), model(ids))
    assert again.embed.padding_idx == 3


@pytest.mark.parametrize("bits", [3, 5, 6])
def test_widths_that_gguf_brings_come_back(bits, tmp_path):
    layer = bie.nn.MPQLinear(70, 9, w_bit=bits, group_size=16, dtype=torch.float32)
    layer.set_weight_data(torch.randn(9, 70, generator=generator(bits)))
    save_weights(tmp_path / "a.safetensors", nn.ModuleDict({"a": layer}))
    loaded = load_weights_folder(tmp_path / "a.safetensors")["a"].linear()
    x = torch.randn(2, 70, generator=generator(1))
    assert loaded.w_bit == bits
    assert torch.equal(loaded(x), layer.eval()(x))


def test_the_file_is_one_that_safetensors_reads(tmp_path):
    model = bie.convert(Net(), "w4", inplace=False).model
    save_weights(tmp_path / "a.safetensors", model)
    found = load_file(tmp_path / "a.safetensors")
    state = model.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], state[key]) for key in state)
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        own = json.loads(file.metadata()["bie"])
    assert (own["kind"], own["format_version"]) == ("weights", 1)
    assert own["layers"]["layers.0"] == {"bits": 4, "group_size": 32}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda own: own | {"format_version": 2}, "has format_version 2, this bie reads up to 1"),
        (lambda own: own | {"format_version": "x"}, 'has format_version "x"'),
        (lambda own: own | {"layers": {"embed": {"bits": 4}}}, 'has no bits and group_size of "embed"'),
        (
            lambda own: own | {"layers": {"embed": own["layers"]["embed"] | {"embedding_dim": 2**40}}},
            "no embedding_dim",
        ),
        (
            lambda own: own | {"layers": {"embed": own["layers"]["embed"] | {"embedding_dim": 100}}},
            "no table of 4 bits",
        ),
    ],
)
def test_metadata_that_do_not_fit_are_sentences(change, words, tmp_path):
    path = tmp_path / "a.safetensors"
    save_weights(path, bie.convert(Net(), "w4", inplace=False).model)
    with safe_open(path, framework="pt") as file:
        own = json.loads(file.metadata()["bie"])
    tensors = load_file(path)
    torch.ops.bie.safetensors_write(str(path), list(tensors), list(tensors.values()), json.dumps(change(own)))
    with pytest.raises(ValueError) as refused:
        load_weights_folder(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


# GPTQ, unpacked as AutoGPTQ's QuantLinear does it.


def unpacked(words, bits, count):
    """Codes along the first axis, the first in the lowest bits."""
    stream = (words.numpy().view(np.uint32)[:, None, :] >> np.arange(32, dtype=np.uint32)[None, :, None]) & 1
    stream = stream.reshape(-1, words.size(1))[: count * bits].reshape(count, bits, -1)
    return torch.from_numpy((stream << np.arange(bits)[None, :, None]).sum(1).astype(np.int64))


def opened(tensors, name, bits):
    k, n = tensors[f"{name}.g_idx"].numel(), tensors[f"{name}.scales"].size(1)
    g = tensors[f"{name}.g_idx"].long()
    codes = unpacked(tensors[f"{name}.qweight"], bits, k)
    zeros = unpacked(tensors[f"{name}.qzeros"].t().contiguous(), bits, n).t() + 1
    return tensors[f"{name}.scales"].float()[g] * (codes - zeros[g]).float()


def gptq_layer(bits, k=64, n=32, group=32, asym=True, seed=0):
    layer = bie.nn.MPQLinear(k, n, w_bit=bits, group_size=group, use_gba_quant=not asym, disable_bias=bits != 4)
    layer.set_weight_data(torch.randn(n, k, generator=generator(seed)))
    return layer


def weight_of(layer):
    weight = layer._coded()
    options = weight.options | {"in_features": layer.in_channels, "dtype": torch.float32}
    return torch.ops.bie.weight_only_open(*weight.tensors, **options)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_other_readers_unpack_the_weight(bits, tmp_path):
    layer, ordered = gptq_layer(bits), gptq_layer(bits, seed=1)
    ordered.g_idx.copy_(ordered.g_idx[torch.randperm(64, generator=generator(5))])
    other = gptq_layer(8 if bits != 8 else 4, group=64, seed=2)
    model = nn.ModuleDict({"a": layer, "b": ordered, "c": nn.ModuleDict({"x": other}), "norm": nn.LayerNorm(64)})
    save_gptq(tmp_path / "m", model)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["model.safetensors", "quantize_config.json"]
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    assert torch.equal(opened(tensors, "a", bits), weight_of(layer))
    assert torch.equal(opened(tensors, "b", bits), weight_of(ordered))
    assert torch.equal(opened(tensors, "c.x", other.w_bit), weight_of(other))
    assert torch.equal(tensors["norm.weight"], model["norm"].weight)
    config = json.loads((tmp_path / "m" / "quantize_config.json").read_text())
    assert (config["bits"], config["group_size"], config["desc_act"], config["checkpoint_format"]) == (
        bits,
        32,
        True,
        "gptq",
    )
    assert config["dynamic"] == {"+:c\\.x$": {"bits": other.w_bit, "group_size": 64}}
    folder = load_weights_folder(tmp_path / "m")
    x = torch.randn(2, 64, generator=generator(6))
    for name, source in (("a", layer), ("b", ordered), ("c.x", other)):
        assert torch.equal(folder[name].linear()(x), source.eval()(x))


def test_a_bias_that_is_trained_is_written(tmp_path):
    model = nn.Sequential(nn.Linear(64, 32))
    bie.convert(model, "w4", group_size=32, dtype=torch.float16, use_gba_quant=False)
    assert isinstance(model[0].bias, nn.Parameter)
    save_gptq(tmp_path / "m", model)
    assert torch.equal(load_file(tmp_path / "m" / "model.safetensors")["0.bias"], model[0].bias)


def test_float_zeros_are_written_where_they_are_whole_multiples(tmp_path):
    layer = gptq_layer(4, asym=False)
    with pytest.raises(
        ValueError, match=r"layer 'a' has zeros that are no whole multiples of its scales, from 1 to 16"
    ):
        save_gptq(tmp_path / "m", nn.ModuleDict({"a": layer}))
    layer.zeros.copy_(layer.scales * 8)
    save_gptq(tmp_path / "m", nn.ModuleDict({"a": layer}))
    assert torch.equal(opened(load_file(tmp_path / "m" / "model.safetensors"), "a", 4), weight_of(layer))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: nn.ModuleDict({"a": gptq_layer(1)}), "layer 'a' has 1 bits"),
        (lambda: nn.ModuleDict({"a": bie.nn.WeightOnlyEmbedding(4, 32)}), "layer 'a' is a WeightOnlyEmbedding"),
        (lambda: nn.ModuleDict({"a": nn.Linear(2, 2)}), "has no MPQLinear"),
    ],
)
def test_what_gptq_does_not_have_is_a_sentence_and_no_file(model, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        save_gptq(tmp_path / "m", model())
    assert list(tmp_path.iterdir()) == []


def test_scales_that_sixteen_bits_do_not_hold_are_refused(tmp_path):
    layer = bie.nn.MPQLinear(64, 32, w_bit=4, group_size=32, use_gba_quant=False, dtype=torch.float32)
    layer.set_weight_data(torch.randn(32, 64, generator=generator(0)))
    with pytest.raises(ValueError, match="they would be rounded"):
        save_gptq(tmp_path / "m", nn.ModuleDict({"a": layer}))


def test_a_stored_file_computes_what_it_computed():
    """tests/stored/weights_1.safetensors: layers of several widths and a table, an input and the outputs."""
    folder = load_weights_folder(Path(__file__).resolve().parents[1] / "stored/weights_1.safetensors")
    assert {name: layer.bits for name, layer in folder.layers.items()} == {"w1": 1, "w3": 3, "w4": 4, "w8": 8} | {
        "gptq": 4,
        "table": 4,
    }
    for name, layer in folder.layers.items():
        if name != "table":
            assert torch.equal(layer.linear()(folder.tensors["x"]), folder.tensors[f"y_{name}"]), name
    assert torch.equal(folder["table"].embedding()(torch.arange(5)), folder.tensors["rows"])


def test_the_refusal_of_float32_scales_names_the_cure(tmp_path):
    model = bie.convert(torch.nn.Sequential(torch.nn.Linear(64, 32)), "w4").model
    with pytest.raises(ValueError, match=r"no 16-bit floats.*dtype=torch\.float16"):
        bie.formats.save_gptq(tmp_path, model)
    cured = bie.convert(nn.Sequential(nn.Linear(64, 32)), "w4", dtype=torch.float16, use_gba_quant=False).model
    save_gptq(tmp_path, cured)
