"""Folders of Hugging Face: the logits of transformers in float32, and a sentence for each setting that is not read."""

import json

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import torch
import transformers
from coded_folders import FORMATS, write_coded_folder, write_own_table
from llm_library import EXACT, F32, INT8, Error
from model_folders import change_config, rename_tensors, write_folder, write_folder_with_pictures
from safetensors.numpy import load_file, save_file
from small_models import BITNETS, KINDS, VOCABULARY
from ternary_folders import WAYS, write_ternary_folder

TOKENS = torch.randint(0, VOCABULARY, (40,), generator=torch.Generator().manual_seed(5)).tolist()


def wanted_logits(model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].numpy()


def expect_close(found, wanted, share=1e-4):
    assert np.abs(found - wanted).max() <= share * np.abs(wanted).max()


@pytest.mark.parametrize("kind", [*KINDS, *BITNETS])
def test_a_folder_computes_what_transformers_does(library, tmp_path, kind):
    model = write_folder(tmp_path, kind)
    expect_close(library.model(tmp_path).logits(TOKENS, [23, 17]), wanted_logits(model))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_floats_of_16_bits_in_shards(library, tmp_path, kind, dtype):
    write_folder(tmp_path, kind, dtype, shard_size="60KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    wanted = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(wanted))


def test_rotations_as_older_configurations_state_them(library, tmp_path):
    model = write_folder(tmp_path, "yarn llama")
    rope = json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    theta = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    change_config(tmp_path, rope_parameters=None, rope_theta=theta, rope_scaling=rope)
    expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(model))


def test_a_folder_is_the_file_of_its_numbers(library, models, tmp_path):
    """Rows of queries and keys stand in another order in GGUF files of llama, and each row is a sum of its own."""
    write_folder(tmp_path, "llama")
    for arithmetic in (EXACT, INT8):
        found = library.model(tmp_path, arithmetic).logits(TOKENS)
        expect_close(
            found, library.model(models("llama"), arithmetic).logits(TOKENS), 1e-5 if arithmetic == EXACT else 5e-2
        )


class TestGemma3WithPictures:
    @pytest.fixture
    def text(self, tmp_path):
        return write_folder_with_pictures(tmp_path)

    def test_its_text_is_that_of_the_text_model(self, library, tmp_path, text):
        names = load_file(tmp_path / "model.safetensors")
        assert any("vision_tower" in name for name in names)
        expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(text))

    def test_both_ways_to_name_its_tensors(self, library, tmp_path, text):
        """transformers put "language_model." in front until 4.51, and puts it behind "model." since."""
        wanted = library.model(tmp_path).logits(TOKENS)
        written = list(load_file(tmp_path / "model.safetensors"))
        other = {"language_model.model.": "model.language_model.", "model.language_model.": "language_model.model."}
        start = next(start for start in other if any(name.startswith(start) for name in written))
        rename_tensors(tmp_path, lambda name: name.replace(start, other[start]))
        np.testing.assert_array_equal(library.model(tmp_path).logits(TOKENS), wanted)

    def test_what_a_configuration_leaves_out(self, library, tmp_path, text):
        """The released ones state what differs from transformers' own numbers, as 8 heads."""
        config = json.loads((tmp_path / "config.json").read_text())["text_config"]
        assert config.pop("num_attention_heads") == 4
        change_config(tmp_path, text_config=config)
        with pytest.raises(Error, match=r"attn_q|q_proj.weight\": expected \[256, 64\], got \[128, 64\]"):
            library.model(tmp_path)

    def test_no_text_config(self, library, tmp_path, text):
        change_config(tmp_path, text_config=None)
        with pytest.raises(Error, match='"text_config" is missing'):
            library.model(tmp_path)

    def test_a_setting_of_its_text_is_named_with_its_place(self, library, tmp_path, text):
        config = json.loads((tmp_path / "config.json").read_text())["text_config"]
        change_config(tmp_path, text_config=config | {"hidden_activation": "relu"})
        with pytest.raises(Error, match=r'"text_config.hidden_activation": expected "gelu_pytorch_tanh", got "relu"'):
            library.model(tmp_path)


class TestRefusals:
    @pytest.fixture
    def folder(self, tmp_path):
        write_folder(tmp_path, "llama")
        return tmp_path

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"model_type": "mixtral"}, r'"model_type": expected one of llama, mistral, .*, got "mixtral"'),
            ({"model_type": None}, r'"model_type": expected one of llama, .*, got ""'),
            ({"hidden_act": "relu"}, '"hidden_act": expected "silu", got "relu"'),
            ({"hidden_size": "64"}, '"hidden_size": expected a whole number, got "64"'),
            ({"hidden_size": None}, '"hidden_size" is missing'),
            ({"hidden_size": -64}, '"hidden_size": expected a whole number, got -64'),
            ({"num_hidden_layers": 10**9}, 'llama.block_count": expected 1 to 4096, got 1000000000'),
            ({"num_hidden_layers": 3}, 'the tensor "model.layers.2.input_layernorm.weight" is missing'),
            ({"num_hidden_layers": 1}, r'expected the tensors of llama, got "model.layers.1.\S+" beside them'),
            ({"num_attention_heads": 0}, '"num_attention_heads": expected at least 1, got 0'),
            ({"num_attention_heads": 5}, "expected a number of heads that 2 KV heads divide, got 5"),
            ({"num_key_value_heads": 3, "head_dim": 16}, "expected a number of heads that 3 KV heads divide, got 4"),
            ({"intermediate_size": 97}, r'"model.layers.0.mlp.gate_proj.weight": expected \[97, 64\], got \[96, 64\]'),
            ({"rms_norm_eps": "small"}, '"rms_norm_eps": expected a number, got "small"'),
            (
                {"rope_parameters": {"rope_type": "longrope"}},
                'expected default, linear, yarn or llama3, got "longrope"',
            ),
            ({"rope_parameters": {"rope_type": "linear"}}, '"rope_parameters.factor" is missing'),
            ({"rope_parameters": [1]}, r'"rope_parameters": expected an object, got an array'),
            ({"partial_rotary_factor": 0.5}, '"partial_rotary_factor": expected 1, got 0.5'),
            ({"tie_word_embeddings": "yes"}, '"tie_word_embeddings": expected true or false, got "yes"'),
        ],
    )
    def test_a_configuration_that_is_wrong(self, library, folder, changes, sentence):
        change_config(folder, **changes)
        with pytest.raises(Error, match=sentence):
            library.model(folder)

    def test_no_configuration(self, library, folder):
        (folder / "config.json").unlink()
        with pytest.raises(Error, match=r"expected the file config.json beside the weights, got none"):
            library.model(folder)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "llama", "model_type": "llama"}', "[" * 10**5])
    def test_a_configuration_that_is_no_object(self, library, folder, text):
        (folder / "config.json").write_text(text)
        with pytest.raises(Error, match=r"configuration|JSON"):
            library.model(folder)

    def test_no_weights(self, library, folder):
        (folder / "model.safetensors").unlink()
        with pytest.raises(Error, match="has no safetensors file"):
            library.model(folder)

    def test_weights_cut_short(self, library, folder):
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(Error, match=r"model\.safetensors"):
            library.model(folder)

    def test_no_head(self, library, tmp_path):
        write_folder(tmp_path, "tied llama")
        change_config(tmp_path, tie_word_embeddings=False)
        with pytest.raises(Error, match=r'"lm_head.weight" is missing, and "tie_word_embeddings" is false'):
            library.model(tmp_path)

    def test_layers_that_see_windows_in_qwen2(self, library, tmp_path):
        write_folder(tmp_path, "qwen2")
        change_config(tmp_path, use_sliding_window=True)
        with pytest.raises(Error, match='"use_sliding_window": expected false, got true'):
            library.model(tmp_path)

    def test_layers_of_gemma_in_another_order(self, library, tmp_path):
        write_folder(tmp_path, "gemma3")
        change_config(tmp_path, layer_types=["full_attention"] * 8)
        with pytest.raises(Error, match='"layer_types": expected a full_attention behind each 5 of sliding_attention'):
            library.model(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
class TestCodes:
    def test_they_are_the_floats_they_stand_for(self, library, tmp_path, name):
        model = write_coded_folder(tmp_path, name)
        expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(model))

    def test_int8_is_near_exact(self, library, tmp_path, name):
        write_coded_folder(tmp_path, name)
        exact = library.model(tmp_path).logits(TOKENS)
        difference = np.abs(exact - library.model(tmp_path, INT8).logits(TOKENS)).mean() / np.abs(exact).mean()
        assert 0 < difference < 0.05


def test_codes_of_a_family_with_biases(library, tmp_path):
    model = write_coded_folder(tmp_path, "gptq of 4 bits", "qwen2")
    expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(model))


@pytest.mark.parametrize("bits", [1, 3, 5, 8])
def test_a_table_of_codes_is_embedding_and_head(library, tmp_path, bits):
    model = write_own_table(tmp_path, bits)
    expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(model))


@pytest.mark.parametrize("way", WAYS)
class TestTernary:
    def test_exact_activations(self, library, tmp_path, way):
        model = write_ternary_folder(tmp_path, way)
        expect_close(library.model(tmp_path).logits(TOKENS), wanted_logits(model))

    def test_activations_of_8_bits_have_one_step_for_a_row(self, library, tmp_path, way):
        """The head is of floats; a product of codes is one whole number."""
        model = write_ternary_folder(tmp_path, way, rounds_rows=True)
        expect_close(library.model(tmp_path, INT8, cache=F32).logits(TOKENS), wanted_logits(model), 5e-3)


class TestOneBitLlm:
    """Models of 1bitLLM are BitNet's with norms of other names, and their class alone says what becomes of weights."""

    @pytest.fixture
    def folder(self, tmp_path):
        write_ternary_folder(tmp_path, "online", "bitnet")
        return tmp_path

    @staticmethod
    def rename(folder):
        change_config(
            folder, model_type="llama", architectures=["BitnetForCausalLM"], quantization_config=None, weight_bits=1
        )
        names = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}
        rename_tensors(folder, lambda name: ".".join(names.get(part, part) for part in name.split(".")))

    @pytest.mark.parametrize("arithmetic", [EXACT, INT8])
    def test_they_are_bitnets(self, library, folder, arithmetic):
        wanted = library.model(folder, arithmetic).logits(TOKENS)
        self.rename(folder)
        np.testing.assert_array_equal(library.model(folder, arithmetic).logits(TOKENS), wanted)

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"weight_bits": 2}, r'config.json: "weight_bits": expected 1, got 2'),
            ({"input_bits": 4}, r'config.json: "input_bits": expected 8, got 4'),
            ({"hidden_act": "relu2"}, '"hidden_act": expected "silu", got "relu2"'),
            (
                {"architectures": ["LlamaForCausalLM"]},
                r'expected the tensors of llama, got "\S+(inner_attn_ln|ffn_layernorm)',
            ),
            ({"num_hidden_layers": 3}, r'"model.layers.2.\S+" is missing'),
        ],
    )
    def test_a_configuration_that_is_wrong(self, library, folder, changes, sentence):
        self.rename(folder)
        change_config(folder, **changes)
        with pytest.raises(Error, match=sentence):
            library.model(folder)


class TestTernaryRefusals:
    @pytest.fixture
    def folder(self, tmp_path):
        write_ternary_folder(tmp_path, "bitlinear")
        return tmp_path

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"linear_class": "other"}, '"linear_class": expected bitlinear or autobitlinear, got "other"'),
            ({"quantization_mode": "half"}, '"quantization_mode": expected offline or online, got "half"'),
            ({"use_rms_norm": True}, '"use_rms_norm": expected false, got true'),
            ({"quant_method": "awq"}, "is of AWQ"),
        ],
    )
    def test_a_configuration_that_is_not_read(self, library, folder, changes, sentence):
        quantization = json.loads((folder / "config.json").read_text())["quantization_config"]
        change_config(folder, quantization_config=quantization | changes)
        with pytest.raises(Error, match=sentence):
            library.model(folder)

    @pytest.mark.parametrize(
        ("key", "value", "sentence"),
        [
            ("weight_scale", None, 'weight_scale" is missing'),
            ("weight_scale", np.zeros(1, np.float32), "expected a positive number, got 0"),
            ("weight_scale", np.ones(2, np.float32), r"expected one number, got \[2\]"),
            ("weight", np.full((16, 64), 255, np.uint8), "expected codes of 0, 1 and 2, got a 3"),
            ("weight", np.zeros(64, np.uint8), r"expected a matrix, got \[64\]"),
            ("weight", np.zeros((15, 64), np.uint8), r"expected \[64, 64\], got \[60, 64\]"),
        ],
    )
    def test_tensors_that_are_wrong(self, library, folder, key, value, sentence):
        file = folder / "model.safetensors"
        tensors = load_file(file)
        name = f"model.layers.1.self_attn.q_proj.{key}"
        del tensors[name]
        if value is not None:
            tensors[name] = value
        save_file(tensors, file)
        with pytest.raises(Error, match=sentence):
            library.model(folder)
