"""Tokens of many texts by bie::text, in one process, beside those of other libraries."""

import io
import json
import subprocess
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import pytest

MARK = "\u2581"


@dataclass
class Lines:
    """What bie_tokenize_lines says of a tokenizer and of each text."""

    before: list[int]
    after: list[int]
    size: int
    scheme: str
    texts: list[dict]

    @property
    def tokens(self) -> list:
        return [line.get("tokens", line.get("error")) for line in self.texts]


def tokenized(build: Path, path: Path, texts: list[str], special: bool = True, timeout: float = 300) -> Lines:
    words = [build / "tests/text/bie_tokenize_lines", path, *([] if special else ["plain"])]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    process = subprocess.run(words, input=lines.encode(), capture_output=True, timeout=timeout, check=False)
    if process.returncode:
        raise ValueError(process.stderr.decode().strip())
    first, *rest = (json.loads(line) for line in process.stdout.decode().rstrip("\n").split("\n"))
    return Lines(first["before"], first["after"], first["size"], first["scheme"], rest)


def known(texts: list[str]) -> list[str]:
    """Without characters that a version of Unicode lacks: tokenizers knows the punctuation of Unicode 8."""
    return [t for t in texts if not any(c in "\u061d\u08e2" or unicodedata.category(c) in ("Cn", "Cs") for c in t)]


def charsmap(rule: str) -> bytes:
    """The rules of characters that PyPI's sentencepiece writes into its models."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d"] * 9),
        model_writer=model,
        vocab_size=8,
        normalization_rule_name=rule,
        minloglevel=2,
    )
    from sentencepiece import sentencepiece_model_pb2 as pb

    return pb.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap
