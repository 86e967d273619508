"""Tokens of ten thousand strings against PyPI's tokenizers, built from the same vocabulary and merges."""

import json
import random
from dataclasses import dataclass

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

import gguf
from llm_library import Error
from small_models import write_model_with_tokenizer
from strings import strings
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

# As the tokenizer.json of each family writes it down.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [WORDS + r"\p{N}{1,3}" + REST],
    "qwen2": [WORDS + r"\p{N}" + REST],
}
RULES = list(PATTERNS)


@dataclass
class Facts:
    """A vocabulary of byte-level BPE; the kind of a control token is 3."""

    tokens: list[str]
    merges: list[str]
    kinds: list[int]


CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def trained_facts() -> Facts:
    """2,000 tokens, learnt from the strings below by tokenizers itself."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=CONTROL, initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator(strings(4000), trainer)
    model = json.loads(learner.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return Facts(tokens, [" ".join(pair) for pair in model["merges"]], [3 if t in CONTROL else 1 for t in tokens])


def real_facts(path) -> Facts:
    reader = gguf.GGUFReader(path)
    names = ("tokens", "merges", "token_type")
    return Facts(*(reader.fields[f"tokenizer.ggml.{name}"].contents() for name in names))


@pytest.fixture(scope="session", params=["trained", "smollm"])
def facts(request):
    return trained_facts() if request.param == "trained" else real_facts(request.getfixturevalue("smollm"))


@pytest.fixture(scope="session", params=RULES)
def pair(request, facts, library, tmp_path_factory):
    """Ours and theirs, of the same rule."""
    path = tmp_path_factory.mktemp("tokenizers") / f"{request.param}.gguf"

    def add(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(request.param)
        writer.add_token_types(facts.kinds)
        writer.add_token_merges(facts.merges)

    write_model_with_tokenizer(path, facts.tokens, add)
    ids = {token: i for i, token in enumerate(facts.tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in facts.merges]
    theirs = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=request.param == "llama-bpe"))
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[request.param]]
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(False, use_regex=False)])
    theirs.add_special_tokens([t for t, kind in zip(facts.tokens, facts.kinds, strict=True) if kind in (3, 4)])
    return library.model(path), theirs


def test_ten_thousand_strings_have_the_same_tokens(pair):
    ours, theirs = pair
    texts = strings(10000)
    wanted = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    found = [ours.tokenize(text) for text in texts]
    differences = [(t, f, w) for t, f, w in zip(texts, found, wanted, strict=True) if f != w]
    assert not differences, f"{len(differences)}: {differences[:3]}"


def test_bytes_of_any_kind_come_back(pair, facts):
    ours, _ = pair
    known = {ours.bytes_of(i) for i, kind in enumerate(facts.kinds) if kind == 1}
    missing = {b for b in range(256) if bytes([b]) not in known}
    rng = random.Random(3)
    texts = [text.encode() for text in strings(500)]
    texts += [bytes(rng.randrange(256) for _ in range(rng.randrange(40))) for _ in range(500)]
    texts += [b"\xff\xfe", b"a\x80b", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe4\xbd", b"\x00"]
    for text in texts:
        kept = bytes(b for b in text if b not in missing)
        assert ours.decode(ours.tokenize(text)) == kept
        assert ours.decode(ours.tokenize(text, special=False)) == kept


def test_names_of_control_tokens_are_text_where_that_is_asked_for(pair, facts):
    ours, _ = pair
    start = facts.tokens.index("<|im_start|>")
    assert ours.tokenize("<|im_start|>user")[0] == start
    plain = ours.tokenize("<|im_start|>user", special=False)
    assert start not in plain
    assert ours.decode(plain) == b"<|im_start|>user"
    assert ours.bytes_of(start, special=False) == b""


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000, "ab" * 100_000 + "!", "<" * 100_000, "\n x" * 60_000])
def test_long_texts_take_no_minutes(pair, text):
    ours, _ = pair
    assert ours.decode(ours.tokenize(text)) == text.encode()


def test_a_token_out_of_range(pair, facts):
    ours, _ = pair
    count = len(facts.tokens)
    with pytest.raises(Error, match=f"expected tokens from 0 to {count - 1}, got {count}"):
        ours.bytes_of(count)
