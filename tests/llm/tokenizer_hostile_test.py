"""Files of tokenizers that are damaged, not read, or made to take minutes: one sentence, or an answer in time."""

import json
import struct

import pytest
from tokenizer_lines import tokenized

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3}, "merges": [["a", "b"]], "unk_token": "<unk>"}
UNIGRAM = {"type": "Unigram", "vocab": [["<unk>", 0], ["a", -1], ["b", -2.5]], "unk_id": 0}
WORDS = {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##a": 2, "##b": 3}, "unk_token": "[UNK]"}


def bpe(**changes) -> dict:
    return {"model": BPE | changes}


def with_part(**parts) -> dict:
    return {"model": BPE} | parts


def split(pattern: str) -> dict:
    return with_part(pre_tokenizer={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"})


def nested(levels: int) -> str:
    return '{"x": ' + "[" * levels + "]" * levels + "}"


FILES = {
    "no JSON": ("{]", "expected JSON, got something else at byte 2"),
    "a zero byte": ("{\0}", "expected JSON, got a zero byte"),
    "a list": ("[]", "expected fields of Protocol Buffers"),
    "deep": (nested(40), "expected JSON of at most 32 levels"),
    "deeper": (nested(100_000), "expected JSON of at most 32 levels"),
    "a key twice": ('{"a": 1, "a": 2}', 'expected every key once, got "a" twice'),
    "no model": ({}, '"model": expected an object, got null'),
    "words": ({"model": {"type": "WordLevel", "vocab": {}}}, 'expected BPE, Unigram or WordPiece, got "WordLevel"'),
    "no tokens": (bpe(vocab={}, merges=[]), "expected tokens, got none"),
    "a number below 0": (bpe(vocab={"a": -1}), 'token "a": expected a number below 100001, got -1'),
    "a number too large": (bpe(vocab={"a": 1 << 40}), "expected a number below 100001, got 1099511627776"),
    "a number twice": (bpe(vocab={"a": 0, "b": 0}), 'token 0: expected one name, got "a" and "b"'),
    "numbers of another kind": (bpe(vocab={"a": 0.5}), '"vocab": expected numbers of tokens'),
    "scores in BPE": (bpe(vocab=[["a", 0.5]]), '"vocab": expected scores of tokens in a Unigram model'),
    "a merge of one": (bpe(merges=[["a"]]), '"merges": expected pairs of two tokens'),
    "a merge of three": (bpe(merges=[["a", "b", "a"]]), '"merges": expected pairs of two tokens'),
    "a merge without a space": (bpe(merges=["ab"]), 'merge 0: expected two tokens, got "ab"'),
    "a merge of no token": (bpe(merges=[["b", "a"]]), 'merge 0, "b a": expected tokens of the vocabulary, got "ba"'),
    "merges of numbers": (bpe(merges=[1]), '"merges": expected pairs'),
    "dropout": (bpe(dropout=0.1), "expected no dropout, got 0.1"),
    "a suffix": (bpe(end_of_word_suffix="</w>"), 'expected no end_of_word_suffix, got "</w>"'),
    "a prefix": (bpe(continuing_subword_prefix="##"), "expected no continuing_subword_prefix"),
    "an unread normaliser": (with_part(normalizer={"type": "Nmt"}), 'Strip or StripAccents, got "Nmt"'),
    "no type": (with_part(normalizer={}), 'Strip or StripAccents, got ""'),
    "an unread cut": (with_part(pre_tokenizer={"type": "UnicodeScripts"}), 'WhitespaceSplit, got "UnicodeScripts"'),
    "an unread decoder": (with_part(decoder={"type": "CTC"}), 'or WordPiece, got "CTC"'),
    "steps": (
        with_part(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}] * 100_000}),
        '"pre_tokenizer": expected at most 64 steps',
    ),
    "a template of pairs": (
        with_part(
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}],
            }
        ),
        "expected a template with a text, got one with two",
    ),
    "a token around texts": (
        with_part(post_processor={"type": "BertProcessing", "sep": ["x", 9], "cls": ["x", 0]}),
        '"post_processor": expected a token from 0 to 3, got 9',
    ),
    "an added token": (
        with_part(added_tokens=[{"id": 300_000, "content": "x", "special": True}]),
        'token "x": expected a number below 100005, got 300000',
    ),
    "a long name": (
        with_part(added_tokens=[{"id": 4, "content": "x" * 2000, "special": True}]),
        "special token 4: expected a name of at most 1024 bytes, got 2000",
    ),
    "half a pattern": (split("(a"), "expected a regular expression, got one with an error"),
    "an intersection": (split("[a&&b]"), "got an intersection of classes"),
    "a hexadecimal digit": (split(r"\h"), r"got \h"),
    "a verb": (split("(*ACCEPT)a"), "got a verb"),
    "a backreference": (split(r"(a)\1"), r"got \1"),
    "a recursion": (split("(?R)"), "another option than i and x"),
    "a charsmap of letters": (
        with_part(normalizer={"type": "Precompiled", "precompiled_charsmap": "????"}),
        "precompiled_charsmap: expected base64",
    ),
    "a charsmap too short": (
        with_part(normalizer={"type": "Precompiled", "precompiled_charsmap": "////fwAA"}),
        "precompiled_charsmap: expected units of 4 bytes within 2 bytes",
    ),
    "no pairs": ({"model": UNIGRAM | {"vocab": [["a"]]}}, '"vocab": expected pairs of a token and a score'),
    "an unknown piece": ({"model": UNIGRAM | {"unk_id": 3}}, '"unk_id": expected a token from 0 to 2, got 3'),
    "long words": (
        {"model": WORDS | {"max_input_chars_per_word": 10**9}},
        '"max_input_chars_per_word": expected at most 1000, got 1000000000',
    ),
    "half a message": (b"\x0a\x05\x0a", "expected fields of Protocol Buffers"),
    "nothing": (b"", "expected pieces, got none"),
    "a group": (b"\x0b", "expected fields of Protocol Buffers"),
    "a piece of no kind": (b"\x0a\x05\x0a\x01a\x18\x09", "piece 0: expected a type from 1 to 6, got 9"),
    "no unknown piece": (b"\x0a\x03\x0a\x01a", "expected an unknown piece, got none"),
    "a model of words": (b"\x0a\x05\x0a\x01a\x18\x02\x12\x02\x18\x03", "got one of words"),
    "a piece twice": (
        b"\x0a\x05\x0a\x01u\x18\x02" + b"\x0a\x03\x0a\x01a" * 2,
        'expected every token once, got "a" twice',
    ),
    "a score that is none": (
        b"\x0a\x05\x0a\x01u\x18\x02\x0a\x08\x0a\x01a\x15" + struct.pack("<f", float("nan")),
        "expected a number as the score of token 1",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_refused_by_one_sentence(name, build, tmp_path):
    content, sentence = FILES[name]
    data = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        tokenized(build, path, ["a"])
    assert sentence in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_a_tokenizer(build, tmp_path):
    with pytest.raises(ValueError, match=r"expected tokenizer.json or tokenizer.model, got neither"):
        tokenized(build, tmp_path, ["a"])


def doubling() -> dict:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return with_part(normalizer={"type": "Sequence", "normalizers": [step] * 60})


GIVES_UP = {
    "a pattern that backtracks": (
        split("(a+)+$"),
        "a" * 40 + "b",
        "the tokenizer's pattern takes too many steps on it",
    ),
    "a text that doubles": (
        doubling(),
        "a" * 1000,
        "a text is not normalised: expected at most 64 times its 1000 bytes",
    ),
}


@pytest.mark.parametrize("name", GIVES_UP)
def test_texts_that_cannot_be_read_are_refused_by_one_sentence(name, build, tmp_path):
    file, text, sentence = GIVES_UP[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    found = tokenized(build, tmp_path, [text, "b"])
    assert sentence in found.texts[0]["error"]
    assert found.tokens[1] == [1]


def pieces_of_a(count: int) -> dict:
    return UNIGRAM | {"vocab": [["<unk>", 0], *(["a" * n, -0.5 * n**0.5] for n in range(1, count))]}


def word(**changes) -> dict:
    return {"model": WORDS | changes, "pre_tokenizer": {"type": "WhitespaceSplit"}}


def named(name: str, **flags) -> dict:
    return with_part(added_tokens=[{"id": 4, "content": name, "special": False, "normalized": False} | flags])


LONG = {
    "BPE without cuts": ({"model": BPE}, "ab" * 150_000, [2] * 150_000),
    "BPE of what is unknown": ({"model": BPE}, "x" * 300_000, [3] * 300_000),
    "Unigram of long pieces": ({"model": pieces_of_a(400)}, "a" * 150_000, None),
    "a long word": (word(), "a" * 1_000_000, [0]),
    "words of many parts": (word(max_input_chars_per_word=1000), ("a" * 999 + " ") * 200, [1, *[2] * 998] * 200),
    "words that fail at their end": (word(max_input_chars_per_word=1000), ("a" * 999 + "x ") * 200, [0] * 200),
    "marks out of order": (
        with_part(
            normalizer={"type": "NFC"},
            pre_tokenizer={"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"},
        ),
        "a" + "\u0315\u0316" * 100_000,
        [0, *[3] * 200_000],
    ),
    "a long name that fails": (named("a" * 1000 + "c"), "a" * 60_000, [0] * 60_000),
    "spaces that are names": (named("\u3000", lstrip=True, rstrip=True), "\u3000" * 100_000, [4] * 100_000),
    "spaces": (split(r"\s+(?!\S)|\s*[\r\n]+|\s+"), " " * 300_000, [3] * 300_000),
}


@pytest.mark.parametrize("name", LONG)
def test_long_texts_take_no_minutes(name, build, tmp_path):
    file, text, wanted = LONG[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    found = tokenized(build, tmp_path, [text], timeout=20).tokens[0]
    assert found == wanted if wanted else sum(len("a" * n) for n in found) == len(text)
