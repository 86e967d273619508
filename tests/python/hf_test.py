"""Models of transformers that are converted, saved and read again: the same bits. Tiny random configurations."""

import json

import pytest
import torch
from mpq_cases import CODED, inputs_of

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


def tied(kind):
    """A small model of transformers whose output layer is its embedding's table; Gemma scales what it looks up."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes |= {"num_key_value_heads": 1, "head_dim": 16, "vocab_size": 50, "max_position_embeddings": 16}
    config = transformers.AutoConfig.for_model(kind, **sizes, tie_word_embeddings=True)
    return transformers.AutoModelForCausalLM.from_config(config).eval(), {"input_ids": torch.randint(50, (2, 7))}


@pytest.mark.parametrize("kind", ["llama", "gemma", "gemma2", "gemma3_text"])
def test_a_tied_table_is_one_of_codes_and_comes_back(kind, tmp_path):
    model, inputs = tied(kind)
    wanted = logits(model, inputs)
    report = bie.hf.quantize_model(model, "w8")
    assert model.lm_head.table is model.model.embed_tokens and not report.skipped
    found = logits(model, inputs)
    assert float((found - wanted).norm() / wanted.norm()) < 0.03
    model.save_pretrained(tmp_path / "a")
    again = type(model).from_pretrained(tmp_path / "a")
    assert again.lm_head.table is again.model.embed_tokens
    assert again.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(logits(again, inputs), found)
    again.tie_weights()  # which transformers does by name
    again.save_pretrained(tmp_path / "b")
    assert torch.equal(logits(type(model).from_pretrained(tmp_path / "b"), inputs), found)
    bie.formats.save_weights(tmp_path / "w.safetensors", model)
    into, _ = tied(kind)
    bie.formats.load_weights_folder(tmp_path / "w.safetensors").load_into(into)
    assert torch.equal(logits(into, inputs), found)


@pytest.mark.parametrize("way", ["convert", "quantize", "load_into"])
def test_transformers_ties_no_weight_that_is_gone(way, tmp_path):
    model, inputs = tied("llama")
    if way == "quantize":
        bie.quantization.quantize(model, [inputs["input_ids"]], group_size=32)
    else:
        bie.convert(model, "w4")
    if way == "load_into":
        bie.formats.save_weights(tmp_path / "a.safetensors", model)
        model, _ = tied("llama")
        bie.formats.load_weights_folder(tmp_path / "a.safetensors").load_into(model)
    wanted = logits(model, inputs)
    model.tie_weights()
    assert torch.equal(logits(model, inputs), wanted)
    untouched, _ = tied("llama")
    assert untouched.all_tied_weights_keys and type(untouched)._tied_weights_keys


def test_a_tied_table_that_stays_in_floats(tmp_path):
    model, inputs = tied("llama")
    report = bie.hf.quantize_model(model, "w4", tied=False)
    assert len(report.skipped) == 2 and model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert torch.equal(logits(again, inputs), logits(model, inputs))
    assert again.lm_head.weight is again.model.embed_tokens.weight


def test_a_head_of_no_table_is_refused(tmp_path):
    model, _ = tied("llama")
    bie.hf.quantize_model(model, "w4")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["layers"]["lm_head"]["table"] = "model.norm"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"the head 'lm_head' of 'model.norm', expected a WeightOnlyEmbedding"):
        type(model).from_pretrained(tmp_path)


@pytest.mark.parametrize("name", [name for name in CODED if name not in ("signs", "bag")])
def test_every_weight_only_layer_is_described_and_made_again(name):
    """As transformers does it: an empty layer by its description, the file's tensors in it, then what is derived."""
    model, again = torch.nn.Module(), torch.nn.Module()
    model.layer = CODED[name](1).eval()
    x = inputs_of(model.layer)
    wanted = model.layer(x)
    quantizer = bie.hf.BieQuantizer(bie.hf.BieConfig(bie.hf_checkpoints._layers_of(model)), pre_quantized=True)
    quantizer._process_model_before_weight_loading(again)
    assert all(tensor.is_meta for tensor in again.state_dict().values())
    assert again.state_dict().keys() == model.state_dict().keys()
    for key, value in model.layer.state_dict().items():
        if key in again.layer._parameters:
            value = torch.nn.Parameter(value.clone(), requires_grad=False)
        setattr(again.layer, key, value)
    quantizer._process_model_after_weight_loading(again)
    assert torch.equal(again.layer(x), wanted)


def test_other_versions_and_classes_are_refused():
    with pytest.raises(ValueError, match="bie format is version 2"):
        bie.hf.BieConfig({}, format_version=2)
    with pytest.raises(ValueError, match=r"class 'Linear', which is none of bie\.nn"):
        bie.hf_checkpoints._empty({"class": "Linear"})
