"""Folders of GPTQ hold the weights of their formula."""

import pytest
import torch
from weight_folders import generator, gptq, opened, sharded, write

from bie.formats import load_weights_folder


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


@pytest.mark.parametrize("zeros", [True, False])
def test_a_symmetric_file_may_lack_zeros(tmp_path, zeros):
    tensors, _ = gptq(64, 40, 4, 32)
    tensors["qzeros"] = torch.ops.bie.pack_words(torch.full((2, 40), 7, dtype=torch.int32), 4, 1)
    codes = torch.ops.bie.unpack_words(tensors["qweight"], 4, 64, 0)
    wanted = (codes - 8) * tensors["scales"].float()[tensors["g_idx"].long()]
    if not zeros:
        del tensors["qzeros"]
    tensors["g_idx"] = torch.empty(0, dtype=torch.int32)
    config = {"bits": 4, "group_size": 32, "sym": True}
    layer = load_weights_folder(write(tmp_path / "m", {"a": tensors}, quantize_config=config))["a"].linear()
    assert torch.equal(opened(layer), wanted)


@pytest.mark.parametrize(("there", "wanted", "problem"), [
    (None, True, "missing a.bias"),
    ("zeros", True, ""),
    ("zeros", False, ""),
    ("numbers", False, "unexpected a.bias"),
    ("numbers", True, ""),
])  # fmt: skip
def test_a_bias_that_one_side_lacks_is_named(tmp_path, there, wanted, problem):
    tensors = gptq(64, 32, 4, 32)[0]
    if there:
        tensors["bias"] = torch.zeros(32) if there == "zeros" else torch.arange(32.0)
    model = torch.nn.Sequential()
    model.a = torch.nn.Linear(64, 32, bias=wanted)
    if wanted:
        torch.nn.init.constant_(model.a.bias, 7)
    folder = load_weights_folder(write(tmp_path / "m", {"a": tensors}))
    if problem:
        with pytest.raises(RuntimeError, match=problem):
            folder.load_into(model)
        assert not wanted or model.a.bias[0].item() == 7, "nothing changed"
        return
    folder.load_into(model)
    assert torch.equal(model(torch.zeros(1, 64))[0], torch.arange(32.0) if there == "numbers" else torch.zeros(32))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_every_dtype_are_listed(tmp_path, dtype):
    odd = torch.arange(6).view(2, 3).to(getattr(torch, dtype))
    folder = load_weights_folder(write(tmp_path / "m", {"a": gptq(64, 32, 4, 32)[0]}, rest={"odd": odd}))
    found = folder.tensors["odd"]
    assert found.dtype == odd.dtype and torch.equal(found.view(torch.uint8), odd.view(torch.uint8))


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
