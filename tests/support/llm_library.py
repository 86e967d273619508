"""The C API of language models, by ctypes."""

from __future__ import annotations

import ctypes as c
import json
from pathlib import Path

import numpy as np

INT8, EXACT = 0, 1
TOO_SMALL = 5
Q8, F32, F16 = 1, 2, 3


class Error(Exception):
    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Options(c.Structure):
    _fields_ = [("arithmetic", c.c_int), ("threads", c.c_int32)]


class SessionOptions(c.Structure):
    _fields_ = [("threads", c.c_int32), ("cache", c.c_int)]


class Info(c.Structure):
    _fields_ = [
        ("architecture", c.c_char_p),
        *(
            (n, c.c_int64)
            for n in ["layers", "width", "heads", "kv_heads", "head_size", "vocabulary", "context", "parameters"]
        ),
        ("weight_bytes", c.c_int64),
    ]


class Feed(c.Structure):
    _fields_ = [("sequence", c.c_void_p), ("tokens", c.POINTER(c.c_int32)), ("count", c.c_int64), ("all", c.c_int32)]


class Sampler(c.Structure):
    _fields_ = [
        ("temperature", c.c_float),
        ("top_k", c.c_int64),
        ("top_p", c.c_double),
        ("min_p", c.c_double),
        ("repeat_penalty", c.c_float),
        ("seed", c.c_uint64),
        ("stream", c.c_uint64),
    ]


class Chat(c.Structure):
    _fields_ = [
        *((name, c.c_char_p) for name in ("messages", "tools", "documents", "variables", "bos_token", "eos_token")),
        ("no_generation_prompt", c.c_int32),
        ("now", c.c_int64),
    ]


class Library:
    def __init__(self, path: Path):
        self.c = c.CDLL(str(path))
        self.c.bie_llm_last_error.restype = c.c_char_p
        self.c.bie_llm_sequence_length.restype = c.c_int64
        for name in ("model_free", "session_free", "sequence_free", "sequence_length", "chat_template_free"):
            getattr(self.c, f"bie_llm_{name}").argtypes = [c.c_void_p]

    def call(self, name: str, *arguments) -> None:
        if status := getattr(self.c, f"bie_llm_{name}")(*arguments):
            raise Error(status, self.c.bie_llm_last_error().decode(errors="replace"))

    def made(self, name: str, *arguments) -> c.c_void_p:
        handle = c.c_void_p()
        self.call(name, *arguments, c.byref(handle))
        return handle

    def model(self, path, arithmetic: int = EXACT, threads: int = 1, cache: int = 0) -> Model:
        return Model(self, path, arithmetic, threads, cache)

    def chat_template(self, source: str | bytes) -> ChatTemplate:
        return ChatTemplate(self, source)


class ChatTemplate:
    def __init__(self, library: Library, source: str | bytes):
        self.library = library
        data = source.encode() if isinstance(source, str) else source
        self.handle = library.made("chat_template_create", data, c.c_int64(len(data)))

    def __del__(self):
        if hasattr(self, "handle"):
            self.library.c.bie_llm_chat_template_free(self.handle)

    def marked(self, messages, prompt: bool = True, now: int = 0, room: int = 1 << 16, **values) -> tuple[str, bytes]:
        """The prompt, and for each of its bytes whether the template wrote it. Tokens are no JSON, all else is."""
        tokens = {name: values.pop(name).encode() for name in ("bos_token", "eos_token") if name in values}
        known = {name: json.dumps(values.pop(name)).encode() for name in ("tools", "documents") if name in values}
        chat = Chat(json.dumps(messages).encode(), variables=json.dumps(values).encode(), **tokens, **known)
        chat.no_generation_prompt, chat.now = not prompt, now
        size = c.c_int64()
        for _ in range(2):
            text, marks = c.create_string_buffer(room), c.create_string_buffer(room)
            try:
                self.library.call(
                    "chat_template_render", self.handle, c.byref(chat), text, marks, c.c_int64(room), c.byref(size)
                )
                break
            except Error as error:
                if error.status != TOO_SMALL:
                    raise
                room = size.value
        return text.raw[: size.value].decode(), marks.raw[: size.value]

    def render(self, messages, **values) -> str:
        return self.marked(messages, **values)[0]


class Model:
    def __init__(self, library: Library, path, arithmetic: int, threads: int, cache: int):
        self.library = library
        options = Options(arithmetic, threads)
        self.handle = library.made("model_load", str(path).encode(), c.byref(options))
        self.session_handle = library.made("session_create", self.handle, c.byref(SessionOptions(threads, cache)))
        self.info = Info()
        library.call("model_info", self.handle, c.byref(self.info))

    def __del__(self):
        if hasattr(self, "session_handle"):
            self.library.c.bie_llm_session_free(self.session_handle)
        if hasattr(self, "handle"):
            self.library.c.bie_llm_model_free(self.handle)

    def sequence(self) -> Sequence:
        return Sequence(self, self.library.made("sequence_create", self.session_handle))

    def kept(self, path, tokens: list[int]) -> Sequence:
        """What a file of Sequence.save holds of these tokens."""
        array, handle = (c.c_int32 * max(1, len(tokens)))(*tokens), c.c_void_p()
        self.library.call(
            "sequence_load", self.session_handle, str(path).encode(), array, c.c_int64(len(tokens)), c.byref(handle)
        )
        return Sequence(self, handle)

    def read(self, feeds: list[tuple[Sequence, list[int]]], every: bool = True, states: bool = False) -> np.ndarray:
        """Logits [rows, vocabulary], or states [rows, width], of all tokens, or of the last of each feed."""
        arrays = [(c.c_int32 * max(1, len(tokens)))(*tokens) for _, tokens in feeds]
        all_feeds = (Feed * max(1, len(feeds)))(
            *(Feed(s.handle, a, len(t), every) for (s, t), a in zip(feeds, arrays, strict=True))
        )
        rows = sum(len(tokens) for _, tokens in feeds) if every else len(feeds)
        results = np.empty((rows, self.info.width if states else self.info.vocabulary), np.float32)
        self.library.call(
            "read_states" if states else "read",
            self.session_handle,
            all_feeds,
            c.c_int64(len(feeds)),
            results.ctypes.data_as(c.c_void_p),
        )
        return results

    def logits(self, tokens: list[int], parts: list[int] | None = None) -> np.ndarray:
        """Of a text alone, read in parts of these lengths."""
        sequence, at, found = self.sequence(), 0, []
        for part in parts or [len(tokens)]:
            found.append(self.read([(sequence, tokens[at : at + part])]))
            at += part
        return np.concatenate(found)

    def tokenize(self, text: str | bytes, special: bool = True, begin: bool = False) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        room = 2 * len(data) + 2
        tokens, count = (c.c_int32 * room)(), c.c_int64()
        self.library.call(
            "tokenize", self.handle, data, c.c_int64(len(data)), special, begin, tokens, c.c_int64(room), c.byref(count)
        )
        return list(tokens[: count.value])

    def bytes_of(self, token: int, special: bool = True) -> bytes:
        text, size = c.c_void_p(), c.c_int64()
        self.library.call(
            "token_bytes", self.handle, c.c_int32(token), c.c_int32(special), c.byref(text), c.byref(size)
        )
        return c.string_at(text, size.value)

    def decode(self, tokens: list[int]) -> bytes:
        return b"".join(map(self.bytes_of, tokens))


class Sequence:
    def __init__(self, model: Model, handle: c.c_void_p):
        self.model, self.handle = model, handle

    def __del__(self):
        self.model.library.c.bie_llm_sequence_free(self.handle)

    def __len__(self) -> int:
        return self.model.library.c.bie_llm_sequence_length(self.handle)

    def fork(self) -> Sequence:
        return Sequence(self.model, self.model.library.made("sequence_fork", self.handle))

    def cut(self, length: int) -> None:
        self.model.library.call("sequence_cut", self.handle, c.c_int64(length))

    def save(self, path) -> None:
        self.model.library.call("sequence_save", self.handle, str(path).encode())

    def choose(self, logits: np.ndarray, **options) -> int:
        token, row = c.c_int32(), np.ascontiguousarray(logits, np.float32)
        sampler = Sampler(**options)
        self.model.library.call("choose", self.handle, row.ctypes.data_as(c.c_void_p), c.byref(sampler), c.byref(token))
        return token.value
