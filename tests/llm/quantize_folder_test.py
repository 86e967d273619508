"""bie quantize to folders: groups of codes as NumPy reads them, the same logits and the same tokens."""

import copy
import json
import re
import subprocess

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import torch
import transformers
from coded_folders import FORMATS, write_coded_folder
from model_folders import write_folder_with_pictures, write_tokenizer_files, write_whole_folder
from opened_codes import TABLE, all_codes, codes_of, expect_nearest, expect_nearest_with_whole_zeros, layers_of
from quantize_fixtures import CALIBRATION, files_of, tensors_of
from safetensors.numpy import load_file
from small_models import KINDS, VOCABULARY, float_model, is_gemma, write_changed, write_model_with_tokenizer
from strings import strings
from ternary_folders import WAYS, write_ternary_folder

BITS = (1, 2, 3, 4, 5, 6, 8)
GPTQ_BITS = (2, 3, 4, 8)
TOKENS = torch.randint(0, VOCABULARY, (40,), generator=torch.Generator().manual_seed(5)).tolist()
#: Sizes of models, the group of most matrices, and those of some.
SHAPES = {
    "words that are not full": (
        {"hidden_size": 80, "head_dim": 36, "intermediate_size": 1008},
        16,
        {"0.ffn_down": 1008, "1.ffn_down": 336, "0.attn_output": 144, "1.attn_output": 48, "0.attn_q": 80},
    ),
    "large groups": (
        {"hidden_size": 128, "head_dim": 64, "intermediate_size": 1024},
        32,
        {"0.ffn_down": 1024, "1.ffn_down": 512, "0.attn_output": 256, "1.attn_output": 128, "0.ffn_up": 64},
    ),
}


def expect_close(found, wanted, share=1e-4):
    assert np.isfinite(found).all()
    assert np.abs(found - wanted).max() <= share * np.abs(wanted).max()


def logits_of(model, tokens=TOKENS) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def opened(model, codes):
    """The float model with the weights that these codes stand for."""
    twin = copy.deepcopy(model)
    state = twin.state_dict()
    for stem, layer in codes.items():
        state[f"{stem}.weight"].copy_(torch.from_numpy(layer.opened.astype(np.float32)))
    return twin


def shapes_of(model) -> dict[str, tuple[int, int]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


@pytest.fixture(scope="module", params=SHAPES)
def shaped(request, bie, tmp_path_factory):
    """A folder, the file of its numbers, its model, and the words for types of these bits."""
    sizes, group, others = SHAPES[request.param]
    path = tmp_path_factory.mktemp("shaped")
    model = write_whole_folder(path / "folder", "llama", **sizes)
    convert = [bie, "convert", path / "folder", "-o", path / "model.gguf", "--type", "f32"]
    subprocess.run(convert, check=True, capture_output=True)

    def words(bits: int) -> list[str]:
        keeps = [("--keep", f"blk.{part}.weight=w{bits}g{size}") for part, size in others.items()]
        return ["--type", f"w{bits}g{group}", *(word for pair in keeps for word in pair)]

    return path / "folder", path / "model.gguf", model, words


def expect_same_model(library, first, second):
    """Codes, plain numbers and logits are the same to the bit."""
    found, wanted = (load_file(path / "model.safetensors") for path in (first, second))
    assert found.keys() == wanted.keys()
    for name in found:
        assert found[name].dtype == wanted[name].dtype and np.array_equal(found[name], wanted[name]), name
    logits = [library.model(path).logits(TOKENS) for path in (first, second)]
    assert np.array_equal(*logits)
    return logits[0]


class TestOwnCodes:
    @pytest.mark.parametrize("bits", BITS)
    def test_every_width_of_a_folder_and_of_its_file(self, library, quantized, shaped, bits):
        folder, file, model, words = shaped
        path, told = quantized(folder, *words(bits), out="of_folder")
        again, _ = quantized(file, *words(bits), out="of_file/")
        logits = expect_same_model(library, path, again)
        codes = all_codes(path, shapes_of(model))
        names = {name.removesuffix(".weight") for name, shape in shapes_of(model).items() if len(shape) == 2}
        assert codes.keys() == names and len(told["plan"]) == len(names)
        assert len({layer.group for layer in codes.values()}) == 6
        for stem, layer in codes.items():
            assert layer.bits == bits
            expect_nearest(layer, model.state_dict()[f"{stem}.weight"].numpy())
        expect_close(logits, logits_of(opened(model, codes)))
        assert told["file_bytes"] == sum(file.stat().st_size for file in path.iterdir())

    @pytest.mark.parametrize("kind", ["tied llama", "qwen2", "qwen3", "gemma2", "gemma3", "llama with biases"])
    def test_families(self, library, quantized, models, kind):
        path, _ = quantized(models(kind), "--type", "w5g32", out="out")
        model = float_model(kind)
        codes = all_codes(path, shapes_of(model))
        twin = opened(model, codes)
        if model.config.tie_word_embeddings:
            assert TABLE in codes and "lm_head" not in codes
            twin.lm_head.weight = twin.model.embed_tokens.weight
        expect_close(library.model(path).logits(TOKENS), logits_of(twin))

    def test_types_by_names(self, library, quantized, models):
        words = ["--type", "w3g32", "--embedding", "f16", "--head", "W8G64", "--keep", "blk.0.*=bf16"]
        path, told = quantized(models("llama"), *words, "--keep", "blk.1.ffn_down*=f32", out="out")
        layers = layers_of(path)
        assert layers["lm_head"] == {"bits": 8, "group_size": 64} and TABLE not in layers
        assert layers["model.layers.1.mlp.up_proj"] == {"bits": 3, "group_size": 32}
        assert not [stem for stem in layers if stem.startswith("model.layers.0.") or stem.endswith("1.mlp.down_proj")]
        types = {entry["name"]: entry["type"] for entry in told["plan"]}
        assert types["token_embd.weight"] == "F16" and types["blk.0.attn_q.weight"] == "BF16"
        assert types["blk.1.ffn_down.weight"] == "F32" and types["output.weight"] == "W8G64"
        assert np.isfinite(library.model(path).logits(TOKENS)).all()

    def test_smaller_groups_where_rows_are_no_whole_ones(self, quantized, models):
        path, told = quantized(models("llama"), "--type", "w4g128", "--fit", out="out")  # rows of 64 and 96
        groups = {stem: layer["group_size"] for stem, layer in layers_of(path).items()}
        assert set(groups.values()) == {64, 96}
        assert all((size == 96) == stem.endswith("mlp.down_proj") for stem, size in groups.items())
        assert {entry["type"] for entry in told["unfit"]} == {"W4G64", "W4G96"}

    def test_floats_of_16_bits_where_no_group_fits(self, library, quantized, tmp_path):
        write_whole_folder(tmp_path / "narrow", "llama", intermediate_size=100)
        path, told = quantized(tmp_path / "narrow", "--type", "w4g64", "--fit", out="out")
        assert {(entry["name"].split(".")[2], entry["type"]) for entry in told["unfit"]} == {("ffn_down", "F16")}
        tensors = load_file(path / "model.safetensors")
        assert tensors["model.layers.0.mlp.down_proj.weight"].dtype == np.float16
        assert np.isfinite(library.model(path).logits(TOKENS)).all()

    def test_a_plan_in_a_file(self, quantized, models, tmp_path):
        first, told = quantized(models("llama"), "--type", "w4g32", "--head", "w8g16", out="first")
        (tmp_path / "plan.json").write_text(json.dumps({"plan": told["plan"]}))
        second, _ = quantized(models("llama"), "--plan", tmp_path / "plan.json", out="second")
        assert files_of(first) == files_of(second)

    def test_groups_of_one_number_and_of_one_sign(self, quantized, tmp_path):
        def change(tensors):
            tensors["blk.1.attn_v.weight"][0] = 0.5
            tensors["blk.1.attn_v.weight"][1] = 0
            tensors["blk.1.attn_v.weight"][2] = np.linspace(1, 1.1, 64)

        path, _ = quantized(write_changed(tmp_path / "model.gguf", change), "--type", "w4g64", "--fit", out="out")
        stem = "model.layers.1.self_attn.v_proj"
        values = codes_of(load_file(path / "model.safetensors"), stem, 4, 64, 64).opened
        assert (values[0] == 0.5).all() and (values[1] == 0).all()
        assert np.abs(values[2] - np.linspace(1, 1.1, 64)).max() < 0.6 * 0.1 / 15

    def test_a_folder_of_codes_is_quantised_again(self, library, quantized, models):
        first, _ = quantized(models("llama"), "--type", "w8g16", out="first")
        shapes = shapes_of(float_model("llama"))
        second, _ = quantized(first, "--type", "w3g32", out="second")
        before, after = all_codes(first, shapes), all_codes(second, shapes)
        for stem, layer in after.items():
            expect_nearest(layer, before[stem].opened.astype(np.float32))
        assert np.isfinite(library.model(second).logits(TOKENS)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_floats_is_the_file(library, quantized, models, kind):
    path, _ = quantized(models(kind), "--type", "f32", out="out")
    folder = library.model(path)
    wanted, found = library.model(models(kind)).logits(TOKENS), folder.logits(TOKENS)
    if "llama" in kind or "mistral" in kind:  # rows of queries and keys stand in another order
        expect_close(found, wanted, 1e-5)
    else:
        assert np.array_equal(found, wanted)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    assert is_gemma(theirs.config) == is_gemma(float_model(kind).config)
    expect_close(found, logits_of(theirs))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    text = "The water boils at 100 degrees; ice (of 0 degrees) melts.<|end|>"
    assert tokenizer.encode(text, add_special_tokens=False) == folder.tokenize(text)


@pytest.fixture(scope="module")
def pair(bie, plain, tmp_path_factory):
    """A file of byte-level BPE, and the folder that is made of it."""
    out = tmp_path_factory.mktemp("tokens") / "out"
    subprocess.run([bie, "quantize", plain, "-o", out, "--type", "f32"], check=True, capture_output=True)
    return plain, out


@pytest.mark.parametrize("name", FORMATS)
def test_codes_of_other_folders_are_opened(library, quantized, tmp_path, name):
    tokens = write_tokenizer_files(tmp_path / "coded")
    model = write_coded_folder(tmp_path / "coded", name, vocabulary=tokens + 4)
    path, _ = quantized(tmp_path / "coded", "--type", "f32", out="out")
    expect_close(library.model(path).logits(TOKENS), logits_of(model))
    assert not json.loads((path / "config.json").read_text()).get("quantization_config")


@pytest.mark.parametrize("way", WAYS)
def test_ternary_codes_of_folders_are_opened(library, quantized, tmp_path, way):
    tokens = write_tokenizer_files(tmp_path / "ternary")
    model = write_ternary_folder(tmp_path / "ternary", way, vocabulary=tokens + 4)
    path, _ = quantized(tmp_path / "ternary", "--type", "f32", out="out")
    expect_close(library.model(path).logits(TOKENS), logits_of(model))


def test_pictures_stay_behind(library, quantized, tmp_path):
    """What is written is the model that reads text, which transformers loads as such."""
    write_tokenizer_files(tmp_path / "pictures")
    model = write_folder_with_pictures(tmp_path / "pictures")
    path, _ = quantized(tmp_path / "pictures", "--type", "f32", out="out")
    expect_close(library.model(path).logits(TOKENS), logits_of(model))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    assert type(theirs) is type(model)
    expect_close(logits_of(theirs), logits_of(model))


class TestTokens:
    @pytest.mark.parametrize("special", [True, False])
    def test_random_strings(self, library, pair, special):
        file, folder = (library.model(path) for path in pair)
        texts = [*strings(400), *(f"<|start|>{text}<|end|>" for text in strings(100))]
        tokens = [file.tokenize(text, special=special) for text in texts]
        assert [folder.tokenize(text, special=special) for text in texts] == tokens
        assert [folder.decode(each) for each in tokens] == [file.decode(each) for each in tokens]
        assert folder.tokenize("water", begin=True) == file.tokenize("water", begin=True)
        if special:
            theirs = transformers.AutoTokenizer.from_pretrained(pair[1])
            assert [theirs.encode(text, add_special_tokens=False) for text in texts] == tokens

    def test_the_program_says_the_same(self, answer, pair, tmp_path):
        (tmp_path / "text.txt").write_text("\n".join(strings(300)))
        file, folder = (answer("tokenize", path, "--file", tmp_path / "text.txt") for path in pair)
        assert file["tokens"] == folder["tokens"] and len(file["tokens"]) > 1000

    def test_a_conversation(self, answer, pair):
        words = ["--chat", "--prompt", "The water boils", "--tokens", 8, "--exact"]
        file, folder = (answer("generate", path, *words) for path in pair)
        assert [folder[key] for key in ("prompt_tokens", "tokens", "text")] == [
            file[key] for key in ("prompt_tokens", "tokens", "text")
        ]
        theirs = transformers.AutoTokenizer.from_pretrained(pair[1])
        messages = [{"role": "user", "content": "The water boils"}]
        prompt = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert prompt == "u:The water boils<|end|>a:"
        assert theirs.encode(prompt, add_special_tokens=False) == folder["prompt_tokens"]

    @pytest.mark.parametrize("adds_space", [True, False])
    def test_pieces(self, library, quantized, tmp_path, adds_space):
        sentencepiece = pytest.importorskip("sentencepiece")
        (tmp_path / "corpus.txt").write_text("\n".join(text for text in strings(400) if text.isascii()) + CALIBRATION)
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / "corpus.txt"),
            model_prefix=str(tmp_path / "pieces"),
            model_type="bpe",
            vocab_size=400,
            hard_vocab_limit=False,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=adds_space,
            minloglevel=2,
        )
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces.model"))
        count = range(pieces.get_piece_size())

        def add(writer):
            writer.add_tokenizer_model("llama")
            writer.add_token_scores([pieces.get_score(i) for i in count])
            kinds = [(pieces.is_unknown, 2), (pieces.is_control, 3), (pieces.is_byte, 6)]
            writer.add_token_types([next((kind for test, kind in kinds if test(i)), 1) for i in count])
            writer.add_bos_token_id(pieces.bos_id())
            writer.add_eos_token_id(pieces.eos_id())
            writer.add_add_space_prefix(adds_space)

        write_model_with_tokenizer(tmp_path / "pieces.gguf", [pieces.id_to_piece(i) for i in count], add)
        path, _ = quantized(tmp_path / "pieces.gguf", "--type", "f32", out="out")
        texts = [text for text in strings(300) if "\0" not in text]
        folder = library.model(path)
        assert [folder.tokenize(text, special=False) for text in texts] == pieces.encode(texts)
        own = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
        assert own.encode(texts) == pieces.encode(texts)


class TestGptqFormat:
    @pytest.mark.parametrize("bits", GPTQ_BITS)
    def test_every_width_of_a_folder_and_of_its_file(self, library, quantized, shaped, bits):
        folder, file, model, words = shaped
        path, _ = quantized(folder, *words(bits), "--format", "gptq", out="of_folder")
        again, _ = quantized(file, *words(bits), "--format", "gptq", out="of_file")
        logits = expect_same_model(library, path, again)
        tensors, state = load_file(path / "model.safetensors"), model.state_dict()
        described = json.loads((path / "quantize_config.json").read_text())
        codes = {}
        for name, shape in shapes_of(model).items():
            stem = name.removesuffix(".weight")
            if len(shape) == 2 and stem not in (TABLE, "lm_head"):
                own = [of for pattern, of in described["dynamic"].items() if re.match(pattern.removeprefix("+:"), stem)]
                assert len(own) <= 1
                sizes = {key: (described | (own[0] if own else {}))[key] for key in ("bits", "group_size")}
                codes[stem] = codes_of(tensors, stem, sizes["bits"], sizes["group_size"], shape[1])
                assert codes[stem].bits == bits
                expect_nearest_with_whole_zeros(codes[stem], state[name].numpy())
        assert len({layer.group for layer in codes.values()}) == 6
        twin = opened(model, codes)
        for stem, linear in ((TABLE, twin.model.embed_tokens), ("lm_head", twin.lm_head)):
            numbers = tensors[f"{stem}.weight"]
            assert numbers.dtype == np.float16
            assert np.array_equal(numbers, linear.weight.detach().numpy().astype(np.float16))
            linear.weight.data = torch.from_numpy(numbers.astype(np.float32))
        expect_close(logits, logits_of(twin))

    def test_what_the_configuration_says(self, quantized, models):
        keeps = ["--keep", "blk.1.ffn_down.weight=w8g48", "--keep", "blk.0.attn_v.weight=f16"]
        path, _ = quantized(models("llama"), "--type", "w4g32", "--format", "gptq", *keeps, out="out")
        described = json.loads((path / "quantize_config.json").read_text())
        assert json.loads((path / "config.json").read_text())["quantization_config"] == described
        dynamic = described.pop("dynamic")
        assert described == {
            **{"quant_method": "gptq", "checkpoint_format": "gptq", "bits": 4, "group_size": 32},
            **{"desc_act": False, "sym": False, "lm_head": False},
        }
        names = [name.removesuffix(".weight") for name in float_model("llama").state_dict()]
        fitting = {p: [name for name in names if re.match(p[2:], name)] for p in dynamic}
        assert {(p[:2], *fitting[p], *dynamic[p].items()) for p in dynamic} == {
            ("+:", "model.layers.1.mlp.down_proj", ("bits", 8), ("group_size", 48)),
            ("-:", "model.layers.0.self_attn.v_proj"),
        }
        tensors = load_file(path / "model.safetensors")
        assert tensors["model.layers.0.self_attn.v_proj.weight"].dtype == np.float16
        assert tensors["model.layers.1.mlp.down_proj.qweight"].shape == (96 * 8 // 32, 64)

    @pytest.mark.parametrize(("kind", "dtype"), [("f32", "F32"), ("bf16", "BF16"), ("f16", "F16")])
    def test_embedding_and_head_of_floats(self, library, quantized, models, kind, dtype):
        words = ["--type", "w4g32", "--format", "gptq", "--embedding", kind, "--head", kind]
        path, told = quantized(models("llama"), *words, out="out")
        types = {entry["name"]: entry["type"] for entry in told["plan"]}
        assert types["token_embd.weight"] == types["output.weight"] == dtype
        assert np.isfinite(library.model(path).logits(TOKENS)).all()

    def test_groups_of_one_number_and_of_one_sign(self, quantized, tmp_path):
        """A grid with a whole zero from 1 on has 0 in it, so that it reaches from there to all numbers of a group."""

        def change(tensors):
            tensors["blk.1.attn_v.weight"][0] = 0.5
            tensors["blk.1.attn_v.weight"][1] = -0.5
            tensors["blk.1.attn_v.weight"][2] = np.linspace(1, 1.1, 64)
            tensors["blk.1.attn_v.weight"][3] = 0

        model = write_changed(tmp_path / "model.gguf", change)
        path, _ = quantized(model, "--type", "w4g64", "--fit", "--format", "gptq", out="out")
        stem = "model.layers.1.self_attn.v_proj"
        values = codes_of(load_file(path / "model.safetensors"), stem, 4, 64, 64).opened
        for row, wanted in ((0, 0.5), (1, -0.5), (2, np.linspace(1, 1.1, 64)), (3, 0)):
            assert np.abs(values[row] - wanted).max() <= 1.05 * np.max(np.abs(wanted)) / 15, row  # a step


class TestMethods:
    @pytest.mark.parametrize("layout", ["bie", "gptq"])
    @pytest.mark.parametrize("bits", [2, 3, 4])
    def test_search_has_less_error(self, quantized, source, text, tmp_path, layout, bits):
        """Errors of each group, each column weighted by its inputs."""
        folder, model = source
        words, kept = ["--type", f"w{bits}g64", "--format", layout], tmp_path / "imatrix.gguf"
        nearest, _ = quantized(folder, *words, out="nearest")
        calibrate = ["--calibrate", text, "--tokens", 600]
        searched, _ = quantized(folder, *words, "--method", "search", *calibrate, "--imatrix", kept, out="searched")
        stem = "model.layers.1.mlp.down_proj"
        weight = model.state_dict()[f"{stem}.weight"].numpy()
        columns = tensors_of(kept)["blk.1.ffn_down.weight.in_sum2"].data.reshape(-1)

        def error(path):
            codes = codes_of(load_file(path / "model.safetensors"), stem, bits, 64, weight.shape[1])
            return (np.square(codes.opened - weight) * columns).reshape(len(weight), -1, 64).sum(2)

        far, near = error(nearest), error(searched)
        assert near.sum() < 0.95 * far.sum() and (near <= 1.0001 * far).all()

    @pytest.mark.parametrize("layout", ["bie", "gptq"])
    def test_gptq_has_less_error_of_logits(self, library, quantized, source, text, layout):
        words = ["--type", "w3g64", "--format", layout]
        nearest, _ = quantized(source[0], *words, out="nearest")
        made, _ = quantized(source[0], *words, "--method", "gptq", "--calibrate", text, "--tokens", 1024, out="made")
        ids = library.model(made).tokenize(CALIBRATION)[:200]
        wanted, far, near = (library.model(path).logits(ids) for path in (source[0], nearest, made))
        assert np.square(near - wanted).mean() < 0.8 * np.square(far - wanted).mean()

    @pytest.mark.parametrize("method", ["nearest", "search", "gptq"])
    def test_threads_do_not_change_a_byte(self, quantized, models, text, method):
        words = ["--type", "w3g32", "--method", method]
        words += [] if method == "nearest" else ["--calibrate", text]
        first, second = (quantized(models("llama"), *words, "--threads", n, out=f"{n}")[0] for n in (1, 3))
        assert files_of(first) == files_of(second)
