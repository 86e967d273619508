"""Folders that are not read, and what is said of them."""

import pytest
import torch
from safetensors.torch import save_file
from weight_folders import gptq, sharded, write

from bie.formats import load_weights_folder


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"x": "../model.safetensors"},
            'tensor "x": expected the name of a safetensors file, got "../model.safetensors"',
        ),
        (
            {"x": "model.safetensors.index.json"},
            'tensor "x": expected the name of a safetensors file, got "model.safetensors.index.json"',
        ),
        ({"x": 3}, 'tensor "x": expected the name of a safetensors file, got 3'),
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
        ({"bias": torch.zeros(31).half()}, 'tensor "a.bias": expected [32], got [31]'),
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
