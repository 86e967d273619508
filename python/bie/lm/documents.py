"""The documents of text files and of JSON lines, read one at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SEPARATOR = "<|endoftext|>"
ROLES = ("system", "user", "assistant", "tool")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Message = dict[str, Any]


class Document(NamedTuple):
    """A text or the messages of a conversation, the place it stands at and the bytes of the file it takes."""

    content: str | list[Message]
    place: str  # FILE:LINE of its beginning
    size: int

    @property
    def is_conversation(self) -> bool:
        """Whether its content is messages."""
        return not isinstance(self.content, str)

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing but white space."""
        return isinstance(self.content, str) and not self.content.strip()

    def digest(self) -> bytes:
        """The SHA-256 of its text in UTF-8, or of its messages as JSON with sorted keys: 32 bytes."""
        text = self.content if isinstance(self.content, str) else json.dumps(self.content, sort_keys=True)
        return hashlib.sha256(text.encode()).digest()


def is_json_lines(path: Path) -> bool:
    """Whether a file's name says that it holds a JSON object on every line."""
    return path.suffix.lower() == ".jsonl"


def documents_of(path: Path) -> Iterator[Document]:
    """The documents of a file in its order, of which one is in memory at a time.

    A ``.jsonl`` file holds a JSON object on every line that is not blank: ``{"text": "..."}``, or ``{"messages":
    [{"role": "...", "content": "..."}, ...]}`` with the roles system, user, assistant and tool, or Alpaca's
    ``{"instruction": "...", "input": "...", "output": "..."}``: a user's message, of the instruction and, behind a
    blank line, an input that is not empty, and its answer; a ``text`` beside these is taken alone. Every other file is
    a text; a line that holds ``<|endoftext|>`` and nothing else ends a document. The line break before that line, and
    the last one of the file, belong to no document.

    Raises:
        ValueError: bytes that are no UTF-8, naming the file and the offset; a line that is broken or holds another
            object, naming the file and the line.
    """
    return _json_lines(path) if is_json_lines(path) else _texts(path)


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """The number, the offset and the bytes of every line; a byte order mark at the beginning is left out."""
    with path.open("rb") as file:
        offset = 0
        for number, line in enumerate(file, 1):
            taken = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            yield number, offset + len(line) - len(taken), taken
            offset += len(line)


def _decoded(path: Path, offset: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = offset + error.start
        raise ValueError(f"{path}: byte {place}: expected UTF-8, got 0x{data[error.start]:02x}") from None


def _texts(path: Path) -> Iterator[Document]:
    parts: list[bytes] = []
    first, start = 1, 0

    def document(more: int) -> Document:
        data = b"".join(parts)
        text = _decoded(path, start, data).removesuffix("\n").removesuffix("\r")
        return Document(text, f"{path}:{first}", len(data) + more)

    for number, offset, line in _lines(path):
        if not parts:
            first, start = number, offset
        if line.strip() == SEPARATOR.encode():
            yield document(len(line))
            parts.clear()
        else:
            parts.append(line)
    if parts:
        yield document(0)


def _json_lines(path: Path) -> Iterator[Document]:
    for number, offset, line in _lines(path):
        text, place = _decoded(path, offset, line), f"{path}:{number}"
        if text.strip():
            yield Document(_content(place, text), place, len(line))


def _content(place: str, line: str) -> str | list[Message]:
    """The text or the messages that a line holds."""
    found = _parsed(place, line)
    if not isinstance(found, dict):
        raise ValueError(f"{place}: expected a JSON object, got a {type(found).__name__}")
    given = [key for key in ("text", "messages") if key in found]
    if not given and "instruction" in found and "output" in found:
        return _messages_of_instruction(place, found)
    if len(given) != 1:
        keys = "both" if given else f"the keys {', '.join(map(repr, found)) or 'of an empty object'}"
        raise ValueError(f"{place}: expected text or messages, or instruction and output, got {keys}")
    content = found[given[0]]
    if given == ["messages"]:
        _check_messages(place, content)
    elif not isinstance(content, str):
        raise ValueError(f"{place}: text: expected a string, got a {type(content).__name__}")
    return content


def _messages_of_instruction(place: str, found: dict[str, Any]) -> list[Message]:
    """The question and the answer of a line of Alpaca's."""
    question, more, answer = (found.get(key, "") for key in ("instruction", "input", "output"))
    for key, value in (("instruction", question), ("input", more), ("output", answer)):
        if not isinstance(value, str):
            raise ValueError(f"{place}: {key}: expected a string, got a {type(value).__name__}")
    asked = f"{question}\n\n{more}" if more.strip() else question
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def _parsed(place: str, line: str) -> Any:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: expected a JSON object, got a line that is no JSON: {error}") from None
    if "\\u" in line:  # an escape can write half of a surrogate pair, which is no character
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{place}: expected characters of Unicode, got half of a surrogate pair") from None
    return found


def _check_messages(place: str, messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        got = "an empty list" if messages == [] else f"a {type(messages).__name__}"
        raise ValueError(f"{place}: messages: expected a list of messages, got {got}")
    for i, message in enumerate(messages):
        where = f"{place}: messages[{i}]"
        if not isinstance(message, dict):
            raise ValueError(f"{where}: expected a JSON object, got a {type(message).__name__}")
        if message.get("role") not in ROLES:
            raise ValueError(f"{where}: role: expected one of {', '.join(ROLES)}, got {message.get('role')!r}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"{where}: content: expected a string, got a {type(message.get('content')).__name__}")
