"""Tokens and texts of tokenizer.json files against PyPI's tokenizers, which trains them here."""

import unicodedata

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from strings import strings
from tokenizer_lines import tokenized
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
MARK = "\u2581"


def byte_level(pre=None, normalizer=None, **options) -> Tokenizer:
    made = Tokenizer(models.BPE(**options))
    if normalizer:
        made.normalizer = normalizer
    made.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=CONTROL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(strings(1500), trainer)
    return made


def then_bytes(*steps):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2() -> Tokenizer:
    return byte_level()


def qwen() -> Tokenizer:
    return byte_level(then_bytes(pre_tokenizers.Split(Regex(WORDS + REST), "isolated")), normalizers.NFC())


def llama3() -> Tokenizer:
    made = byte_level(then_bytes(pre_tokenizers.Split(Regex(WORDS + "{1,3}" + REST), "isolated")), ignore_merges=True)
    begin = made.token_to_id("<|im_start|>")
    made.post_processor = processors.TemplateProcessing("<|im_start|> $A", special_tokens=[("<|im_start|>", begin)])
    return made


def starcoder() -> Tokenizer:
    return byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)])
    )


def falcon() -> Tokenizer:
    steps = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(False), pre_tokenizers.Digits(False)]
    return byte_level(pre_tokenizers.Sequence([*steps, pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))


def prefix_space() -> Tokenizer:
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    made.post_processor = processors.RobertaProcessing(("<|im_end|>", 1), ("<|im_start|>", 0))
    return made


def added_tokens() -> Tokenizer:
    made = byte_level()
    made.add_tokens(
        [AddedToken("ll"), AddedToken("user", single_word=True), AddedToken("42", lstrip=True, rstrip=True)]
    )
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


KINDS = [gpt2, qwen, llama3, starcoder, falcon, prefix_space, added_tokens]
MORE = [
    "Hello, world!  It's 42 degrees. ",
    "x  42  y",
    "user users a user.",
    "all well ll",
    " <mask> a<mask>b",
    "<b>x</b>",
]


def known(texts: list[str]) -> list[str]:
    """Without characters that a version of Unicode lacks: tokenizers knows the punctuation of Unicode 8."""
    return [t for t in texts if not any(c == "\u061d" or unicodedata.category(c) in ("Cn", "Cs") for c in t)]


TEXTS = known(strings(2000) + MORE)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def pair(request, tmp_path_factory):
    theirs = request.param()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    theirs.save(str(path))
    return path, theirs


def first_differences(texts, found, wanted) -> str:
    different = [(t, f, w) for t, f, w in zip(texts, found, wanted, strict=True) if f != w]
    return f"{len(different)} of {len(texts)}: {different[:3]}" if different else ""


def test_texts_have_the_same_tokens_and_come_back_alike(pair, build):
    path, theirs = pair
    ours = tokenized(build, path, TEXTS)
    wanted = [e.ids for e in theirs.encode_batch(TEXTS, add_special_tokens=False)]
    assert not first_differences(TEXTS, ours.tokens, wanted)
    assert ours.size == theirs.get_vocab_size()
    assert not first_differences(TEXTS, [line["text"] for line in ours.texts], theirs.decode_batch(wanted))
    around = theirs.encode("a").ids
    assert around == [*ours.before, *theirs.encode("a", add_special_tokens=False).ids, *ours.after]
