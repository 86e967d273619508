"""Models of transformers that are converted, saved and read again: the same bits. Tiny random configurations."""

import json

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import bie.hf  # noqa: E402  after the skip
from bie.nn import QuantLayer, WeightOnlyEmbedding, WeightOnlyLinear  # noqa: E402


def bert():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.BertConfig(**sizes, vocab_size=50, max_position_embeddings=16)
    return transformers.BertForSequenceClassification(config), {"input_ids": torch.randint(50, (2, 7))}


def vit():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4)
    return transformers.ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 8, 8)}


def llama():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.LlamaConfig(**sizes, vocab_size=50, max_position_embeddings=16)
    return transformers.LlamaForCausalLM(config), {"input_ids": torch.randint(50, (2, 7))}


def logits(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


@pytest.mark.parametrize("target", ["q8", "binary", "w4"])
@pytest.mark.parametrize("make", [bert, vit, llama])
def test_a_saved_model_gives_the_same_bits(make, target, tmp_path):
    torch.manual_seed(0)
    model, inputs = make()
    report = bie.hf.quantize_model(model, target)
    assert len(report.swapped) >= 12
    if target != "w4":
        for module in model.modules():
            if isinstance(module, QuantLayer):
                module.train()
        logits(model, inputs)
        model.eval()
    wanted = logits(model, inputs)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert saved["quant_method"] == "bie" and len(saved["layers"]) == len(report.swapped)
    again = type(model).from_pretrained(tmp_path)
    assert torch.equal(logits(again, inputs), wanted)
    assert again.state_dict().keys() == model.state_dict().keys()
    again.save_pretrained(tmp_path / "twice")
    assert torch.equal(logits(type(model).from_pretrained(tmp_path / "twice"), inputs), wanted)


def test_a_saved_model_keeps_int8_activations(tmp_path):
    torch.manual_seed(0)
    model, inputs = llama()
    bie.hf.quantize_model(model, "w4", activation="int8")
    wanted = logits(model, inputs)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    ours = [m for m in again.modules() if isinstance(m, (WeightOnlyEmbedding, WeightOnlyLinear))]
    assert len(ours) >= 14 and all(layer.activation == "int8" for layer in ours)
    assert torch.equal(logits(again, inputs), wanted)
    for layer in ours:
        layer.activation = "exact"
    assert not torch.equal(logits(again, inputs), wanted)


def test_other_versions_and_classes_are_refused():
    with pytest.raises(ValueError, match="bie format is version 2"):
        bie.hf.BieConfig({}, format_version=2)
    with pytest.raises(ValueError, match=r"class 'Linear', which is none of bie\.nn"):
        bie.hf._empty({"class": "Linear"})
