"""Folders as GGUF files: the same logits, the same tokens, the same codes, and a sentence for what has no type."""

import json
import subprocess

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import gguf
import torch
from coded_folders import write_coded_folder
from llm_library import EXACT
from model_folders import write_folder, write_tokenizer_files, write_whole_folder
from ternary_folders import write_ternary_folder

TEXT = "The water of the river boils at 100 degrees."


@pytest.fixture
def convert(bie, tmp_path):
    def run(folder, *words):
        out = tmp_path / "out.gguf"
        process = subprocess.run(
            [bie, "convert", folder, "-o", out, *words], capture_output=True, text=True, check=False
        )
        return process, out

    return run


def converted(convert, folder, *words):
    process, out = convert(folder, *words)
    assert process.returncode == 0, process.stderr
    return out


def types_of(path) -> dict[str, str]:
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize(
    "kind", ["llama", "llama with biases", "llama3 llama", "yarn llama", "qwen2", "qwen3", "gemma3"]
)
def test_the_file_computes_what_the_folder_does(library, convert, tmp_path, kind):
    folder = tmp_path / "model"
    write_whole_folder(folder, kind)
    first, second = library.model(folder), library.model(converted(convert, folder))
    tokens = first.tokenize(TEXT)
    assert second.tokenize(TEXT) == tokens
    wanted, found = first.logits(tokens), second.logits(tokens)
    if "llama" in kind:  # the heads' elements stand in another order, and so are added in another
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    else:
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "q8_0"])
def test_types_of_matrices(convert, tmp_path, name):
    folder = tmp_path / "model"
    write_whole_folder(folder, "llama")
    types = types_of(converted(convert, folder, "--type", name))
    for tensor, found in types.items():
        assert found == ("F32" if "norm" in tensor else name.upper()), tensor


def test_floats_stay_what_they_are(convert, tmp_path):
    folder = tmp_path / "model"
    model = write_whole_folder(folder, "qwen2", torch.bfloat16)
    out = converted(convert, folder)
    assert types_of(out)["blk.0.ffn_up.weight"] == "BF16"
    tensors = {t.name: t for t in gguf.GGUFReader(out).tensors}
    wanted = model.state_dict()["model.layers.1.mlp.up_proj.weight"].view(torch.int16).numpy()
    assert np.array_equal(tensors["blk.1.ffn_up.weight"].data.view(np.int16).reshape(wanted.shape), wanted)


def test_rows_that_are_no_blocks_become_halves(convert, tmp_path):
    folder = tmp_path / "model"
    write_whole_folder(folder, "llama", intermediate_size=72)
    types = types_of(converted(convert, folder, "--type", "q8_0"))
    assert (types["blk.0.ffn_down.weight"], types["blk.0.ffn_up.weight"]) == ("F16", "Q8_0")


@pytest.mark.parametrize(
    ("name", "wanted"), [("symmetric gptq of 4 bits", "Q4_0"), ("symmetric gptq of 8 bits", "Q8_0")]
)
def test_codes_stay_codes_where_a_type_holds_them(library, convert, tmp_path, name, wanted):
    folder = tmp_path / "model"
    write_coded_folder(folder, name, vocabulary=write_tokenizer_files(folder))
    out = converted(convert, folder)
    assert types_of(out)["blk.1.attn_q.weight"] == wanted
    found, first = library.model(out).logits(range(40)), library.model(folder).logits(range(40))
    assert np.abs(found - first).max() <= 1e-5 * np.abs(first).max()


@pytest.mark.parametrize("name", ["gptq of 4 bits", "gptq of 3 bits, act-order", "greenbit channel-mix"])
def test_other_codes_want_a_type(library, convert, tmp_path, name):
    folder = tmp_path / "model"
    write_coded_folder(folder, name, vocabulary=write_tokenizer_files(folder))
    process, out = convert(folder)
    assert process.returncode != 0 and not out.exists()
    assert "a type of floats or Q8_0 opens such codes" in process.stderr
    opened = converted(convert, folder, "--type", "f32")
    found, first = library.model(opened).logits(range(40)), library.model(folder, EXACT).logits(range(40))
    assert np.abs(found - first).max() <= 1e-4 * np.abs(first).max()


def test_ternary_codes(library, convert, tmp_path):
    folder = tmp_path / "model"
    write_ternary_folder(
        folder,
        "autobitlinear",
        vocabulary=write_tokenizer_files(folder),
        scale=0.125,
        hidden_size=256,
        intermediate_size=256,
    )
    out = converted(convert, folder)
    assert types_of(out)["blk.0.attn_q.weight"] == "TQ2_0"
    found, first = library.model(out).logits(range(40)), library.model(folder).logits(range(40))
    assert np.abs(found - first).max() <= 1e-5 * np.abs(first).max()


@pytest.mark.parametrize("has_json", [False, True])
def test_a_sentencepiece_model(library, convert, tmp_path, has_json):
    """GGUF has a name for it, and for none of a tokenizer.json beside it that is no byte-level BPE."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    folder = tmp_path / "model"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT, "A river runs to the sea."] * 20),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    write_folder(folder, "llama", vocabulary=pieces.get_piece_size() + 2)
    if has_json:
        names = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
        wordlevel = {"type": "WordPiece", "vocab": names, "unk_token": "<unk>", "continuing_subword_prefix": "##"}
        (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": wordlevel}))
    model = library.model(converted(convert, folder))
    assert model.tokenize(TEXT) == pieces.encode(TEXT)


def test_metadata_and_template(convert, tmp_path):
    folder = tmp_path / "River-1B"
    write_whole_folder(folder, "llama")
    fields = {key: field.contents() for key, field in gguf.GGUFReader(converted(convert, folder)).fields.items()}
    assert fields["general.name"] == "River-1B"
    assert fields["general.file_type"] == 0
    assert fields["tokenizer.ggml.model"] == "gpt2"
    assert fields["tokenizer.ggml.pre"] == "gpt-2"
    assert fields["tokenizer.ggml.tokens"][-1].startswith("[PAD")
    assert fields["tokenizer.chat_template"] == (folder / "chat_template.jinja").read_text()
    assert fields["llama.vocab_size"] == len(fields["tokenizer.ggml.tokens"])


class TestRefusals:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "model"
        write_whole_folder(folder, "llama")
        return folder

    def test_an_output_that_is_an_input(self, bie, folder):
        weights = folder / "model.safetensors"
        before = weights.read_bytes()
        process = subprocess.run([bie, "convert", folder, "-o", weights], capture_output=True, text=True, check=False)
        assert process.returncode != 0 and "is a file of the model" in process.stderr
        assert weights.read_bytes() == before

    def test_a_file_is_no_folder(self, convert, models):
        process, _ = convert(models("llama"))
        assert process.returncode != 0 and "expected a folder of a model, got a GGUF file" in process.stderr

    def test_no_tokenizer(self, convert, folder):
        (folder / "tokenizer.json").unlink()
        process, out = convert(folder)
        assert process.returncode != 0 and "tokenizer" in process.stderr and not out.exists()

    def test_more_tokens_than_rows(self, convert, folder):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        first = len(tokenizer["model"]["vocab"])
        for i in range(5):
            tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": first + i, "content": f"<|{i}|>"})
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        process, _ = convert(folder)
        assert process.returncode != 0 and "expected at most as many tokens as rows" in process.stderr

    def test_nothing_is_left_of_a_failed_write(self, convert, tmp_path):
        folder = tmp_path / "codes"
        write_coded_folder(folder, "gptq of 4 bits", vocabulary=write_tokenizer_files(folder))
        out = tmp_path / "out.gguf"
        out.write_text("old")
        process, _ = convert(folder)
        assert process.returncode != 0 and out.read_text() == "old"
        assert [p.name for p in tmp_path.iterdir() if "out.gguf" in p.name] == ["out.gguf"]
