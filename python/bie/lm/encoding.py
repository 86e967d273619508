"""The tokens of documents, and which of them count in the loss."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bie.lm.documents import Document, Message

_LONG_TEXT = 1 << 18  # characters; the working memory of a tokenizer is a hundred times its text
_MOST_AT_ONCE = 1 << 20  # characters
_BETWEEN_LINES = re.compile(r"\S\n(?=\S)")  # where the splits of tokenizers, which keep white space together, split too


class Encoded(NamedTuple):
    """The tokens [n] of a document, int64, and whether each counts in the loss, [n] uint8 of 0 and 1."""

    tokens: np.ndarray
    counts: np.ndarray


class _Asked(NamedTuple):
    """The strings of a document that are tokenized, and how many of them are its text."""

    strings: list[str]
    texts: int


class Encoder:
    """Makes tokens of documents by a tokenizer of transformers.

    A text becomes ``[begin, *tokens, eos]``, where ``begin`` is the tokenizer's bos token, or its eos token if it has
    no bos token; a token that the tokenizer does not have is left out. All of them count but the first, which no token
    precedes. A text above 262,144 characters is tokenized in parts that begin with a line.

    A conversation becomes the tokens of the text that the chat template writes, and no others. Only the assistant's
    answers count, through the last special token of each, which ends the turn. The template is applied to the messages
    before an answer, with the prompt for an answer, and to the messages through it; the answer's tokens are those of
    the whole conversation that lie between the tokens these two have in common with it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._eos = tokenizer.eos_token_id
        self._begin = self._eos if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special = np.array(sorted(special | set(tokenizer.all_special_ids)), np.int64)

    def encode(self, documents: Sequence[Document]) -> Iterator[Encoded]:
        """The tokens of each document; short ones are tokenized together.

        Raises:
            ValueError: a conversation that the chat template does not take, or a template that writes the messages
                before an answer in another way when messages follow; it names the file and the line.
        """
        asked = [self._asked(document) for document in documents]
        found = self._tokens_of([string for one in asked for string in one.strings])
        for document, one in zip(documents, asked, strict=True):
            parts = [next(found) for _ in one.strings]
            tokens, prefixes = np.concatenate([*parts[: one.texts], np.empty(0, np.int64)]), parts[one.texts :]
            yield self._answers(tokens, prefixes) if document.is_conversation else self._whole(tokens)

    def _tokens_of(self, strings: list[str]) -> Iterator[np.ndarray]:
        """The tokens of each string, which are made of about a million characters at once."""
        options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
        start, size = 0, 0
        for end, string in enumerate(strings, 1):
            size += len(string)
            if size >= _MOST_AT_ONCE or end == len(strings):
                for tokens in self._tokenizer(strings[start:end], **options)["input_ids"]:
                    yield np.asarray(tokens, np.int64)
                start, size = end, 0

    def _asked(self, document: Document) -> _Asked:
        if document.is_conversation:
            return self._asked_of_conversation(document.place, document.content)
        parts = list(_parts(document.content))
        return _Asked(parts, len(parts))

    def _whole(self, tokens: np.ndarray) -> Encoded:
        begin, end = ([] if token is None else [token] for token in (self._begin, self._eos))
        tokens = np.concatenate([np.array(begin, np.int64), tokens, np.array(end, np.int64)])
        counts = np.ones(len(tokens), np.uint8)
        counts[:1] = 0
        return Encoded(tokens, counts)

    def _answers(self, tokens: np.ndarray, prefixes: list[np.ndarray]) -> Encoded:
        counts = np.zeros(len(tokens), np.uint8)
        for before, through in zip(prefixes[::2], prefixes[1::2], strict=True):
            start, end = _common(before, tokens), _common(through, tokens)
            ends = np.flatnonzero(np.isin(tokens[start:end], self._special))
            counts[start : start + int(ends[-1]) + 1 if len(ends) else end] = 1
        counts[:1] = 0
        return Encoded(tokens, counts)

    def _asked_of_conversation(self, place: str, messages: list[Message]) -> _Asked:
        """The whole conversation, and for each answer the text before it and the text through it."""
        whole = self._written(place, messages)
        strings = [whole]
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            if i == 0:
                raise ValueError(f"{place}: messages[0]: role: expected another one before the assistant's, got none")
            before, through = self._written(place, messages[:i]), self._written(place, messages[: i + 1])
            prompt = self._written(place, messages[:i], add_generation_prompt=True)
            start = _common_text(prompt, whole)
            if start < len(before) or not whole.startswith(through):
                raise ValueError(
                    f"{place}: messages[{i}]: expected a chat template that adds each message at the end, got one that "
                    "writes the messages before in another way when messages follow"
                )
            strings += [whole[:start], through]
        return _Asked(strings, 1)

    def _written(self, place: str, messages: list[Message], **options: Any) -> str:
        import jinja2

        if self._tokenizer.chat_template is None:
            raise ValueError(f"{place}: messages: expected a tokenizer with a chat template, got one without")
        try:
            return self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        except jinja2.TemplateError as error:
            raise ValueError(f"{place}: messages: the chat template does not take them: {error}") from None


def _parts(text: str) -> Iterator[str]:
    """A text in parts of at most ``_LONG_TEXT`` characters, each of which begins with a line, if lines are shorter."""
    start = 0
    while len(text) - start > _LONG_TEXT:
        window = text[start : start + _LONG_TEXT + 1]  # one more, which tells whether a line follows the last one
        ends = [found.end() for found in _BETWEEN_LINES.finditer(window)]
        size = ends[-1] if ends else window.rfind("\n", 0, _LONG_TEXT) + 1 or _LONG_TEXT
        yield text[start : start + size]
        start += size
    yield text[start:]


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """How many tokens two beginnings have in common."""
    length = min(len(a), len(b))
    other = np.flatnonzero(a[:length] != b[:length])
    return int(other[0]) if len(other) else length


def _common_text(a: str, b: str) -> int:
    """How many characters two beginnings have in common."""
    if b.startswith(a):
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
