"""bie.llm.LmEvalModel: a local task of lm-eval gives what `bie evaluate` gives."""

import json

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed")

import lm_eval
from llm_package import imported
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from small_models import write_changed

LETTERS = "abcdefghijklmnopqrstuvwxyz "


@pytest.fixture(scope="module")
def llm(build):
    return imported(build, "bie.llm")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_changed(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="module")
def asked(llm, path):
    return llm.LmEvalModel(path)


def letters(rng, most: int) -> str:
    return "".join(rng.choice(list(LETTERS), rng.integers(1, most)))


def questions(count: int = 40) -> list[dict]:
    rng = np.random.default_rng(5)
    return [
        {"context": f"q{letters(rng, 60)}x", "choices": [f"x{letters(rng, 20)}" for _ in range(4)], "answer": i % 4}
        for i in range(count)
    ]


def requests_of(kind: str, *arguments) -> list[Instance]:
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def test_a_local_task_gives_the_accuracies_of_the_command(asked, answer, path, tmp_path):
    lines = tmp_path / "task.jsonl"
    lines.write_text("\n".join(map(json.dumps, questions())))
    names = ("acc", "acc_bytes")
    task = ConfigurableTask(
        config={
            **{"task": "local", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(lines)}}},
            **{"output_type": "multiple_choice", "test_split": "test", "target_delimiter": " "},
            **{"doc_to_text": "{{context}}", "doc_to_choice": "{{choices}}", "doc_to_target": "answer"},
            "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in names],
        }
    )
    found = lm_eval.evaluate(asked, {"local": task}, bootstrap_iters=0)["results"]["local"]
    spaced = [each | {"choices": [f" {choice}" for choice in each["choices"]]} for each in questions()]
    lines.write_text("\n".join(map(json.dumps, spaced)))
    told = answer("evaluate", path, "--choices", lines)
    assert (found["acc,none"], found["acc_bytes,none"]) == (told["accuracy"], told["accuracy_bytes"])


def log_probabilities(model, tokens: list[int]) -> np.ndarray:
    logits = model.logits(tokens).astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


@pytest.mark.parametrize("size", [1, 30, 200])
def test_a_rolling_text_begins_behind_a_token_of_its_own(asked, size):
    text = ("the water boils " * 20)[:size]
    tokens = [asked.prefix_token_id, *asked.tok_encode(text)]
    logs = log_probabilities(asked.model, tokens[:-1])
    (found,) = asked.loglikelihood_rolling(requests_of("loglikelihood_rolling", (text,)))
    assert found == pytest.approx(logs[np.arange(size), tokens[1:]].sum(), abs=1e-6)


def test_a_rolling_text_longer_than_the_context(asked):
    text = "the water boils at noon " * 50
    tokens, size = [asked.prefix_token_id, *asked.tok_encode(text)], asked.max_length
    assert len(tokens) > 2 * size
    total = 0.0
    for begin in range(0, len(tokens) - 1, size):
        end = min(begin + size, len(tokens) - 1)
        first = max(0, end - size)  # the last window is as long as the others and counts its new tokens alone
        logs = log_probabilities(asked.model, tokens[first:end])
        total += sum(logs[i - first, tokens[i + 1]] for i in range(begin, end))
    (found,) = asked.loglikelihood_rolling(requests_of("loglikelihood_rolling", (text,)))
    assert found == pytest.approx(total, rel=1e-9)


def test_greedy_continuations_are_told(asked):
    likeliest = asked.model.generate("the water", tokens=5).tokens
    text = asked.model.detokenize(likeliest)
    ((first, is_greedy), (second, other)) = asked.loglikelihood(
        requests_of("loglikelihood", ("the water", text), ("the water", text[:-1] + "#"))
    )
    assert is_greedy and not other and second < first < 0


def test_answers_end_where_the_task_says(asked):
    whole = asked.model.generate("the water", tokens=40).text
    stop = whole[10]
    found = asked.generate_until(
        requests_of(
            "generate_until",
            ("the water", {"until": [stop], "max_gen_toks": 40}),
            ("the water", {"until": [], "max_gen_toks": 7, "do_sample": False, "temperature": 0.0}),
        )
    )
    assert found == [whole[: whole.index(stop)], asked.model.generate("the water", tokens=7).text]


def test_a_long_context_is_cut_from_the_left(asked):
    long = "abc" * asked.max_length
    ((score, _),) = asked.loglikelihood(requests_of("loglikelihood", (long, "xyz")))
    tokens = asked.tok_encode(long + "xyz")[-asked.max_length - 1 :]
    logs = log_probabilities(asked.model, tokens[:-1])
    assert score == pytest.approx(sum(logs[i - 1, tokens[i]] for i in (-3, -2, -1) for i in (len(tokens) + i,)))


@pytest.mark.parametrize("most", [0, 10**6])
def test_answers_that_do_not_fit(asked, llm, most):
    with pytest.raises(llm.ArgumentError, match=f"max_gen_toks: expected 1 to {asked.max_length - 1}, got {most}"):
        asked.generate_until(requests_of("generate_until", ("a", {"max_gen_toks": most})))
