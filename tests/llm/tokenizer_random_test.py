"""Random tokenizer.json files against PyPI's tokenizers: any normalisers, pre-tokenizers, models and added tokens."""

import random

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from strings import strings
from tokenizer_lines import MARK, charsmap, known, tokenized
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

TEXTS = known(strings(1200))
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
PATTERNS = [
    r"\w+",
    r"\p{L}+|\p{N}",
    r" ",
    r"(?i:'s|'ll)| ?\p{L}+",
    r"\s+(?!\S)|\s+",
    r"(?=[A-Z])",
    "[0-9]{1,3}",
    r"[^\r\n\p{L}]?\p{L}+",
    r"$|\n",
]
NAMES = ["<b>", "user", "x", " y", "42", "ll", "\u00e9", "日", "| |", "'s"]


def normalizer(rng: random.Random):
    kind = rng.choice(
        [
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Lowercase",
            "StripAccents",
            "Strip",
            "Prepend",
            "Replace",
            "Bert",
            "Precompiled",
        ]
    )
    if kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        return getattr(normalizers, kind)()
    if kind == "Strip":
        return normalizers.Strip(rng.random() < 0.5, rng.random() < 0.5)
    if kind == "Prepend":
        return normalizers.Prepend(rng.choice([MARK, "a", " "]))
    if kind == "Replace":
        what = rng.choice([" ", "e", "  ", Regex(r"\s+"), Regex("[aeiou]{2}"), Regex(r"^\w")])
        return normalizers.Replace(what, rng.choice([MARK, "", " ", "xy"]))
    if kind == "Bert":
        strip = rng.choice([None, True, False])
        return normalizers.BertNormalizer(rng.random() < 0.5, rng.random() < 0.5, strip, rng.random() < 0.5)
    return normalizers.Precompiled(charsmap(rng.choice(["nmt_nfkc", "nfkc", "nmt_nfkc_cf"])))


def pre_tokenizer(rng: random.Random):
    kind = rng.choice(
        ["Split", "Split", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit", "Punctuation", "Bert", "ByteLevel"]
    )
    if kind == "Split":
        pattern = rng.choice([*map(Regex, PATTERNS), " ", "."])
        return pre_tokenizers.Split(pattern, rng.choice(BEHAVIORS), invert=rng.random() < 0.3)
    if kind == "Digits":
        return pre_tokenizers.Digits(rng.random() < 0.5)
    if kind == "Metaspace":
        return pre_tokenizers.Metaspace(
            prepend_scheme=rng.choice(["first", "always", "never"]), split=rng.random() < 0.7
        )
    if kind == "Punctuation":
        return pre_tokenizers.Punctuation(rng.choice(BEHAVIORS))
    if kind == "ByteLevel":
        return pre_tokenizers.ByteLevel(rng.random() < 0.5, use_regex=rng.random() < 0.5)
    return {"Bert": pre_tokenizers.BertPreTokenizer}.get(kind) or getattr(pre_tokenizers, kind)


def made(seed: int) -> Tokenizer:
    rng = random.Random(seed)
    texts = [text for text in rng.sample(TEXTS, 300) if all(c < "\u0530" for c in text)]
    kind = rng.choice(["BPE", "BPE", "Unigram", "WordPiece"])
    options = {"size": 600, "special_tokens": ["<unk>", "<s>"], "show_progress": False}
    if kind == "BPE":
        tokenizer = Tokenizer(
            models.BPE(unk_token="<unk>", fuse_unk=rng.random() < 0.5, ignore_merges=rng.random() < 0.2)
        )
        trainer = trainers.BpeTrainer(vocab_size=options.pop("size"), limit_alphabet=150, **options)
    elif kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=2000, unk_token="<unk>", special_tokens=["<unk>", "<s>"], show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=rng.choice([5, 100])))
        trainer = trainers.WordPieceTrainer(vocab_size=options.pop("size"), limit_alphabet=150, **options)
    steps = [normalizer(rng) for _ in range(rng.randrange(4))]
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    parts, has_bytes = [], False
    for _ in range(rng.randrange(4)):
        part = pre_tokenizer(rng)
        part = part() if isinstance(part, type) else part
        if isinstance(part, pre_tokenizers.ByteLevel):
            if has_bytes or kind != "BPE":
                continue
            has_bytes = True
        if has_bytes and isinstance(part, pre_tokenizers.Metaspace):
            continue
        parts.append(part)
    if parts:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.train_from_iterator(texts, trainer)
    for name in rng.sample(NAMES, rng.randrange(5)):
        flags = {flag: rng.random() < 0.3 for flag in ("single_word", "lstrip", "rstrip")}
        is_special = (
            rng.random() < 0.3 and tokenizer.token_to_id(name) is None
        )  # by merges such a token comes here never
        tokenizer.add_tokens([AddedToken(name, normalized=rng.random() < 0.6, special=is_special, **flags)])
    return tokenizer


@pytest.mark.parametrize("seed", range(12))
def test_random_tokenizers_give_the_same_tokens(seed, build, tmp_path):
    theirs = made(seed)
    theirs.save(str(tmp_path / "tokenizer.json"))
    texts = random.Random(seed).sample(TEXTS, 250)
    ours = tokenized(build, tmp_path / "tokenizer.json", texts)
    wanted = [encoding.ids for encoding in theirs.encode_batch(texts, add_special_tokens=False)]
    different = [(t, f, w) for t, f, w in zip(texts, ours.tokens, wanted, strict=True) if f != w]
    assert not different, f"seed {seed}: {len(different)}: {different[:3]}"
