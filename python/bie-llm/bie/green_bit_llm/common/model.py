"""`load` and `generate` with the arguments of green-bit-llm 0.2.6."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bie.llm
from bie.green_bit_llm.common.enum import TextGenMode
from bie.llm import ArgumentError, FileError

_HALVES = ("half", "float16", "bfloat16")
_ON_THE_CPU = ("auto", "cpu", None)


def say(sentence: str) -> None:
    """A sentence about what has no meaning here."""
    print(f"green_bit_llm: {sentence}", file=sys.stderr)


class Prompt(str):
    """A prompt that a chat template wrote, with its tokens: what users wrote never becomes a control token."""

    tokens: list[int]


class Model(bie.llm.Model):
    """A model of `bie.llm` with the calls of torch's modules that scripts make before they generate."""

    def eval(self) -> Model:
        return self

    def to(self, device: Any = None, *_: Any, **__: Any) -> Model:
        """The model itself, which stays on the CPU."""
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Model:
        if requires_grad:
            raise ArgumentError("requires_grad: expected False, got True; bie.hf.load makes models that are trained")
        return self


class Tokenizer:
    """The tokenizer of a model, with the names of transformers.

    Attributes:
        bos_token, eos_token: names of the tokens that begin and end a text, or None.
        chat_template: whether the folder has one; `apply_chat_template` writes by it.
    """

    def __init__(self, model: Model, folder: Path, options: dict[str, Any]) -> None:
        self._model = model
        settings = json_of(folder / "tokenizer_config.json")
        self.bos_token = _name_of(options.get("bos_token", settings.get("bos_token")))
        self.eos_token = _name_of(options.get("eos_token", settings.get("eos_token")))
        jinja = folder / "chat_template.jinja"
        self.chat_template = jinja.read_text("utf-8") if jinja.is_file() else settings.get("chat_template")

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text; None where it is no single token."""
        tokens = self.encode(self.eos_token, add_special_tokens=False) if self.eos_token else []
        return tokens[0] if len(tokens) == 1 else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Tokens of a text; `add_special_tokens`: with those that begin and end one."""
        if isinstance(text, Prompt):
            return list(text.tokens)
        return self._model.tokenize(text, begin=add_special_tokens)

    def decode(self, tokens: Any, skip_special_tokens: bool = False) -> str:
        return self._model.detokenize([int(t) for t in tokens], special=not skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        tools: Any = None,
        chat_template: str | None = None,
        tokenize: bool = True,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int] | Prompt:
        """The prompt of a conversation, as tokens or as their text.

        Args:
            conversation: messages with role and content.
            variables: those of the template, such as enable_thinking.

        Raises:
            ArgumentError: the folder has no chat template and none is given, or it refuses the conversation.
        """
        if not add_generation_prompt:
            raise ArgumentError("add_generation_prompt: expected True, got False")
        tokens = self._model.chat_tokens(conversation, tools=tools, template=chat_template, variables=variables or None)
        if tokenize:
            return tokens
        prompt = Prompt(self._model.detokenize(tokens, special=True))
        prompt.tokens = tokens
        return prompt


def json_of(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise FileError(f"{path}: expected JSON, got text that is none: {error}") from None
    return found if isinstance(found, dict) else {}


def _name_of(token: Any) -> str | None:
    """The name of a token, which configurations state as a text or as an object."""
    return token.get("content") if isinstance(token, dict) else token


def load(
    path_or_hf_repo: str | os.PathLike,
    tokenizer_config: dict[str, Any] | None = None,
    dtype: Any = "half",
    device_map: Any = "auto",
    seqlen: int = 2048,
    model_config: dict[str, Any] | None = None,
    requires_grad: bool = False,
) -> tuple[Model, Tokenizer, SimpleNamespace]:
    """A model of a folder, its tokenizer and its config.json.

    Args:
        path_or_hf_repo: a folder on this machine; nothing is fetched.
        tokenizer_config: eos_token and bos_token are read.
        dtype: torch.half and torch.bfloat16: products of 8-bit activations; torch.float32: of float32 ones.
        device_map: has no meaning: the model is on the CPU.
        seqlen: tokens of prompt and answer together, at most the model's context.
        model_config: has no meaning.
        requires_grad: only False can be had.

    Raises:
        FileError: no folder, or none that is read.
        ArgumentError: requires_grad.
    """
    folder = Path(path_or_hf_repo)
    if not folder.is_dir():
        raise FileError(
            f"expected a folder on this machine, got {str(path_or_hf_repo)!r}; nothing is fetched: "
            "huggingface-cli download puts a repository into a folder"
        )
    if device_map not in _ON_THE_CPU:
        say(f"device_map {device_map!r} has no meaning here: the model runs on the CPU")
    for key, value in (model_config or {}).items():
        if value is not None:
            say(f"model_config has {key} {value!r}, which has no meaning here")
    is_half = dtype is None or str(dtype).removeprefix("torch.") in _HALVES
    config = json_of(folder / "config.json")
    positions = config.get("max_position_embeddings")
    context = min(seqlen, positions) if isinstance(positions, int) else seqlen
    model = Model(folder, context=context, arithmetic="int8" if is_half else "exact")
    if requires_grad:
        model.requires_grad_(True)
    return model, Tokenizer(model, folder, tokenizer_config or {}), SimpleNamespace(**config)


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str,
    temp: float = 0.8,
    max_tokens: int = 100,
    verbose: bool = False,
    top_p: float = 0.95,
    gen_mode: TextGenMode = TextGenMode.SEQUENCE,
    repetition_penalty: float | None = 1.5,
    top_k: int = 20,
    output_scores: bool = False,
    return_dict_in_generate: bool = True,
    output_attentions: bool = False,
    output_hidden_states: bool = False,
    *,
    seed: int | None = None,
) -> str:
    """The text with which a model goes on, without the token that ends it.

    Args:
        temp: 0: the likeliest token; more: the larger, the freer.
        verbose: prints prompt, answer and tokens a second; with TextGenMode.TOKEN the answer as it comes.
        repetition_penalty, top_k, top_p: as docs/spec/language-models.md#choice says; None or 1: no penalty.
        output_scores, return_dict_in_generate: have no meaning.
        seed: of the random numbers; None: another one for each call.

    Raises:
        ArgumentError: output_attentions or output_hidden_states, which nothing keeps; a prompt that does not fit.
    """
    for name, wanted in (("output_attentions", output_attentions), ("output_hidden_states", output_hidden_states)):
        if wanted:
            raise ArgumentError(f"{name}: expected False, got True")
    begins = tokenizer.bos_token is None or not prompt.startswith(tokenizer.bos_token)
    tokens = tokenizer.encode(prompt, add_special_tokens=begins)
    if verbose:
        print(f"{'=' * 50}\nPrompt: {prompt}\ngenerating ...", flush=True)
    start, parts = time.perf_counter(), []
    answer = model.stream(
        tokens,
        tokens=max_tokens,
        temperature=temp,
        top_p=top_p if temp > 0 else 1.0,
        top_k=top_k if temp > 0 else 0,
        repeat_penalty=repetition_penalty or 1.0,
        seed=secrets.randbits(63) if seed is None else seed,
        stop=() if tokenizer.eos_token is None else (tokenizer.eos_token,),
    )
    for part in answer:
        parts.append(part)
        if verbose and gen_mode == TextGenMode.TOKEN:
            print(part, end="", flush=True)
    text = "".join(parts)
    if verbose:
        if gen_mode == TextGenMode.SEQUENCE:
            print(text)
        written = len(model.tokenize(text, begin=False))
        print(f"\ngeneration: {written / max(time.perf_counter() - start, 1e-9):.2f} token/s", flush=True)
    return text
