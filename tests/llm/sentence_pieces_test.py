"""Tokens of ten thousand strings against PyPI's sentencepiece, from a model that it trains itself."""

import io
import json
import random
import subprocess

import pytest

pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import sentencepiece
from llm_library import Error
from small_models import write_model_with_tokenizer
from strings import strings

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
USER = ["\n", "\n\n", "\u2581\u2581\u2581", "<b>", "</b>"]
KINDS = {
    "llama 2": {"byte_fallback": True, "add_dummy_prefix": True},
    "gemma": {"byte_fallback": True, "add_dummy_prefix": False, "user_defined_symbols": USER},
    "prefix and user-defined": {"byte_fallback": True, "add_dummy_prefix": True, "user_defined_symbols": USER},
    "unknown characters": {"byte_fallback": False, "add_dummy_prefix": False},
}


def write(path, pieces, user: list[str], adds_space: bool, **changes) -> None:
    count = range(pieces.get_piece_size())
    tokens = [pieces.id_to_piece(i) for i in count]

    def kind(i: int) -> int:
        told = {UNKNOWN: pieces.is_unknown, CONTROL: pieces.is_control, UNUSED: pieces.is_unused, BYTE: pieces.is_byte}
        return next((k for k, is_so in told.items() if is_so(i)), USER_DEFINED if tokens[i] in user else NORMAL)

    def add(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_scores(changes.get("scores", [pieces.get_score(i) for i in count]))
        writer.add_token_types(changes.get("kinds", [kind(i) for i in count]))
        writer.add_bos_token_id(pieces.bos_id())
        writer.add_eos_token_id(pieces.eos_id())
        if not adds_space:
            writer.add_add_space_prefix(False)

    write_model_with_tokenizer(path, tokens, add)


def trained(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t.replace("\n", " ") for t in strings(20000) if all(c < "\u0530" for c in t)),
        model_writer=model,
        model_type="bpe",
        vocab_size=3000,
        character_coverage=0.98,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.fixture(scope="module", params=KINDS)
def pair(request, library, tmp_path_factory):
    options = KINDS[request.param]
    pieces = trained(**options)
    path = tmp_path_factory.mktemp("pieces") / "a.gguf"
    write(path, pieces, options.get("user_defined_symbols", []), options["add_dummy_prefix"])
    return library.model(path), pieces


def test_ten_thousand_strings_have_the_same_tokens(pair):
    ours, theirs = pair
    texts = [text for text in strings(10000) if "\0" not in text]
    wanted = theirs.encode(texts)
    found = [ours.tokenize(text, special=False) for text in texts]
    differences = [(t, f, w) for t, f, w in zip(texts, found, wanted, strict=True) if f != w]
    assert not differences, f"{len(differences)}: {differences[:3]}"


def test_texts_come_back(pair, request):
    ours, theirs = pair
    if "unknown" in request.node.callspec.id:
        assert ours.decode(ours.tokenize("a\U0001f9ff\U0001f9ffb")) == b"a<unk>b"
        return
    adds_space = ours.tokenize("x") != theirs.encode(" x") and ours.decode(ours.tokenize("x")) == b" x"
    rng = random.Random(3)
    texts = [text.encode() for text in strings(500)]
    texts += [bytes(rng.randrange(256) for _ in range(rng.randrange(40))) for _ in range(500)]
    for text in texts:
        prefix = b" " if adds_space and text else b""
        assert ours.decode(ours.tokenize(text, special=False)) == prefix + text.replace("\u2581".encode(), b" ")


def test_control_tokens_are_found_where_that_is_asked_for(pair):
    ours, theirs = pair
    end = theirs.eos_id()
    assert ours.tokenize("a</s>b", special=True) == [*theirs.encode("a"), end, *theirs.encode("b")]
    assert end not in ours.tokenize("a</s>b", special=False)
    assert ours.tokenize("a", begin=True) == [theirs.bos_id(), *theirs.encode("a")]
    assert ours.bytes_of(end, special=False) == b""


def test_the_command_decodes_without_the_space_that_was_put_before(bie, library, tmp_path):
    pieces = trained(byte_fallback=True)
    write(tmp_path / "a.gguf", pieces, [], True)

    def said(*words):
        process = subprocess.run(
            [str(bie), "tokenize", str(tmp_path / "a.gguf"), *words, "--json"], capture_output=True, timeout=60
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    for text in ("Some words", " Some words", "a</s> b"):
        tokens = said("--text", text)["tokens"]
        assert tokens[0] == pieces.bos_id()
        assert said("--decode", ",".join(map(str, tokens[1:])))["text"] == text.replace("</s> ", "</s>  ")
        assert said("--decode", ",".join(map(str, tokens)))["text"] == "<s>" + text.replace("</s> ", "</s>  ")


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000, "ab" * 100_000 + "!", "\n x" * 60_000])
def test_long_texts_take_no_minutes(pair, text):
    ours, theirs = pair
    wanted = text.replace("\n", "<unk>") if theirs.piece_to_id("<0x0A>") == theirs.unk_id() else text
    assert ours.decode(ours.tokenize(text, special=False)).strip() == wanted.strip().encode()


CHANGES = {
    "too few scores": (lambda count: {"scores": [0.0]}, "expected {} scores of tokens, got 1"),
    "a score of NaN": (
        lambda count: {"scores": [float("nan")] * count},
        "expected a number as the score of token 0, got NaN",
    ),
    "a byte that is none": (
        lambda count: {"kinds": [BYTE] * count},
        'expected a byte\'s token such as "<0x0A>", got "<unk>"',
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_vocabularies_are_refused(library, tmp_path, change):
    pieces = trained(byte_fallback=True)
    changes, sentence = CHANGES[change]
    count = pieces.get_piece_size()
    write(tmp_path / "a.gguf", pieces, [], True, **changes(count))
    with pytest.raises(Error, match=sentence.format(count)):
        library.model(tmp_path / "a.gguf").tokenize("a")
