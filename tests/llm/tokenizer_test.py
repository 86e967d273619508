"""Tokens of ten thousand strings against PyPI's tokenizers, built from the same vocabulary and merges."""

import json
import os
import random
import subprocess
import unicodedata
from dataclasses import dataclass
from pathlib import Path

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
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = [rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"]
CASED_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [WORDS + r"\p{N}{1,3}" + REST],
    "qwen2": [WORDS + r"\p{N}" + REST],
    "smaug-bpe": [WORDS + r"\p{N}{1,3}" + REST],
    "qwen35": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK],
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"],
    "tekken": ["|".join([*CASED, r"\p{N}", CASED_REST])],
    "gpt-4o": ["|".join([*(part + ENDING for part in CASED), r"\p{N}{1,3}", CASED_REST])],
    "seed-coder": [WORDS + r"\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
}
FIRST = ["gpt-2", "smollm", "llama-bpe", "qwen2"]  # tried on the real vocabulary too
WHOLE_FIRST = ["llama-bpe", "tekken"]


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


def made_pair(rule: str, facts: Facts, library, path):
    """Ours and theirs, of the same rule."""

    def add(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(rule)
        writer.add_token_types(facts.kinds)
        writer.add_token_merges(facts.merges)

    write_model_with_tokenizer(path, facts.tokens, add)
    ids = {token: i for i, token in enumerate(facts.tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in facts.merges]
    theirs = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=rule in WHOLE_FIRST))
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[rule]]
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(False, use_regex=False)])
    theirs.add_special_tokens([t for t, kind in zip(facts.tokens, facts.kinds, strict=True) if kind in (3, 4)])
    return library.model(path), theirs


@pytest.fixture(scope="session", params=FIRST)
def pair(request, facts, library, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    return made_pair(request.param, facts, library, folder / f"{request.param}.gguf")


def expect_the_same_tokens(ours, theirs, texts: list[str]) -> None:
    wanted = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    found = [ours.tokenize(text) for text in texts]
    differences = [(t, f, w) for t, f, w in zip(texts, found, wanted, strict=True) if f != w]
    assert not differences, f"{len(differences)}: {differences[:3]}"


def test_ten_thousand_strings_have_the_same_tokens(pair):
    expect_the_same_tokens(*pair, strings(10000))


@pytest.mark.parametrize("rule", [rule for rule in PATTERNS if rule not in FIRST])
def test_strings_have_the_same_tokens_by_other_rules(rule, library, tmp_path):
    # Characters that a version of Unicode lacks are no letters and no signs to the one side alone.
    texts = [text for text in strings(2500) if "Cn" not in map(unicodedata.category, text)]
    assert len(texts) > 1000
    expect_the_same_tokens(*made_pair(rule, trained_facts(), library, tmp_path / "a.gguf"), texts)


@pytest.fixture
def run_bie(bie):
    def call(*words, stdin: str = "") -> bytes:
        return subprocess.run([bie, *words], input=stdin.encode(), capture_output=True, timeout=60, check=True).stdout

    return call


def vocabularies() -> list[Path]:
    """Those of the source package of llama-cpp-python, which is not part of this tree; texts and tokens lie beside."""
    root = Path(__file__).parents[2]
    folder = os.environ.get("BIE_VOCABULARIES")
    return sorted(Path(folder).glob("*.inp") if folder else root.glob("build/llama-cpp-python/**/models/*.inp"))


@pytest.mark.parametrize("texts", vocabularies() or [None], ids=lambda path: path.name if path else "none")
def test_real_vocabularies_give_the_tokens_that_lie_beside_them(texts, run_bie):
    if texts is None:
        pytest.skip("the source package of llama-cpp-python is not unpacked in build/llama-cpp-python")
    model, wanted = texts.with_suffix(""), texts.with_suffix(".out").read_text().split("\n")
    for text, line in zip(texts.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n"), wanted, strict=False):
        tokens = json.loads(run_bie("tokenize", model, "--file", "-", "--json", stdin=text))["tokens"]
        # With or without the tokens that stand around a text.
        assert [int(word) for word in line.split()] in (tokens, tokens[1:], tokens[1:-1]), text


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
