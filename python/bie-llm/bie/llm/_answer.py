"""What a model answers, and its text on the way to the caller."""

from __future__ import annotations

import codecs


class Answer:
    """A text that a model wrote.

    Attributes:
        prompt_tokens: what was read.
        tokens: what was written, with the token that ended the answer.
        text: the tokens' text, cut before a stop text; control tokens have none, and bytes of no character are U+FFFD.
        finish: "end": the model ended it; "stop": a stop text came; "length": the bound of tokens or the context.
    """

    __slots__ = ("finish", "prompt_tokens", "text", "tokens")

    def __init__(self):
        self.prompt_tokens: list[int] = []
        self.tokens: list[int] = []
        self.text = ""
        self.finish = "length"

    def __repr__(self) -> str:
        return f"Answer(text={self.text!r}, finish={self.finish!r}, tokens={self.tokens})"


class Outlet:
    """Whole characters of an answer's bytes, and nothing that may turn out to begin a stop text."""

    def __init__(self, stops: tuple[str, ...]):
        self._stops, self._held, self.stopped = stops, "", False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def put(self, data: bytes, last: bool = False) -> str:
        """The text that can be told once these bytes have come."""
        self._held += self._decoder.decode(data, last)
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            told, self._held = self._held[: min(found)], ""
        else:
            end = len(self._held) - (0 if last else self._begun())
            told, self._held = self._held[:end], self._held[end:]
        return told

    def _begun(self) -> int:
        """Letters at the end that begin a stop text."""
        lengths = [n for stop in self._stops for n in range(1, len(stop)) if self._held.endswith(stop[:n])]
        return max(lengths, default=0)
