"""Jinja as transformers sets it up, and the answer of both sides to one template."""

from __future__ import annotations

import datetime
import json

from llm_library import Error, Library
from transformers.utils.chat_template_utils import (
    _alias_reasoning_fields,
    _compile_jinja_template,
    _normalize_chat_messages,
)

NOW = datetime.datetime(2024, 7, 26, 13, 5, 9, tzinfo=datetime.timezone.utc)


def strftime_now(form: str) -> str:
    return NOW.strftime(form)


def wanted(source: str, **values) -> str | None:
    """What transformers renders, None where it refuses."""
    try:
        text = _compile_jinja_template(source).render(strftime_now=strftime_now, **values)
        text.encode()  # no half of a surrogate pair
        return text
    except Exception:
        return None


def found(library: Library, source: str, messages=(), prompt: bool = False, **values) -> str | None:
    """What we render, None where we refuse, which takes one sentence."""
    try:
        template = library.chat_template(source)
        return template.render(list(messages), prompt=prompt, now=int(NOW.timestamp()), **values)
    except Error as error:
        assert str(error).startswith("the chat template, line ")
        assert "\n" not in str(error)
        return None


def both(library: Library, source: str, messages=(), prompt: bool = False, **values) -> tuple[str | None, str | None]:
    """Ours and theirs, of the same JSON."""
    messages, values = json.loads(json.dumps([list(messages), values]))
    ours = found(library, source, messages, prompt, **values)
    messages = _alias_reasoning_fields(_normalize_chat_messages(messages))
    return ours, wanted(source, messages=messages, add_generation_prompt=prompt, **values)
