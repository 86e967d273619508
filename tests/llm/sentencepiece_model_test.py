"""Tokens and texts of .model files against PyPI's sentencepiece, which trains them here."""

import io

import pytest

pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

import sentencepiece
from strings import strings
from tokenizer_lines import tokenized

USER = ["<b>", "</b>", "C++", "\u2581\u2581\u2581", "a b"]
IDENTITY = {"normalization_rule_name": "identity"}
KINDS = {
    "llama 2": {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False} | IDENTITY,
    "gemma": {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False, "remove_extra_whitespaces": False}
    | {"user_defined_symbols": USER}
    | IDENTITY,
    "bpe nmt_nfkc": {"model_type": "bpe"},
    "bpe nfkc_cf, user-defined": {
        "model_type": "bpe",
        "normalization_rule_name": "nfkc_cf",
        "user_defined_symbols": USER,
        "byte_fallback": True,
    },
    "t5": {"model_type": "unigram", "bos_id": -1, "pad_id": 0, "eos_id": 1, "unk_id": 2},
    "unigram identity": {"model_type": "unigram", "remove_extra_whitespaces": False} | IDENTITY,
    "unigram bytes": {"model_type": "unigram", "byte_fallback": True, "add_dummy_prefix": False},
    "unigram user-defined": {
        "model_type": "unigram",
        "user_defined_symbols": USER,
        "normalization_rule_name": "nmt_nfkc_cf",
    },
    "unigram control": {"model_type": "unigram", "control_symbols": ["<x>"], "normalization_rule_name": "nfkc"},
}
TEXTS = [text for text in strings(2000) if "\0" not in text] + [
    "  a  b ",
    "a b",
    "<b> x</b>",
    "   ",
    "\u3000\uff21",
    "C++\u2581x",
]


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t.replace("\n", " ") for t in strings(6000) if all(c < "\u0530" for c in t)),
        model_writer=model,
        vocab_size=1200,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
        **KINDS[request.param],
    )
    path = tmp_path_factory.mktemp("models") / "tokenizer.model"
    path.write_bytes(model.getvalue())
    return path, sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def first_differences(found, wanted) -> str:
    different = [(t, f, w) for t, f, w in zip(TEXTS, found, wanted, strict=True) if f != w]
    return f"{len(different)}: {different[:3]}" if different else ""


def test_texts_have_the_same_tokens_and_come_back_alike(pair, build):
    path, theirs = pair
    ours = tokenized(build, path, TEXTS, special=False)
    wanted = theirs.encode(TEXTS)
    assert not first_differences(ours.tokens, wanted)
    assert ours.size == theirs.get_piece_size()
    assert ours.scheme in ("llama", "t5")
    decoded = [theirs.decode(ids).replace(" \u2047 ", "<unk>") for ids in wanted]
    assert not first_differences([line["text"] for line in ours.texts], decoded)
