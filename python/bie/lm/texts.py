"""Texts as tokens in mapped files: they are made once, and used again while their inputs are the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bie.lm.documents import Document, documents_of, is_json_lines
from bie.lm.encoding import Encoded, Encoder
from bie.lm.token_files import SetWriter, TokenizedTexts, is_whole, open_texts, replacing_folder, write_facts

_FORM = 1  # of the files and of the tokens in them; it is part of the name of a folder
_BATCH_BYTES, _BATCH_DOCUMENTS = 1 << 20, 512

Progress = Callable[[int, int], None]


def tokenize(
    paths: Sequence[str | os.PathLike] | str | os.PathLike,
    tokenizer: Any,
    folder: str | os.PathLike,
    *,
    validation: float = 0.02,
    vocab_size: int | None = None,
    progress: Progress | None = None,
) -> TokenizedTexts:
    """The tokens of the documents of files, in mapped files of a folder.

    ``bie.lm.documents`` tells what documents are, ``bie.lm.encoding`` which tokens they become. A document is for
    validation if the first 8 bytes of its SHA-256, as a big-endian number, are below ``validation * 2**64``. The first
    of equal documents is kept. Files are read in the order of the SHA-256 of their contents, so neither their names nor
    the order of ``paths`` matter.

    ``folder`` gets one folder for each set of inputs, whose name is a hash of the contents, the tokenizer and the
    options. That folder is moved to its place when it is whole, and is used again by later calls for the same inputs.

    Args:
        paths: text files and ``.jsonl`` files; one or several.
        tokenizer: of transformers.
        folder: where the tokens are kept; made if it is not there.
        validation: the share of the documents for validation, in [0, 1); at 0 there is no such set.
        vocab_size: how many tokens the model knows; None for any number.
        progress: called with the bytes that are done and with the bytes of all files.

    Raises:
        ValueError: files without documents; a set that is empty; a document that cannot be read; a token that the
            model does not know. One sentence, which names the file and the line if it is about a document.

    Example::

        texts = tokenize(["book.txt", "chats.jsonl"], tokenizer, "tokens", vocab_size=model.config.vocab_size)
        rows = Rows(texts, context=1024, seed=0)
    """
    if not 0 <= validation < 1:
        raise ValueError(f"tokenize: validation: expected a number in [0, 1), got {validation}")
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    inputs = sorted((_digest(path), is_json_lines(path), path) for path in map(Path, given))
    target = Path(folder) / _key(tokenizer, [facts for *facts, _ in inputs], validation)
    if not is_whole(target):
        making = _Making([path for *_, path in inputs], tokenizer, validation, vocab_size, progress)
        with replacing_folder(target) as scratch:
            making.write(scratch)
    texts = open_texts(target)
    _check_vocabulary(f"tokenize: {target}", texts.vocabulary - 1, vocab_size)
    return texts


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def _key(tokenizer: Any, inputs: list[Any], validation: float) -> str:
    facts: dict[str, Any] = {"form": _FORM, "inputs": inputs, "validation": float(validation)}
    facts |= {"vocabulary": tokenizer.get_vocab(), "template": tokenizer.chat_template}
    facts["special"] = [tokenizer.bos_token_id, tokenizer.eos_token_id, sorted(tokenizer.all_special_ids)]
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        whole = json.loads(backend.to_str())  # padding and truncation, which calls change, are no part of the key
        facts["rules"] = [whole.get(name) for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _check_vocabulary(place: str, largest: int, vocab_size: int | None) -> None:
    if vocab_size is not None and largest >= vocab_size:
        raise ValueError(
            f"{place}: the tokens: expected numbers below {vocab_size}, which the model knows, got {largest}: the "
            "tokenizer is of another model"
        )


class _Making:
    """The documents of files on their way into a folder."""

    def __init__(
        self, paths: list[Path], tokenizer: Any, validation: float, vocab_size: int | None, progress: Progress | None
    ) -> None:
        self._paths, self._validation, self._vocab_size, self._progress = paths, validation, vocab_size, progress
        self._encoder, self._largest = Encoder(tokenizer), -1
        self._duplicates, self._empty = 0, 0
        self._dtype = np.dtype(np.uint16 if max(tokenizer.get_vocab().values(), default=0) < 1 << 16 else np.uint32)

    def write(self, folder: Path) -> None:
        """Writes both sets and the facts about them."""
        writers = [SetWriter(folder, name, self._dtype) for name in ("training", "validation")]
        try:
            done, total = 0, sum(path.stat().st_size for path in self._paths)
            for taken, batch in self._batches():
                shares, documents = [share for share, _ in batch], [document for _, document in batch]
                for share, document, encoded in zip(shares, documents, self._encoder.encode(documents), strict=True):
                    self._put(writers[share < self._validation], document, encoded)
                done += taken
                if self._progress is not None and done < total:
                    self._progress(done, total)
            if self._progress is not None:
                self._progress(total, total)
            self._check_sets(*(writer.documents for writer in writers))
            for writer in writers:
                writer.close()
        finally:
            for writer in writers:
                writer.abandon()
        facts = {"vocabulary": self._largest + 1, "duplicates": self._duplicates, "empty": self._empty}
        write_facts(folder, self._dtype, facts)

    def _batches(self) -> Iterator[tuple[int, list[tuple[float, Document]]]]:
        """Some documents with the share of [0, 1) that decides on their set, and how many bytes of files they took."""
        seen: set[bytes] = set()
        taken, batch = 0, []
        for document in (document for path in self._paths for document in documents_of(path)):
            taken += document.size
            digest = document.digest()
            if document.is_empty:
                self._empty += 1
            elif digest[:16] in seen:
                self._duplicates += 1
            else:
                seen.add(digest[:16])
                batch.append((int.from_bytes(digest[:8], "big") / 2**64, document))
            if taken >= _BATCH_BYTES or len(batch) >= _BATCH_DOCUMENTS:
                yield taken, batch
                taken, batch = 0, []
        if taken:
            yield taken, batch

    def _put(self, writer: SetWriter, document: Document, encoded: Encoded) -> None:
        if not encoded.counts.any():
            self._empty += 1
            return
        largest = int(encoded.tokens.max())
        _check_vocabulary(document.place, largest, self._vocab_size)
        self._largest = max(self._largest, largest)
        writer.add(encoded)

    def _check_sets(self, training: int, validation: int) -> None:
        files = ", ".join(map(str, self._paths)) or "no files"
        if not training + validation:
            raise ValueError(f"tokenize: {files}: expected documents, got none that is not empty")
        if not training or (self._validation and not validation):
            raise ValueError(
                f"tokenize: {files}: expected documents for training and for validation, got {training} and "
                f"{validation}, where validation takes {self._validation:g} of all"
            )
