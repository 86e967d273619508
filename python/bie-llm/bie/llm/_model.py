"""A model, and texts that it reads and writes."""

from __future__ import annotations

import calendar
import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bie.llm import _library
from bie.llm._answer import Answer, Outlet
from bie.llm._library import ArgumentError, call, made

if TYPE_CHECKING:
    import numpy as np

_ARITHMETICS = {"int8": 0, "exact": 1}
_CACHES = {None: 0, "q8": 1, "f32": 2, "f16": 3}
_PART = 512  # tokens of a prompt that are read in a call, so that Ctrl-C is heard between them
_SCORED = 64  # tokens whose logits are held at a time


def _chosen(name: str, value, choices: Mapping):
    if value not in choices:
        raise ArgumentError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return choices[value]


def _array(values: ctypes.Array, *shape: int) -> np.ndarray:
    import numpy as np  # which takes longer to import than all of this package

    return np.frombuffer(values, np.float32).reshape(shape)


@contextmanager
def _compiled(template: str | None):
    """The handle of a chat template; none where the model's own is meant."""
    if template is None:
        yield None
        return
    source = template.encode()
    try:
        handle = made("chat_template_create", source, len(source))
    except _library.FileError as error:
        raise ArgumentError(str(error)) from None
    try:
        yield handle
    finally:
        _library.library().bie_llm_chat_template_free(handle)


def load(
    path: str | os.PathLike,
    *,
    threads: int | None = None,
    context: int | None = None,
    arithmetic: str = "int8",
    kv: str | None = None,
) -> Model:
    """The model of a GGUF file, or of a folder of Hugging Face.

    Args:
        path: the file or the folder, of an architecture that docs/language-models.md names.
        threads: of each call; None: as many as this process may use. Results do not depend on it.
        context: tokens of prompt and answer together, at most; None: the model's.
        arithmetic: "int8": activations of 8 bits, products of integers; "exact": float32.
        kv: how keys and values are kept, "q8", "f16" or "f32"; None: f32 with "exact", else q8.

    Raises:
        FileError: it cannot be read, is damaged, or holds no model that is read.
        ArgumentError: an option that cannot be.
    """
    return Model(path, threads=threads, context=context, arithmetic=arithmetic, kv=kv)


class Model:
    """A language model. Any number of threads may use it at the same time: a call takes a session, the memory of one
    pass, that no other call is using. Its options are those of `load`.

    Attributes:
        architecture: its name in GGUF files.
        vocabulary, width, parameters, context: tokens, elements of a row, weights, tokens of prompt and answer at most.
        bos, eos: the tokens that the file calls so, or None.
    """

    def __init__(self, path, *, threads=None, context=None, arithmetic="int8", kv=None):
        self._sessions: list[ctypes.c_void_p] = []
        self._lock = threading.Lock()
        threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if not 1 <= threads <= 1024:
            raise ArgumentError(f"threads: expected 1 to 1024, got {threads}")
        options = _library.Options(_chosen("arithmetic", arithmetic, _ARITHMETICS), threads)
        self._session_options = _library.SessionOptions(threads, _chosen("kv", kv, _CACHES))
        self._handle = made("model_load", os.fsencode(path), ctypes.byref(options))
        info = _library.Info()
        call("model_info", self._handle, ctypes.byref(info))
        self.architecture: str = info.architecture.decode()
        self.vocabulary: int = info.vocabulary
        self.width: int = info.width
        self.parameters: int = info.parameters
        if context is not None and not 1 <= context <= info.context:
            raise ArgumentError(f"context: expected 1 to {info.context}, the model's, got {context}")
        self.context: int = info.context if context is None else context
        named = (_library.library().bie_llm_bos(self._handle), _library.library().bie_llm_eos(self._handle))
        self.bos, self.eos = (None if token < 0 else token for token in named)

    def __del__(self):
        for session in getattr(self, "_sessions", ()):
            _library.library().bie_llm_session_free(session)
        if getattr(self, "_handle", None):
            _library.library().bie_llm_model_free(self._handle)

    @contextmanager
    def _session(self):
        with self._lock:
            session = self._sessions.pop() if self._sessions else None
        if session is None:
            session = made("session_create", self._handle, ctypes.byref(self._session_options))
        try:
            yield session
        finally:
            with self._lock:
                self._sessions.append(session)

    def tokenize(self, text: str | bytes, *, special: bool = True, begin: bool = True) -> list[int]:
        """The tokens of a text.

        Args:
            special: names of control tokens in the text become these tokens.
            begin: with the token that begins a text, where the file says so.
        """
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
        return _library.filled("tokenize", self._handle, data, len(data), special, begin, room=len(data) + 2)

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token; none of a control token, or its name where `special`."""
        text, size = _library.HANDLE(), ctypes.c_int64()
        call("token_bytes", self._handle, token, special, ctypes.byref(text), ctypes.byref(size))
        return ctypes.string_at(text, size.value)

    def detokenize(self, tokens, *, special: bool = False) -> str:
        """The text of tokens; bytes of no character are U+FFFD."""
        return b"".join(self.token_bytes(token, special=special) for token in tokens).decode("utf-8", "replace")

    def sequence(self) -> Sequence:
        """An empty text."""
        with self._session() as session:
            return Sequence(self, made("sequence_create", session))

    def logits(self, tokens) -> np.ndarray:
        """Logits [tokens, vocabulary] in float32: row i is of what follows the first i + 1 tokens."""
        tokens = list(tokens)
        return _array(self.sequence()._read(tokens, every=True), len(tokens), self.vocabulary)

    def embed(self, texts) -> np.ndarray:
        """Vectors of texts: the mean over a text's tokens of what the last layer says of them, of length 1.

        Args:
            texts: one text, or several.

        Returns:
            float32 [width] of one text, [texts, width] of several. Of models that were not trained for it, such vectors
            are near each other where texts are alike, and no more.
        """
        import numpy as np

        if isinstance(texts, (str, bytes)):
            return self.embed([texts])[0]
        vectors = np.zeros((len(texts), self.width), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            sequence, tokens = self.sequence(), self.tokenize(text)
            if not 1 <= len(tokens) <= self.context:
                raise ArgumentError(
                    f"expected texts of 1 to {self.context} tokens, the context, got one of {len(tokens)}"
                )
            states = _array(sequence._read(tokens, every=True, states=True), len(tokens), self.width)
            mean = states.mean(0, dtype=np.float64)
            vector[:] = mean / (np.linalg.norm(mean) or 1.0)
        return vectors

    def chat_tokens(self, messages, *, tools=None, template: str | None = None, variables=None) -> list[int]:
        """The prompt of a conversation, as the model's chat template writes it.

        Args:
            messages: dicts with role and content, as OpenAI's API has them.
            tools: descriptions of tools, for templates that know some.
            template: the text of a chat template, in place of the one in the model's file.
            variables: a dict of more variables of the template, such as {"enable_thinking": False}.
        """
        texts = [None if value is None else json.dumps(value).encode() for value in (messages, tools, None, variables)]
        chat = _library.Chat(*texts, now=calendar.timegm(time.localtime()))
        with _compiled(template) as handle:
            return _library.filled("chat_tokens", self._handle, handle, ctypes.byref(chat), room=4096)

    def generate(self, prompt, **options) -> Answer:
        """What follows a prompt.

        Args:
            prompt: a text, which is read as it is; a list of messages, which the chat template writes; or tokens.
            options: those of `Sequence.stream`.
        """
        return self.sequence().generate(prompt, **options)

    def stream(self, prompt, **options) -> Iterator[str]:
        """The same text as it comes, in whole characters."""
        return self.sequence().stream(prompt, **options)


class Sequence:
    """A text as a model has read it. It belongs to one thread at a time.

    Forks begin with the same tokens and share what was read.
    """

    def __init__(self, model: Model, handle: ctypes.c_void_p, logits: ctypes.Array | None = None, unread=()):
        self._model, self._handle, self._logits = model, handle, logits
        self._unread = list(unread)  # the last token of an answer

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.library().bie_llm_sequence_free(self._handle)

    def __len__(self) -> int:
        """Tokens that are read, and the last one of an answer, which is read with what follows."""
        return _library.library().bie_llm_sequence_length(self._handle) + len(self._unread)

    def _read(self, tokens: list[int], every: bool = False, states: bool = False) -> ctypes.Array:
        """Logits, or states, of each token or of the last one."""
        array = _library.array_of(tokens)
        feed = _library.Feed(self._handle, array, len(tokens), every)
        width = self._model.width if states else self._model.vocabulary
        results = (ctypes.c_float * ((len(tokens) if every else 1) * width))()
        with self._model._session() as session:
            call("read_states" if states else "read", session, ctypes.byref(feed), 1, results)
        return results

    def read(self, tokens) -> np.ndarray:
        """Appends tokens. Returns the logits [vocabulary] of what follows them, in float32."""
        return _array(self._append(tokens), self._model.vocabulary)

    def _append(self, tokens) -> ctypes.Array:
        tokens = self._unread + list(tokens)
        if not tokens:
            raise ArgumentError("expected a token at least, got none")
        if (length := len(self) - len(self._unread) + len(tokens)) > self._model.context:
            raise ArgumentError(f"expected at most {self._model.context} tokens, the context, got {length}")
        for at in range(0, len(tokens), _PART):
            self._logits = self._read(tokens[at : at + _PART])
            self._unread = []
        return self._logits

    def score(self, tokens) -> tuple[float, bool]:
        """How likely tokens follow, which are not appended.

        Returns:
            The sum of their log-probabilities, in double, and whether each is the likeliest one at its place.
        """
        import numpy as np

        tokens = list(tokens)
        if not tokens:
            raise ArgumentError("expected a token at least, got none")
        if (length := len(self) + len(tokens) - 1) > self._model.context:
            raise ArgumentError(f"expected at most {self._model.context} tokens, the context, got {length}")
        if outside := [token for token in tokens if not 0 <= token < self._model.vocabulary]:
            raise ArgumentError(f"expected tokens of 0 to {self._model.vocabulary - 1}, got {outside[0]}")
        if self._unread:
            self._append([])
        if self._logits is None:
            raise ArgumentError("expected a text of one token at least, got an empty one")
        follower, logits, score, is_likeliest = self.fork(), _array(self._logits, 1, self._model.vocabulary), 0.0, True
        for at in range(0, len(tokens), _SCORED):
            of_part = tokens[at : at + _SCORED]
            if len(of_part) > 1:
                read = follower._read(of_part[:-1], every=True)
                logits = np.concatenate([logits, _array(read, len(of_part) - 1, self._model.vocabulary)])
            exact = logits.astype(np.float64)
            exact -= exact.max(1, keepdims=True)
            picked = exact[np.arange(len(of_part)), of_part]
            score += float((picked - np.log(np.exp(exact).sum(1))).sum())
            is_likeliest = is_likeliest and logits.argmax(1).tolist() == of_part
            if at + _SCORED < len(tokens):
                logits = _array(follower._read(of_part[-1:]), 1, self._model.vocabulary)
        return score, is_likeliest

    def fork(self) -> Sequence:
        """Another text that begins with the same tokens."""
        return Sequence(self._model, made("sequence_fork", self._handle), self._logits, self._unread)

    def cut(self, length: int) -> None:
        """Forgets all but the first tokens."""
        call("sequence_cut", self._handle, length)
        self._logits, self._unread = None, []

    def save(self, path: str | os.PathLike) -> None:
        """Writes what has been read; a later call of `bie generate --cache` or of `bie_llm_sequence_load` takes it."""
        call("sequence_save", self._handle, os.fsencode(path))

    def _tokens_of(self, prompt, tools, template, variables) -> list[int]:
        if isinstance(prompt, (str, bytes)):
            return self._model.tokenize(prompt, begin=len(self) == 0)
        prompt = list(prompt)
        if prompt and isinstance(prompt[0], Mapping):
            return self._model.chat_tokens(prompt, tools=tools, template=template, variables=variables)
        return prompt

    def generate(self, prompt="", **options) -> Answer:
        """What follows the text and the prompt; the text then ends with the answer. Options are those of `stream`."""
        answer = Answer()
        for part in self._stream(answer, prompt, **options):
            answer.text += part
        return answer

    def stream(self, prompt="", **options) -> Iterator[str]:
        """The answer as it comes, in whole characters.

        Args:
            prompt: a text, a list of messages, or tokens; empty: the text goes on where it ends.
            tokens: of the answer, at most; None: to its end or the context's.
            temperature: 0: the likeliest token; more: the larger, the freer.
            top_k, top_p, min_p, repeat_penalty, seed: as docs/spec/language-models.md#choice says.
            stop: a text, or several, before which the answer ends.
            tools, template, variables: those of `Model.chat_tokens`, for messages.
        """
        return self._stream(Answer(), prompt, **options)

    def _stream(
        self,
        answer: Answer,
        prompt,
        *,
        tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        seed: int = 0,
        stop: str | tuple[str, ...] | list[str] = (),
        tools=None,
        template: str | None = None,
        variables=None,
    ) -> Iterator[str]:
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if "" in stops:
            raise ArgumentError("stop: expected texts, got an empty one")
        if not 0 <= seed < 1 << 64:
            raise ArgumentError(f"seed: expected 0 to 2^64 - 1, got {seed}")
        if not repeat_penalty > 0:
            raise ArgumentError(f"repeat_penalty: expected a number above 0, got {repeat_penalty}")
        # The library takes 0 as a field that was left out; the least share there is asks for the likeliest token alone.
        sampler = _library.Sampler(temperature, top_k, top_p or 5e-324, min_p, repeat_penalty, seed, 0)
        answer.prompt_tokens = self._tokens_of(prompt, tools, template, variables)
        logits = self._logits
        if answer.prompt_tokens or self._unread:
            logits = self._append(answer.prompt_tokens)
        if logits is None:
            raise ArgumentError("expected a prompt of one token at least, got an empty one")
        left = self._model.context - len(self)
        room = left if tokens is None else min(tokens, left)
        outlet, token = Outlet(stops), ctypes.c_int32()
        while len(answer.tokens) < room:
            call("choose", self._handle, logits, ctypes.byref(sampler), ctypes.byref(token))
            answer.tokens.append(token.value)
            self._unread = [token.value]
            if _library.library().bie_llm_is_end(self._model._handle, token.value):
                answer.finish = "end"
                break
            if told := outlet.put(self._model.token_bytes(token.value)):
                yield told
            if outlet.stopped:
                answer.finish = "stop"
                return
            if len(answer.tokens) < room:
                logits = self._append([])
        if told := outlet.put(b"", last=True):
            yield told
