"""`bie inspect` on other people's files of weights: GGUF, folders of safetensors."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file


@pytest.fixture
def gguf_file(tmp_path):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b\x1b", "c"])
    writer.add_string("general.name", "a\x1b[31m name")
    writer.add_uint32("llama.block_count", 3)
    writer.add_bool("yes", True)
    blocks = gguf.quants.quantize(np.ones((3, 64), np.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("blk.0.w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("norm", np.ones(5, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_inspect_shows_every_tensor_of_a_gguf_file(program, gguf_file):
    document = program.json("inspect", gguf_file)
    assert document["kind"] == "GGUF file"
    assert document["metadata"]["tokenizer.ggml.tokens"] == {"length": 3, "type": "string"}
    assert document["metadata"]["llama.block_count"] == 3
    assert document["metadata"]["yes"] is True
    assert document["tensors"] == [
        {"name": "blk.0.w", "dtype": "Q4_0", "shape": [3, 64], "bytes": 3 * 2 * 18},
        {"name": "norm", "dtype": "F32", "shape": [5], "bytes": 20},
    ]
    text = program.run("inspect", gguf_file).stdout
    assert "\x1b" not in text
    assert "tokenizer.ggml.tokens: 3 of string" in text
    (line,) = (line for line in text.splitlines() if line.startswith("blk.0.w"))
    assert line.split() == ["blk.0.w", "Q4_0", "3x64", "108"]
    program.refused(program.run("inspect", gguf_file, "--data", "digits"), "no model of bie")


def test_a_broken_gguf_file_is_a_sentence(program, gguf_file):
    whole = gguf_file.read_bytes()
    gguf_file.write_bytes(whole[:-20])
    program.refused(program.run("inspect", gguf_file), str(gguf_file), 'tensor "norm"')
    gguf_file.write_bytes(whole[:8] + struct.pack("<QQ", 2**60, 0) + whole[24:])
    program.refused(program.run("inspect", gguf_file), str(gguf_file), "claims 1152921504606846976 tensors")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    layer = {
        "qweight": torch.zeros(8, 32, dtype=torch.int32),
        "qzeros": torch.zeros(2, 4, dtype=torch.int32),
        "scales": torch.ones(2, 32, dtype=torch.float16),
        "g_idx": (torch.arange(64) // 32).int(),
    }
    first = {f"a.{key}": tensor for key, tensor in layer.items()}
    second = {"head.weight": torch.zeros(4, 32)}
    save_file(first, path / "x-1.safetensors")
    save_file(second, path / "x-2.safetensors")
    shards = dict.fromkeys(first, "x-1.safetensors") | dict.fromkeys(second, "x-2.safetensors")
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    return path


def test_inspect_shows_every_tensor_of_a_folder(program, folder):
    document = program.json("inspect", folder)
    assert document["kind"] == "folder of weights"
    assert document["layers"] == [
        {"name": "a", "kind": "GPTQ", "bits": 4, "group_size": 32, "in_features": 64, "out_features": 32}
    ]
    tensors = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert list(tensors) == ["a.g_idx", "a.qweight", "a.qzeros", "a.scales", "head.weight"]
    assert tensors["head.weight"]["file"] == "x-2.safetensors"
    assert tensors["a.scales"] | {"name": ""} == {
        **{"name": "", "dtype": "float16", "shape": [2, 32], "bytes": 128, "file": "x-1.safetensors"}
    }
    assert "4 bits, groups of 32" in program.run("inspect", folder).stdout


def test_a_format_that_is_not_read_is_named_beside_its_tensors(program, folder):
    (folder / "config.json").write_text('{"quantization_config": {"quant_method": "awq"}}')
    document = program.json("inspect", folder)
    assert "is of AWQ" in document["not_read"]
    assert len(document["tensors"]) == 5
    assert "is of AWQ" in program.run("inspect", folder).stdout


def test_a_missing_shard_is_a_sentence(program, folder):
    (folder / "x-2.safetensors").unlink()
    program.refused(program.run("inspect", folder), str(folder), '"x-2.safetensors"', '"head.weight" is missing')


def test_our_own_weights_are_tensors(program, tmp_path):
    own = {"bie": json.dumps({"kind": "weights", "format_version": 1, "layers": {}})}
    save_file({"norm": torch.ones(3)}, tmp_path / "a.safetensors", metadata=own)
    document = program.json("inspect", tmp_path / "a.safetensors")
    assert [tensor["name"] for tensor in document["tensors"]] == ["norm"]
