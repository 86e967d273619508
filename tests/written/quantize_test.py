"""`bie quantize --method gptq` and bie.quantization.gptq are one law: of the same inputs they make the same bits."""

import json
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from model_folders import write_whole_folder
from opened_codes import codes_of
from safetensors.torch import load_file, save_file

from bie.hf import load
from bie.nn import MPQLinear
from bie.quantization import Hessian, gptq

NAME, WIDTH = "model.layers.0.self_attn.q_proj", 64
TEXT = "The water of the river boils at 100 degrees, and ice melts at 0. " * 60


def write_signs(path):
    """A model whose embeddings are 1 and -1, so that a norm without epsilon gives the norm's weights with their signs,
    in any order of arithmetic."""
    write_whole_folder(path, "llama", hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=1, rms_norm_eps=1e-12)
    tensors = load_file(path / "model.safetensors")
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].sign()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return tensors


def told(*words):
    process = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("target", ["w1g16", "w2g32", "w3g64", "w4g16", "w8g64", "w3g16 of gptq", "w4g64 of gptq"])
def test_codes_scales_and_zeros_of_the_command(target, bie, tmp_path):
    kind, _, layout = target.partition(" of ")
    bits, group = map(int, kind[1:].split("g"))
    tensors = write_signs(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    ids = torch.tensor(told(bie, "tokenize", tmp_path / "model", "--file", text, "--json")["tokens"])
    told(
        *(bie, "quantize", tmp_path / "model", "-o", tmp_path / "made", "--json", "--type", kind),
        *("--method", "gptq", "--calibrate", text),
        *(("--format", layout) if layout else ("--embedding", "f32", "--head", "f32")),
    )

    whole = ids[: len(ids) // 512 * 512]
    hessian = Hessian(WIDTH)
    for window in whole.split(512):
        embedded = tensors["model.embed_tokens.weight"][window]
        hessian.add(embedded * tensors["model.layers.0.input_layernorm.weight"])
    coded = gptq(
        tensors[f"{NAME}.weight"], hessian.matrix(), bits, group, dtype=torch.float16, whole_zeros=bool(layout)
    )

    made = {name: array.numpy() for name, array in load_file(tmp_path / "made" / "model.safetensors").items()}
    found = codes_of(made, NAME, bits, group, WIDTH)
    assert len(whole) >= 512
    assert torch.equal(torch.from_numpy(found.codes).t().int(), coded.codes)
    assert torch.equal(torch.from_numpy(found.scales.copy()).t(), coded.scales)
    if layout:
        whole_zeros = torch.ops.bie.unpack_words(coded.zeros, bits, coded.scales.size(1), 1) + 1
        assert torch.equal(torch.from_numpy(found.whole.copy()).t().int(), whole_zeros)
    else:
        assert torch.equal(torch.from_numpy(found.zeros.copy()).t(), coded.zeros)


KINDS = {
    "tied llama": (["--type", "w4g16"], "WeightOnlyEmbedding"),
    "llama": (["--type", "w3g48", "--fit"], "WeightOnlyEmbedding"),  # words that are not full
    "llama with biases": (["--type", "w2g32", "--embedding", "f16", "--head", "w8g64"], "Embedding"),
    "gemma3": (["--type", "w5g32"], "WeightOnlyEmbedding"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_loads_a_folder_as_bie_hf_does(kind, bie, tmp_path):
    from transformers import AutoModelForCausalLM

    options, table = KINDS[kind]
    write_whole_folder(tmp_path / "model", kind)
    told(bie, "quantize", tmp_path / "model", "-o", tmp_path / "made", "--json", *options)
    wanted = load(tmp_path / "made")
    found, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "made", dtype=torch.float32, output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(found.get_input_embeddings()).__name__ == table
    assert type(found.model.layers[0].self_attn.q_proj) is MPQLinear
    ids = torch.arange(12).view(1, 12) % 90
    with torch.no_grad():
        assert torch.equal(found(ids).logits, wanted(ids).logits)
        found.save_pretrained(tmp_path / "again")
        again = AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype=torch.float32)
        assert torch.equal(found(ids).logits, again(ids).logits)


def test_transformers_alone_says_that_it_does_not_know_the_codes(bie, tmp_path):
    write_whole_folder(tmp_path / "model", "tied llama")
    told(bie, "quantize", tmp_path / "model", "-o", tmp_path / "made", "--json", "--type", "w4g16")
    program = f"import transformers; transformers.AutoModelForCausalLM.from_pretrained({str(tmp_path / 'made')!r})"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Unknown quantization type, got bie" in process.stdout + process.stderr
