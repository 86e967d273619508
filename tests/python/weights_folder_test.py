"""Folders of GPTQ and GreenBit, written by the safetensors package and packed here by their packages' rules."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import bie
from bie.formats import load_weights_folder


def generator(seed):
    return torch.Generator().manual_seed(seed)


def packed(codes, bits):
    """Codes [k, n] in words [ceil(k * bits / 32), n], the way of AutoGPTQ's ``QuantLinear.pack``: bit after bit."""
    k, n = codes.shape
    stream = ((codes.numpy().astype(np.uint8)[:, None, :] >> np.arange(bits)[None, :, None]) & 1).reshape(k * bits, n)
    stream = np.pad(stream, ((0, -len(stream) % 32), (0, 0))).reshape(-1, 32, n).astype(np.uint64)
    words = (stream << np.arange(32, dtype=np.uint64)[None, :, None]).sum(1).astype(np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


def gptq(k, n, bits, group, seed=0, *, version=1, act_order=False, index=True, bias=False, least_zero=1):
    """({key: tensor}, W [k, n] in float32)"""
    g = generator(seed)
    size = k if group == -1 else group
    groups = -(-k // size)
    codes = torch.randint(0, 2**bits, (k, n), generator=g)
    zeros = torch.randint(least_zero, 2**bits, (groups, n), generator=g)
    scales = (torch.rand(groups, n, generator=g) + 0.5).half()
    g_idx = torch.arange(k) // size
    if act_order:
        g_idx = g_idx[torch.randperm(k, generator=g)]
    stored = zeros - 1 if version == 1 else zeros
    tensors = {"qweight": packed(codes, bits), "qzeros": packed(stored.t(), bits).t().contiguous(), "scales": scales}
    if index:
        tensors["g_idx"] = g_idx.int()
    if bias:
        tensors["bias"] = torch.randn(n, generator=g).half()
    return tensors, scales.float()[g_idx] * (codes - zeros[g_idx]).float()


def opened(layer):
    weight = layer._coded()
    options = weight.options | {"in_features": layer.in_channels, "dtype": torch.float32}
    return torch.ops.bie.weight_only_open(*weight.tensors, **options)


def write(folder, layers, config=None, quantize_config=None, strategy=None, rest=None):
    tensors = {f"{name}.{key}": tensor for name, parts in layers.items() for key, tensor in parts.items()}
    folder.mkdir(exist_ok=True)
    save_file(tensors | (rest or {}), folder / "model.safetensors")
    texts = {"config.json": config, "quantize_config.json": quantize_config, "quant_strategy.json": strategy}
    for name, value in texts.items():
        if value is not None:
            (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("k", "n", "group"), [(128, 64, 32), (96, 33, -1), (72, 40, 32)])
@pytest.mark.parametrize("version", [1, 2])
def test_gptq_holds_the_weight_of_its_formula(bits, k, n, group, version, tmp_path):
    config = {"bits": bits, "group_size": group, "desc_act": False, "sym": False}
    config |= {"checkpoint_format": "gptq_v2"} if version == 2 else {}
    plain, wanted = gptq(k, n, bits, group, version=version, bias=True)
    ordered, wanted_ordered = gptq(k, n, bits, group, 1, version=version, act_order=True)
    folder = load_weights_folder(write(tmp_path / "m", {"a.b": plain, "c": ordered}, quantize_config=config))
    assert list(folder.layers) == ["a.b", "c"]
    layer = folder["a.b"].linear()
    assert folder["a.b"].kind == ("gptq" if version == 1 else "gptq2")
    assert (layer.w_bit, layer.group_size, layer.in_channels) == (bits, k if group == -1 else group, k)
    assert layer.scales.dtype == torch.float16
    assert torch.equal(opened(layer), wanted)
    assert torch.equal(opened(folder["c"].linear()), wanted_ordered)
    x = torch.randn(3, k, generator=generator(7))
    exact = x.double() @ wanted.double() + plain["bias"].double()
    assert torch.allclose(layer(x).double(), exact, rtol=1e-5, atol=1e-4 * float(exact.abs().max()))


def test_a_zero_of_nought_is_what_version_2_can_hold(tmp_path):
    tensors, wanted = gptq(64, 32, 4, 32, version=2, least_zero=0)
    assert (torch.ops.bie.unpack_words(tensors["qzeros"], 4, 32, 1) == 0).any()
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}}
    layer = load_weights_folder(write(tmp_path / "m", {"a": tensors}, config))["a"].linear()
    assert torch.equal(opened(layer), wanted)


def test_the_version_is_told_by_checkpoint_format_alone(tmp_path):
    tensors, first = gptq(64, 32, 4, 32)
    groups = tensors["g_idx"].long()
    for name, config in {
        "none": None,
        "v1": {"bits": 4, "checkpoint_format": "gptq"},
        "v2": {"bits": 4, "checkpoint_format": "gptq_v2"},
    }.items():
        layer = load_weights_folder(write(tmp_path / name, {"a": tensors}, quantize_config=config))["a"].linear()
        shift = tensors["scales"].float()[groups] if name == "v2" else 0
        assert torch.allclose(opened(layer), first + shift, rtol=0, atol=1e-6), name


def test_a_bias_wider_than_the_scales_is_not_rounded(tmp_path):
    tensors, wanted = gptq(64, 32, 4, 32)
    tensors["bias"] = torch.randn(32, generator=generator(4))
    layer = load_weights_folder(write(tmp_path / "m", {"a": tensors}))["a"].linear()
    assert torch.equal(layer(torch.zeros(1, 64))[0], tensors["bias"])
    assert torch.equal(opened(layer), wanted)
    half = load_weights_folder(tmp_path / "m")["a"].linear(torch.float16)
    assert half.bias.dtype == torch.float16


def test_dynamic_overrides_and_plain_layers(tmp_path):
    config = {
        **{"bits": 4, "group_size": 64, "quant_method": "gptq"},
        "dynamic": {
            "+:.*\\.up": {"bits": 8, "group_size": 32},
            ".*\\.odd": {"bits": 2, "group_size": 40},
            "-:head": {},
        },
    }
    layers = {
        "0.down": gptq(128, 64, 4, 64)[0],
        "0.up": gptq(64, 128, 8, 32)[0],
        "0.odd": gptq(96, 32, 2, 40, index=False)[0],  # 3 groups of 40, 40 and 16 rows
    }
    head = torch.randn(10, 64)
    path = write(tmp_path / "m", layers, {"quantization_config": config}, rest={"head.weight": head})
    folder = load_weights_folder(path)
    found = {name: (layer.bits, layer.group_size) for name, layer in folder.layers.items()}
    assert found == {"0.down": (4, 64), "0.up": (8, 32), "0.odd": (2, 40)}
    assert torch.equal(folder.tensors["head.weight"], head)
    assert torch.equal(opened(folder["0.odd"].linear()), gptq(96, 32, 2, 40)[1])


def sharded(folder, layers, **index):
    folder.mkdir()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    weight_map = {}
    for shard, (name, parts) in zip(names, layers.items(), strict=True):
        tensors = {f"{name}.{key}": tensor for key, tensor in parts.items()}
        save_file(tensors, folder / shard)
        weight_map |= dict.fromkeys(tensors, shard)
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map | index})
    (folder / "model.safetensors.index.json").write_text(text)
    return names


def test_shards_and_their_index(tmp_path):
    layers = {"a": gptq(64, 32, 4, 32)[0], "b": gptq(32, 64, 8, 32)[0]}
    names = sharded(tmp_path / "m", layers)
    folder = load_weights_folder(tmp_path / "m")
    assert list(folder.layers) == ["a", "b"]
    assert torch.equal(folder["b"].tensors["qweight"], layers["b"]["qweight"])
    (tmp_path / "m" / names[1]).unlink()
    with pytest.raises(ValueError, match=r"the shard \"model-00002.*\" of tensor \"b\.bias|\"b\.g_idx\" is missing"):
        load_weights_folder(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors.index.json").unlink()
    assert list(load_weights_folder(tmp_path / "m").layers) == ["a"]
    assert list(load_weights_folder(tmp_path / "m" / names[0]).layers) == ["a"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"x": "../model.safetensors"}, 'tensor "x" lies in "../model.safetensors"'),
        ({"x": "model.safetensors.index.json"}, 'tensor "x" lies in "model.safetensors.index.json"'),
        ({"x": 3}, 'tensor "x" lies in 3'),
        ({"x": "none.safetensors"}, 'the shard "none.safetensors" of tensor "x" is missing'),
        ({"x": "model-00001-of-00002.safetensors"}, 'the shard "model-00001-of-00002.safetensors" has no tensor "x"'),
    ],
)
def test_bad_entries_of_an_index(entry, words, tmp_path):
    sharded(tmp_path / "m", {"a": gptq(64, 32, 4, 32)[0], "b": gptq(32, 64, 8, 32)[0]}, **entry)
    with pytest.raises(ValueError) as refused:
        load_weights_folder(tmp_path / "m")
    assert words in str(refused.value)
    assert str(tmp_path / "m") in str(refused.value)


def test_bad_folders(tmp_path):
    def refusal(path):
        with pytest.raises(ValueError) as refused:
            load_weights_folder(path)
        return str(refused.value)

    assert "nothing is fetched" in refusal("GreenBitAI/Llama-3-8B-channel-mix")
    assert "has no safetensors file" in refusal(tmp_path)
    folder = write(tmp_path / "m", {"a": gptq(64, 32, 4, 32)[0]})
    for index in ("a", "b"):
        (folder / f"{index}.safetensors.index.json").write_text("{}")
    assert "has two indices, a.safetensors.index.json and b.safetensors.index.json" in refusal(folder)
    (folder / "b.safetensors.index.json").unlink()
    assert 'a.safetensors.index.json: has no object "weight_map"' in refusal(folder)
    (folder / "a.safetensors.index.json").write_text('{"weight_map": {"a": "b", "a": "c"}}')
    assert "is no JSON that can be read" in refusal(folder)
    (folder / "a.safetensors.index.json").write_text("[" * 100000)
    assert "is no JSON that can be read" in refusal(folder)
    (folder / "a.safetensors.index.json").unlink()
    save_file({"a.qweight": torch.zeros(1)}, folder / "second.safetensors")
    assert 'tensor "a.qweight" lies in' in refusal(folder)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"quant_method": "awq", "bits": 4}, "AWQ"),
        ({"quant_method": "exl2"}, "EXL2"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_method": "made-up"}, '"made-up"'),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, '"marlin"'),
        ({"bits": 4, "is_marlin_format": True}, "marlin"),
    ],
)
def test_other_methods_are_refused_by_name(config, name, tmp_path):
    layers = {"a": gptq(64, 32, 4, 32)[0]}
    for number, where in enumerate(({"config": {"quantization_config": config}}, {"quantize_config": config})):
        with pytest.raises(ValueError, match=f"{name}.* is not read") as refused:
            load_weights_folder(write(tmp_path / str(number), layers, **where))
        assert ("config.json" if number == 0 else "quantize_config.json") in str(refused.value)


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        ("q_scale_max", "EXL2"),
        ("weight_packed", "compressed-tensors"),
        ("weight.quant_state.bitsandbytes__nf4", "bitsandbytes"),
        ("weight.absmax", "bitsandbytes"),
    ],
)
def test_other_files_are_refused_by_what_they_hold(tensor, name, tmp_path):
    path = write(tmp_path / "m", {"l.0": {tensor: torch.zeros(2)}})
    with pytest.raises(ValueError, match=rf'model\.safetensors: tensor "l\.0\.{tensor}" is of .*{name}.*not read'):
        load_weights_folder(path)


def test_awq_without_a_configuration_is_told_by_its_shapes(tmp_path):
    tensors = {
        "qweight": torch.zeros(64, 4).int(),
        "qzeros": torch.zeros(2, 4).int(),
        "scales": torch.ones(2, 32).half(),
    }
    with pytest.raises(ValueError, match=r'tensor "a\.qweight" is \[64, 4\] .*AWQ packs outputs'):
        load_weights_folder(write(tmp_path / "m", {"a": tensors}))


def changed(tensors, **others):
    return {key: value for key, value in (tensors | others).items() if value is not None}


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"scales": torch.full((2, 32), float("nan")).half()}, 'tensor "a.scales" holds NaN or infinity'),
        ({"scales": torch.ones(2, 31).half()}, 'tensor "a.qweight" is [8, 32] and its scales [2, 31]'),
        ({"scales": torch.ones(2, 32).int()}, 'tensor "a.scales" is int32 [2, 32]'),
        ({"scales": None}, 'tensor "a.scales" is missing'),
        ({"qzeros": torch.zeros(2, 5).int()}, "no weight of 2, 3, 4 or 8 bits"),
        ({"qzeros": torch.zeros(2, 4)}, 'tensor "a.qzeros" is float32 [2, 4]'),
        ({"g_idx": torch.full((64,), 2).int()}, 'tensor "a.g_idx" holds groups outside [0, 1]'),
        ({"g_idx": torch.full((64,), -1).int()}, 'tensor "a.g_idx" holds groups outside [0, 1]'),
        ({"g_idx": torch.zeros(65).int()}, "no weight of 2, 3, 4 or 8 bits"),
        ({"g_idx": None}, 'tensor "a.g_idx" is missing, which act-order'),
        ({"qweight": torch.zeros(7, 32).int()}, "no weight of 2, 3, 4 or 8 bits"),
        ({"bias": torch.zeros(31).half()}, 'tensor "a.bias" is [31], [32] is wanted'),
    ],
)
def test_a_layer_that_does_not_fit_itself(others, words, tmp_path):
    tensors = changed(gptq(64, 32, 4, 32)[0], **others)
    path = write(tmp_path / "m", {"a": tensors}, quantize_config={"bits": 4, "group_size": 32, "desc_act": True})
    with pytest.raises(ValueError) as refused:
        load_weights_folder(path)
    assert words in str(refused.value)
    assert "model.safetensors" in str(refused.value) or str(path) in str(refused.value)


def test_two_configurations_that_contradict_each_other(tmp_path):
    layers = {"a": gptq(64, 32, 4, 32)[0]}
    path = write(tmp_path / "m", layers, {"quantization_config": {"bits": 4}}, {"bits": 8})
    with pytest.raises(ValueError, match=r"bits is 4 in config\.json and 8 in quantize_config\.json"):
        load_weights_folder(path)


# GreenBit.


def filled(layer, seed):
    g = generator(seed)
    for name, tensor in {"qweight": layer.qweight, **dict(layer.named_buffers())}.items():
        if name in ("g_idx", "wf", "q_groups"):
            continue
        if name == "bias" and layer.disable_bias:
            tensor.zero_()
        elif tensor.is_floating_point():
            tensor.data = (torch.rand(tensor.shape, generator=g) + 0.1).to(tensor.dtype)
        elif name == "q_perm":
            tensor.copy_(torch.randperm(tensor.numel(), generator=g))
        elif tensor.dtype == torch.uint8:
            tensor.copy_(torch.randint(0, 256, tensor.shape, generator=g))
        else:
            tensor.data = torch.randint(-(2**31), 2**31, tensor.shape, generator=g).int()
    return layer


def as_loaded(layer, tmp_path, **texts):
    """The layer that its state dict makes as a file, and what was told of it."""
    state = {key: value.detach().clone() for key, value in layer.state_dict().items()}
    told = load_weights_folder(write(tmp_path / "m", {"model.layers.0.mlp.up_proj": state}, **texts))
    (coded,) = told.layers.values()
    assert not told.tensors
    return coded.linear(), coded


def same_outputs(a, b):
    x = torch.randn(3, a.in_channels, generator=generator(9))
    return torch.equal(a.eval()(x), b(x))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("asym", [False, True])
@pytest.mark.parametrize(
    ("k", "n", "group", "dq", "mode"), [(96, 64, 32, 32, 2), (70, 40, 32, 16, 2), (96, 64, 32, 32, 1)]
)
def test_greenbit_legacy(bits, asym, k, n, group, dq, mode, tmp_path):
    if asym and mode == 1:
        dq = n
    options = {"w_bit": bits, "group_size": group, "dq_group_size": dq, "dq_mode": mode, "asym": asym}
    layer = filled(bie.nn.MPQLinear(k, n, disable_bias=False, **options), bits)
    loaded, coded = as_loaded(layer, tmp_path)
    assert (coded.kind, coded.bits, coded.group_size) == ("gba", bits, group)
    assert same_outputs(layer, loaded)


def test_greenbit_legacy_with_wide_groups_and_prepared(tmp_path):
    layer = filled(bie.nn.MPQLinear(512, 64, w_bit=4, group_size=256, dq_group_size=32), 1)
    loaded, coded = as_loaded(layer, tmp_path)
    assert coded.group_size == 256
    assert same_outputs(layer, loaded)
    layer = filled(bie.nn.MPQLinear(96, 64, w_bit=4, group_size=32, dq_group_size=32), 2)
    layer.prepare_params()
    loaded, _ = as_loaded(layer, tmp_path)
    assert same_outputs(layer, loaded)


@pytest.mark.parametrize("bits", [2, 4])
def test_greenbit_layer_mix(bits, tmp_path):
    layer = filled(bie.nn.MBWQLinear(96, 40, w_bit=bits, group_size=32, use_mbw=False), bits)
    loaded, coded = as_loaded(layer, tmp_path)
    assert (coded.kind, coded.bits, coded.group_size, type(loaded)) == ("mbwq", bits, 32, bie.nn.MBWQLinear)
    assert same_outputs(layer, loaded)


def strategy(bits=(4, 2), shares=(0.75, 0.25), groups=(32, 32)):
    entry = {
        "bits": list(bits),
        "bits_prop": list(shares),
        "group_size": {str(b): g for b, g in zip(bits, groups, strict=True)},
    }
    return {"measurement": {"model.layers.0": {"up_proj": entry | {"scale_bits": 4}}}}


def channel_mix(rows=((4, 96), (2, 32)), n=24):
    """Rows of falling widths in groups of 32."""
    first, pairs = 0, []
    for width, count in rows:
        for _ in range(count // 32):
            pairs += [width, first]
            first += width
    k = sum(count for _, count in rows)
    layer = bie.nn.MBWQLinear(k, n, use_mbw=True, groups=len(pairs) // 2, rows_packed=first)
    layer.q_groups.copy_(torch.tensor(pairs, dtype=torch.int16))
    return filled(layer, 5)


def test_greenbit_channel_mix(tmp_path):
    layer = channel_mix()
    loaded, coded = as_loaded(layer, tmp_path, strategy=strategy())
    assert (coded.kind, coded.bits) == ("mixed", 0)
    assert same_outputs(layer, loaded)


def test_mixed_rows_of_every_width_without_a_strategy(tmp_path):
    layer = channel_mix(((8, 32), (6, 32), (5, 64), (4, 32), (3, 32), (2, 64)))
    loaded, coded = as_loaded(layer, tmp_path)
    assert (coded.kind, coded.in_features) == ("mixed", 256)
    assert same_outputs(layer, loaded)


def test_a_strategy_that_the_file_does_not_follow(tmp_path):
    with pytest.raises(ValueError, match=r"has 4 groups in 14 rows of words, quant_strategy\.json makes 4 in 12"):
        as_loaded(channel_mix(), tmp_path, strategy=strategy(shares=(0.5, 0.5)))
    with pytest.raises(ValueError, match=r'the entry "model\.layers\.0\.up_proj" has no bits_prop'):
        as_loaded(channel_mix(), tmp_path, strategy=strategy(shares=(0.5,)))
    with pytest.raises(ValueError, match=r'the entry "model\.layers\.0\.up_proj" has no group_size'):
        as_loaded(channel_mix(), tmp_path, strategy=strategy(groups=(32, 0)))


def test_the_width_of_words_without_an_index_is_the_strategys(tmp_path):
    layer = filled(bie.nn.MPQLinear(96, 64, w_bit=4, group_size=32, dq_group_size=32), 3)
    state = {key: value.detach().clone() for key, value in layer.state_dict().items() if key != "g_idx"}
    name = {"model.layers.0.mlp.up_proj": state}
    with pytest.raises(ValueError, match="neither g_idx nor a configuration says of how many bits"):
        load_weights_folder(write(tmp_path / "a", name))
    told = strategy(bits=(4,), shares=(1.0,), groups=(32,))
    (coded,) = load_weights_folder(write(tmp_path / "b", name, strategy=told)).layers.values()
    assert (coded.bits, coded.in_features) == (4, 96)
    assert same_outputs(layer, coded.linear())


@pytest.mark.parametrize(
    ("key", "tensor", "words"),
    [
        ("qstatistic", torch.zeros(3, 2, 31, dtype=torch.uint8), 'qstatistic" is [3, 2, 31], [3, 3, 31] is wanted'),
        ("qstatistic", torch.zeros(0, 2, 32, dtype=torch.uint8), 'qstatistic" is [0, 2, 32], which is empty'),
        ("qscales_scales", torch.ones(3, 3, 1), 'qscales_scales" is [3, 3, 1], [3, 2, 1] or [1, 64, 1] is wanted'),
        ("qzeros_zeros", torch.ones(3, 1, 1), 'qzeros_zeros" is [3, 1, 1], [3, 2, 1] is wanted'),
        ("g_idx", torch.full((96,), 3).int(), 'g_idx" holds groups outside [0, 2]'),
    ],
)
def test_greenbit_tables_that_do_not_fit(key, tensor, words, tmp_path):
    layer = filled(bie.nn.MPQLinear(96, 64, w_bit=4, group_size=32, dq_group_size=32), 3)
    state = {name: value.detach().clone() for name, value in layer.state_dict().items()} | {key: tensor}
    with pytest.raises(ValueError) as refused:
        load_weights_folder(write(tmp_path / "m", {"a": state}))
    assert words in str(refused.value)


def test_an_order_that_is_none_names_the_file_and_the_layer(tmp_path):
    layer = filled(bie.nn.MBWQLinear(96, 40, w_bit=4, group_size=32, use_mbw=False), 1)
    layer.q_perm[0] = layer.q_perm[1]
    state = {name: value.detach().clone() for name, value in layer.state_dict().items()}
    folder = load_weights_folder(write(tmp_path / "m", {"a.b": state}))
    with pytest.raises(ValueError, match=r"/m: layer 'a\.b': the entry 'q_perm' is not a permutation"):
        folder["a.b"].linear()


# A whole model.


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
    with pytest.raises(RuntimeError, match=r"norm\.bias is \[5\], \[64\] is wanted"):
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
