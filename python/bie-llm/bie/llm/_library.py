"""The C API of bie_llm.h by ctypes."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path


class LanguageModelError(Exception):
    """What the library refused; the sentence is its own."""


class FileError(LanguageModelError, ValueError):
    """The file cannot be read, is damaged, or holds no model that is read."""


class ArgumentError(LanguageModelError, ValueError):
    """A token out of range, a text longer than the context, an option that cannot be."""


class OutOfMemory(LanguageModelError, MemoryError):
    """There is not enough memory."""


class SettingError(LanguageModelError, RuntimeError):
    """A setting of the machine, such as BIE_MAX_ISA, cannot be."""


OK, TOO_SMALL = 0, 5
_ERRORS = {1: FileError, 2: ArgumentError, 3: OutOfMemory, 4: SettingError}
HANDLE = ctypes.c_void_p


class Options(ctypes.Structure):
    _fields_ = (("arithmetic", ctypes.c_int), ("threads", ctypes.c_int32))


class SessionOptions(ctypes.Structure):
    _fields_ = (("threads", ctypes.c_int32), ("cache", ctypes.c_int))


class Info(ctypes.Structure):
    _fields_ = (
        ("architecture", ctypes.c_char_p),
        ("layers", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("kv_heads", ctypes.c_int64),
        ("head_size", ctypes.c_int64),
        ("vocabulary", ctypes.c_int64),
        ("context", ctypes.c_int64),
        ("parameters", ctypes.c_int64),
        ("weight_bytes", ctypes.c_int64),
    )


class Feed(ctypes.Structure):
    _fields_ = (
        ("sequence", HANDLE),
        ("tokens", ctypes.POINTER(ctypes.c_int32)),
        ("count", ctypes.c_int64),
        ("all_logits", ctypes.c_int32),
    )


class Sampler(ctypes.Structure):
    _fields_ = (
        ("temperature", ctypes.c_float),
        ("top_k", ctypes.c_int64),
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("repeat_penalty", ctypes.c_float),
        ("seed", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
    )


class Chat(ctypes.Structure):
    _fields_ = (
        ("messages", ctypes.c_char_p),
        ("tools", ctypes.c_char_p),
        ("documents", ctypes.c_char_p),
        ("variables", ctypes.c_char_p),
        ("bos_token", ctypes.c_char_p),
        ("eos_token", ctypes.c_char_p),
        ("no_generation_prompt", ctypes.c_int32),
        ("now", ctypes.c_int64),
    )


_STATUS, _HANDLES = ctypes.c_int, ctypes.POINTER(HANDLE)
_TOKENS, _COUNT = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int64)
_SIGNATURES = {
    "last_error": (ctypes.c_char_p, ()),
    "model_load": (_STATUS, (ctypes.c_char_p, ctypes.POINTER(Options), _HANDLES)),
    "model_free": (None, (HANDLE,)),
    "model_info": (_STATUS, (HANDLE, ctypes.POINTER(Info))),
    "tokenize": (
        _STATUS,
        (HANDLE, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, _TOKENS, ctypes.c_int64, _COUNT),
    ),
    "token_bytes": (_STATUS, (HANDLE, ctypes.c_int32, ctypes.c_int32, _HANDLES, _COUNT)),
    "is_end": (ctypes.c_int32, (HANDLE, ctypes.c_int32)),
    "bos": (ctypes.c_int32, (HANDLE,)),
    "eos": (ctypes.c_int32, (HANDLE,)),
    "session_create": (_STATUS, (HANDLE, ctypes.POINTER(SessionOptions), _HANDLES)),
    "session_free": (None, (HANDLE,)),
    "sequence_create": (_STATUS, (HANDLE, _HANDLES)),
    "sequence_fork": (_STATUS, (HANDLE, _HANDLES)),
    "sequence_free": (None, (HANDLE,)),
    "sequence_length": (ctypes.c_int64, (HANDLE,)),
    "sequence_cut": (_STATUS, (HANDLE, ctypes.c_int64)),
    "sequence_save": (_STATUS, (HANDLE, ctypes.c_char_p)),
    "sequence_load": (_STATUS, (HANDLE, ctypes.c_char_p, _TOKENS, ctypes.c_int64, _HANDLES)),
    "read": (_STATUS, (HANDLE, ctypes.POINTER(Feed), ctypes.c_int64, ctypes.c_void_p)),
    "read_states": (_STATUS, (HANDLE, ctypes.POINTER(Feed), ctypes.c_int64, ctypes.c_void_p)),
    "chat_template_create": (_STATUS, (ctypes.c_char_p, ctypes.c_int64, _HANDLES)),
    "chat_template_free": (None, (HANDLE,)),
    "chat_tokens": (_STATUS, (HANDLE, HANDLE, ctypes.POINTER(Chat), _TOKENS, ctypes.c_int64, _COUNT)),
    "choose": (_STATUS, (HANDLE, ctypes.c_void_p, ctypes.POINTER(Sampler), _TOKENS)),
}


@cache
def library() -> ctypes.CDLL:
    """The library that BIE_LLM_LIBRARY names, else the package's own."""
    path = os.environ.get("BIE_LLM_LIBRARY") or Path(__file__).parent / "lib" / "libbie_llm.so"
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, f"bie_llm_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


def status_of(name: str, *arguments) -> int:
    return getattr(library(), f"bie_llm_{name}")(*arguments)


def check(status: int) -> None:
    if status != OK:
        raise _ERRORS.get(status, LanguageModelError)(library().bie_llm_last_error().decode(errors="replace"))


def call(name: str, *arguments) -> None:
    check(status_of(name, *arguments))


def made(name: str, *arguments) -> HANDLE:
    handle = HANDLE()
    call(name, *arguments, ctypes.byref(handle))
    return handle


def filled(name: str, *arguments, room: int) -> list[int]:
    """The tokens that a function writes, which is called again where they are more than there was room for."""
    count = ctypes.c_int64()
    while True:
        tokens = (ctypes.c_int32 * room)()
        status = status_of(name, *arguments, tokens, room, ctypes.byref(count))
        if status != TOO_SMALL:
            check(status)
            return tokens[: count.value]
        room = count.value


def array_of(tokens: list[int]) -> ctypes.Array:
    for token in tokens:  # which ctypes would cut to 32 bits
        if not 0 <= token < 1 << 31:
            raise ArgumentError(f"expected tokens of the vocabulary, got {token}")
    return (ctypes.c_int32 * len(tokens))(*tokens)
