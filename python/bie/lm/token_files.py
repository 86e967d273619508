"""Folders of tokens: documents as tokens in mapped files, which are there as a whole or not at all."""

from __future__ import annotations

import array
import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bie.lm.encoding import Encoded

_FACTS = "texts.json"
_ENDINGS = ("tokens", "counts", "starts")


class TokenSet(NamedTuple):
    """Documents as tokens, one behind the other, in mapped files.

    ======  =====================================================================
    tokens  [n] uint16 or uint32
    counts  [n] uint8, 1 where a token counts in the loss, else 0
    starts  [documents + 1] int64, where each document starts; the last one is n
    ======  =====================================================================
    """

    tokens: np.ndarray
    counts: np.ndarray
    starts: np.ndarray


class TokenizedTexts(NamedTuple):
    """A set of documents for training, and another one for validation or None.

    ``vocabulary`` is the largest token plus one. ``duplicates`` says how many documents were left out because an equal
    one was found before them, and ``empty`` how many because they hold nothing but white space or no token that counts.
    """

    training: TokenSet
    validation: TokenSet | None
    vocabulary: int
    duplicates: int
    empty: int


class SetWriter:
    """Writes the documents of a set as files of a folder."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype) -> None:
        self._paths = [folder / f"{name}.{ending}" for ending in _ENDINGS]
        self._dtype, self._starts = dtype, array.array("q", [0])
        self._tokens, self._counts = (path.open("xb") for path in self._paths[:2])

    @property
    def documents(self) -> int:
        """How many documents were added."""
        return len(self._starts) - 1

    def add(self, document: Encoded) -> None:
        """Appends a document."""
        self._tokens.write(document.tokens.astype(self._dtype).data)
        self._counts.write(document.counts.data)
        self._starts.append(self._starts[-1] + len(document.tokens))

    def close(self) -> None:
        """Ends the files of tokens, and writes where documents start."""
        with self._paths[2].open("xb") as starts:
            starts.write(self._starts.tobytes())
            for file in (self._tokens, self._counts, starts):
                file.flush()
                os.fsync(file.fileno())
        self.abandon()

    def abandon(self) -> None:
        """Closes the files as they are."""
        self._tokens.close()
        self._counts.close()


def write_facts(folder: Path, dtype: np.dtype, facts: dict[str, int]) -> None:
    """Writes the type of tokens, the facts of both sets and the sizes of all files: the last file of a whole folder."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    with (folder / _FACTS).open("x", encoding="utf-8") as file:
        json.dump({"schema": 1, "tokens": dtype.name, **facts, "files": sizes}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def is_whole(folder: Path) -> bool:
    """Whether a folder holds all files with the sizes that they were written with."""
    try:
        sizes = json.loads((folder / _FACTS).read_bytes())["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        return False


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """A folder to write into that takes the place of ``target`` when the block ends.

    A write that fails leaves nothing. One that is killed leaves a folder with another name, which nobody reads. If
    another process has put a whole folder there meanwhile, that one stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    scratch.mkdir()
    try:
        yield scratch
        if not is_whole(target):
            if target.exists():
                shutil.rmtree(target)
            try:
                os.replace(scratch, target)
            except OSError:
                if not is_whole(target):
                    raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def open_texts(folder: Path) -> TokenizedTexts:
    """The sets of a whole folder."""
    facts = json.loads((folder / _FACTS).read_bytes())
    dtype, names = np.dtype(facts["tokens"]), ("vocabulary", "duplicates", "empty")
    training, validation = (_open_set(folder, name, dtype) for name in ("training", "validation"))
    if training is None:
        raise ValueError(f"{folder}: expected a set for training, got none")
    return TokenizedTexts(training, validation, *(facts[name] for name in names))


def _open_set(folder: Path, name: str, dtype: np.dtype) -> TokenSet | None:
    paths = [folder / f"{name}.{ending}" for ending in _ENDINGS]
    if not paths[0].stat().st_size:  # no file of nothing can be mapped
        return None
    types = (dtype, np.dtype(np.uint8), np.dtype(np.int64))
    return TokenSet(*(np.memmap(path, kind, "r") for path, kind in zip(paths, types, strict=True)))
