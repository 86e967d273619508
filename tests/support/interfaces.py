"""Servers of bie serve for tests of its interfaces: one that thinks, one of two models, one that asks for a key."""

from __future__ import annotations

import pytest
from serving import Server, choice, running
from small_models import CHAT_TEMPLATE, letters, write_changed, write_tokenizer

RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
CHANCES = ["message.output_text.logprobs"]
SAMPLED = {"temperature": 0.9, "seed": 3}
KINDS = {"small": "llama", "other/2": "qwen3"}  # of models that one server has, by their names
#: The template opens a thought unless the request says otherwise, and one token closes it.
THINKING_TEMPLATE = CHAT_TEMPLATE.replace(
    "a:{", "a:{% if enable_thinking is not defined or enable_thinking %}<think>{% endif %}{"
)
#: An answer that thinks first and then says something.
THINKS = {"temperature": 1, "seed": 2, "logit_bias": {"95": 3, "94": -100}}
#: An answer that says something, thinks and goes on.
THINKS_BETWEEN = {"temperature": 1, "seed": 1, "logit_bias": {"95": 3.5, "94": 3.5}, "enable_thinking": False}


def add_thinking_tokenizer(writer) -> None:
    write_tokenizer(writer, [*letters()[:-2], "<think>", "</think>"], [], "gpt-2", eos_token_id=0)
    writer.add_chat_template(THINKING_TEMPLATE)


@pytest.fixture(scope="module")
def thinker(bie, tmp_path_factory):
    path = write_changed(tmp_path_factory.mktemp("thinker") / "thinker.gguf", tokenizer=add_thinking_tokenizer)
    with running(Server(bie, path)) as made:
        yield made


@pytest.fixture(scope="module")
def both(bie, models):
    """A server of two models, one of which has a name with a slash."""
    named = [f"--model={name}={models(kind, 'Q8_0')}" for name, kind in KINDS.items()]
    with running(Server(bie, *named)) as made:
        yield made


@pytest.fixture(scope="module")
def keyed(bie, models, tmp_path_factory):
    """A server that asks for a key and takes small bodies."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("right\n")
    words = ("--api-key-file", keys, "--body", 2048)
    with running(Server(bie, models("llama", "Q8_0"), *words, key="right")) as made:
        yield made


def said(server, messages, **fields) -> str:
    return choice(server.chat(messages, **fields))["message"]["content"]
