"""A language model as PyPI's lm-eval asks it."""

from __future__ import annotations

from typing import Any

import numpy as np
from bie.llm._library import ArgumentError
from bie.llm._model import Model, load

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("LmEvalModel needs the package lm-eval: pip install lm-eval") from error


class LmEvalModel(TemplateLM):
    """For `lm_eval.simple_evaluate(model=LmEvalModel(...), tasks=[...])`.

    Requests are answered one after the other, so results do not depend on a batch size; a context that several
    requests share is read once. Texts begin with BOS where the model's file says so.

    Args:
        model: a `Model`, or what `load` takes as its path.
        most_tokens: of an answer whose task does not bound it.
        options: those of `load`.

    Raises:
        ModuleNotFoundError: lm-eval is not installed.
        ArgumentError: the model has neither BOS nor EOS, one of which stands before texts without a context.
    """

    def __init__(self, model: Any, *, most_tokens: int = 256, **options: Any) -> None:
        super().__init__()
        self.model: Model = model if isinstance(model, Model) else load(model, **options)
        self.max_length: int = self.model.context
        self.max_gen_toks = most_tokens
        if self.model.bos is None and self.model.eos is None:
            raise ArgumentError("expected a model with BOS or EOS, got one with neither")

    @property
    def eot_token_id(self) -> int:
        return self.model.bos if self.model.eos is None else self.model.eos

    @property
    def prefix_token_id(self) -> int:
        return self.model.eos if self.model.bos is None else self.model.bos

    @property
    def tokenizer_name(self) -> str:
        return self.model.architecture

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self.model.tokenize(string, special=False, begin=add_special_tokens is not False)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        if not add_generation_prompt:
            raise ArgumentError("add_generation_prompt: expected True, got False")
        return self.model.detokenize(self.model.chat_tokens(chat_history), special=True)

    def _loglikelihood_tokens(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
        results = []
        context: list[int] = []
        behind = None  # the sequence that has read the context
        for _names, of_context, continuation in requests:
            if len(continuation) > self.max_length:
                raise ArgumentError(
                    f"expected continuations of at most {self.max_length} tokens, the context, got {len(continuation)}"
                )
            tokens = (of_context + continuation)[-self.max_length - 1 :]  # as lm-eval cuts contexts
            front = tokens[: len(tokens) - len(continuation)]
            if behind is None or front != context:
                behind, context = self.model.sequence(), front
                behind.read(front)
            results.append(behind.score(continuation))
        return results

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        results = []
        for request in requests:
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            scored = self._loglikelihood_tokens([(None, *make_disjoint_window(window)) for window in windows])
            results.append(float(np.sum([score for score, _ in scored])))
        return results

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        results = []
        for context, asked in (request.args for request in requests):
            until = asked.get("until") or []
            most = int(asked.get("max_gen_toks", self.max_gen_toks))
            if not 0 < most < self.max_length:
                raise ArgumentError(f"max_gen_toks: expected 1 to {self.max_length - 1}, got {most}")
            is_drawn = bool(asked.get("do_sample", asked.get("temperature", 0)))
            chosen = {name: asked[name] for name in ("top_k", "top_p", "min_p") if name in asked and is_drawn}
            answer = self.model.generate(
                self.tok_encode(context)[most - self.max_length :],
                tokens=most,
                stop=[until] if isinstance(until, str) else [text for text in until if text],
                temperature=float(asked.get("temperature", 1)) if is_drawn else 0.0,
                **chosen,
            )
            results.append(answer.text)
        return results
