"""Tokens of many texts by bie::text, in one process, beside those of other libraries."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path


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


def tokenized(build: Path, path: Path, texts: list[str], special: bool = True) -> Lines:
    words = [build / "tests/text/bie_tokenize_lines", path, *([] if special else ["plain"])]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    process = subprocess.run(words, input=lines.encode(), capture_output=True, timeout=300, check=False)
    if process.returncode:
        raise ValueError(process.stderr.decode().strip())
    first, *rest = (json.loads(line) for line in process.stdout.decode().rstrip("\n").split("\n"))
    return Lines(first["before"], first["after"], first["size"], first["scheme"], rest)
