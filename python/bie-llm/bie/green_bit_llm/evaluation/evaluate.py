"""Tells how well a model predicts texts and answers lm-eval's tasks:
`python -m bie.green_bit_llm.evaluation.evaluate --model FOLDER --eval-ppl --ppl-tasks text.txt`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from bie.green_bit_llm.common import load
from bie.green_bit_llm.common.model import Model, Tokenizer, say
from bie.green_bit_llm.inference.options import add_shared, tell_meaningless, tokenizer_config
from bie.llm import ArgumentError, FileError, LanguageModelError


def setup_arg_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="evaluate", description="Measures a model of a folder.")
    add_shared(parser)
    parser.add_argument("--eval-ppl", action="store_true", help="tell the perplexity of texts")
    parser.add_argument("--ppl-tasks", default="", help="files of these texts, separated by commas; nothing is fetched")
    parser.add_argument("--eval-few-shot", action="store_true", help="answer tasks of the package lm-eval")
    parser.add_argument("--few-shot-tasks", default="", help="their names, separated by commas, as lm-eval has them")
    parser.add_argument("--num-fewshot", type=int, default=0, help="examples before each question of a task")
    parser.add_argument("--save-dir", default="log/", help="folder of eval_results.json")
    for name, words in (("--seed", {"type": int}), ("--batch-size", {"type": int}), ("--cuda-device-id", {})):
        parser.add_argument(name, help="has no meaning here", **words)
    parser.add_argument("--lora-dir", help="folder of an adapter, which is refused")
    return parser


def perplexity(model: Model, tokens: list[int], window: int) -> float:
    """exp of the mean loss in whole windows, of whose tokens all but the first are predicted."""
    if window < 2:
        raise ArgumentError(f"seqlen: expected at least 2, got {window}")
    windows = [tokens[at : at + window] for at in range(0, len(tokens) - window + 1, window)]
    if not windows:
        raise ArgumentError(f"seqlen: expected a text of {window} tokens at least, got {len(tokens)}")
    losses = []
    for each in windows:
        sequence = model.sequence()
        sequence.read(each[:1])
        losses.append(-sequence.score(each[1:])[0] / (window - 1))
    return math.exp(sum(losses) / len(losses))


def _names(listed: str, option: str) -> list[str]:
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ArgumentError(f"--{option}: expected names separated by commas, got none")
    return names


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise FileError(
            f"--ppl-tasks: expected files of texts, got {path!r}: {error.strerror}; nothing is fetched"
        ) from None


def lm_evaluate(model: Model, tokenizer: Tokenizer, arguments: argparse.Namespace) -> dict[str, Any]:
    """Perplexities by the name of a text, and lm-eval's results under "results" and "versions"."""
    results: dict[str, Any] = {}
    if arguments.eval_ppl:
        texts = {path: _text_of(path) for path in _names(arguments.ppl_tasks, "ppl-tasks")}
        for path, text in texts.items():
            results[path] = perplexity(model, tokenizer.encode(text), arguments.seqlen)
            print(f"{path} : {results[path]}")
    if arguments.eval_few_shot:
        tasks = _names(arguments.few_shot_tasks, "few-shot-tasks")
        import lm_eval  # a package of its own
        from bie.llm import LmEvalModel

        found = lm_eval.simple_evaluate(LmEvalModel(model), tasks=tasks, num_fewshot=arguments.num_fewshot)
        results |= {"results": found["results"], "versions": found["versions"]}
        print(lm_eval.utils.make_table(found))
    return results


def save(folder: Path, name: str, results: dict[str, Any]) -> None:
    """Adds a model's results to the file of all."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "eval_results.json"
    try:
        all_results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    except ValueError as error:
        raise FileError(f"{file}: expected JSON, got text that is none: {error}") from None
    if not isinstance(all_results, dict):
        raise FileError(f"{file}: expected an object of JSON, got another value")
    text = json.dumps(all_results | {name: results}, indent=2, default=str)
    beside = file.with_suffix(f".{os.getpid()}")
    beside.write_text(text, "utf-8")
    beside.replace(file)


def main(arguments: argparse.Namespace) -> int:
    tell_meaningless(arguments, "seed", "batch_size", "cuda_device_id")
    try:
        if not arguments.eval_ppl and not arguments.eval_few_shot:
            raise ArgumentError("expected --eval-ppl or --eval-few-shot, got neither")
        if arguments.lora_dir is not None:
            raise ArgumentError("--lora-dir: adapters are not read")
        model, tokenizer, _ = load(arguments.model, tokenizer_config(arguments), seqlen=arguments.seqlen)
        save(Path(arguments.save_dir), arguments.model, lm_evaluate(model, tokenizer, arguments))
    except (LanguageModelError, OSError) as error:
        say(str(error))
        return 1
    except ModuleNotFoundError as error:
        if error.name != "lm_eval":
            raise
        say("--eval-few-shot needs the package lm-eval: pip install lm-eval")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(setup_arg_parser().parse_args()))
