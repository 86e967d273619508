"""bie evaluate: scores by their definition, statistics, speeds, and a sentence for wrong use."""

import json
import math
import re
from functools import partial

import gguf
import numpy as np
import pytest
from llm_library import EXACT, INT8
from small_models import write_changed

LETTERS = "abcdefghijklmnopqrstuvwxyz "


@pytest.fixture
def told(answer):
    return partial(answer, "evaluate")


@pytest.fixture
def refused(refusal):
    return partial(refusal, "evaluate")


@pytest.fixture
def model(models):
    return models("llama", "Q8_0")


def random_questions(count: int = 60) -> list[dict]:
    """Contexts of 1 to 90 letters, some with spaces at the end, choices of 1 to 40."""
    rng = np.random.default_rng(4)

    def text(most: int) -> str:
        return "".join(rng.choice(list(LETTERS), rng.integers(1, most)))

    made = []
    for _ in range(count):
        choices = [
            " " * int(rng.integers(0, 2)) + "x" + text(int(rng.choice([2, 40]))) for _ in range(rng.integers(2, 6))
        ]
        context = "q" + text(90) + " " * int(rng.integers(0, 3))
        made.append({"context": context, "choices": choices, "answer": int(rng.integers(len(choices)))})
    return made


QUESTIONS = random_questions()


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return path


def score(model, context: str, choice: str) -> float:
    """The sum of the log-probabilities of the choice's tokens, which begin where those of the context end."""
    begin = len(model.tokenize(context.rstrip(), special=False, begin=True))
    tokens = model.tokenize(context + choice, special=False, begin=True)
    logits = model.logits(tokens[:-1]).astype(np.float64)
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return sum(logs[i - 1, tokens[i]] for i in range(begin, len(tokens)))


def answers_by_definition(model) -> tuple[list[bool], list[bool]]:
    by_sum, by_bytes = [], []
    for question in QUESTIONS:
        scores = np.array([score(model, question["context"], choice) for choice in question["choices"]])
        lengths = np.array([len(choice.lstrip()) for choice in question["choices"]])
        by_sum.append(bool(scores.argmax() == question["answer"]))
        by_bytes.append(bool((scores / lengths).argmax() == question["answer"]))
    return by_sum, by_bytes


@pytest.mark.parametrize("arithmetic", ["int8", "exact"])
def test_accuracies_are_those_of_the_definition(told, library, model, questions, arithmetic):
    found = told(model, "--choices", questions, "--arithmetic", arithmetic)
    loaded = library.model(model, EXACT if arithmetic == "exact" else INT8)
    by_sum, by_bytes = answers_by_definition(loaded)
    assert by_sum != by_bytes
    assert found["accuracy"] == np.mean(by_sum)
    assert found["accuracy_bytes"] == np.mean(by_bytes)
    assert found["count"] == len(QUESTIONS)


def test_intervals_are_wilsons(told, model, questions):
    found = told(model, "--choices", questions)
    for key in ("accuracy", "accuracy_bytes"):
        share, z = found[key], 1.96
        # The shares p from which the observed one is z deviations away.
        ends = np.roots([1 + z * z / len(QUESTIONS), -2 * share - z * z / len(QUESTIONS), share * share])
        assert found[key + "_interval"] == pytest.approx(sorted(ends), abs=1e-12)


def test_a_paired_test(told, library, models, model, questions):
    other = models("qwen2", "Q8_0")
    found = told(model, "--choices", questions, "--against", other)
    first, second = (np.array(answers_by_definition(library.model(path, INT8))[0]) for path in (model, other))
    against = found["against"]
    only = int((first & ~second).sum()), int((second & ~first).sum())
    assert (against["only_this_is_right"], against["only_the_other_is_right"]) == only
    assert against["accuracy"] == second.mean()
    assert against["difference"] == pytest.approx(first.mean() - second.mean(), abs=1e-12)
    away = 1.96 * np.std(first.astype(int) - second.astype(int)) / math.sqrt(len(first))
    wanted = [against["difference"] - away, against["difference"] + away]
    assert against["difference_interval"] == pytest.approx(wanted, abs=1e-12)
    ways = sum(math.comb(sum(only), k) for k in range(min(only) + 1))
    assert against["p_value"] == pytest.approx(min(1, 2 * ways / 2 ** sum(only)), rel=1e-9)


def test_a_model_does_not_differ_from_itself(told, model, questions):
    against = told(model, "--choices", questions, "--against", model)["against"]
    assert (against["difference"], against["difference_interval"], against["p_value"]) == (0, [0, 0], 1)


def test_digits_do_not_depend_on_threads_or_neighbours(told, model, questions, tmp_path):
    def right(path, *words):
        found = told(model, "--choices", path, *words)
        return round(found["accuracy"] * found["count"])

    assert right(questions, "--threads", 1) == right(questions, "--threads", 3)
    alone = tmp_path / "alone.jsonl"
    total = 0
    for question in QUESTIONS[:12]:
        alone.write_text(json.dumps(question))
        total += right(alone)
    alone.write_text("\n\n".join(map(json.dumps, QUESTIONS[:12])))
    assert total == right(alone)


def test_questions_longer_than_a_pass(told, library, models, tmp_path):
    """Contexts and choices of more tokens than a pass takes."""
    model = models("windowed mistral")
    path = tmp_path / "long.jsonl"
    rng = np.random.default_rng(1)
    text = "".join(rng.choice(list(LETTERS.strip()), 500))
    long = {"context": text[:300], "choices": [text[300:310], text[310:500], text[400:500]], "answer": 0}
    path.write_text(json.dumps(long) + "\n" + json.dumps(long | {"answer": 1}) + "\n")
    found = told(model, "--choices", path, "--exact")
    loaded = library.model(model, EXACT)
    scores = np.array([score(loaded, long["context"], choice) for choice in long["choices"]])
    assert found["accuracy"] == np.mean([scores.argmax() == answer for answer in (0, 1)])


@pytest.mark.parametrize("begin", [None, 7])
def test_an_empty_context_is_bos_or_eos(told, library, tmp_path, begin):
    bos = {"tokenizer.ggml.bos_token_id": (gguf.GGUFValueType.UINT32, begin)} if begin else {}
    model = write_changed(tmp_path / "model.gguf", overrides=bos)
    logits = library.model(model, INT8).logits([begin or 0])[0]  # whose EOS is 0
    letters = sorted("abcdefgh", key=lambda letter: -logits[library.model(model).tokenize(letter, begin=False)[0]])
    path = tmp_path / "empty.jsonl"
    path.write_text(json.dumps({"context": "", "choices": letters[::-1], "answer": 7}))
    assert told(model, "--choices", path)["accuracy"] == 1


def test_an_empty_context_of_a_model_without_both(refused, model):
    code, said = refused(model, "--choices", "-", stdin=json.dumps(GOOD | {"context": ""}).encode())
    assert code == 3 and "line 1: expected a context, got an empty one" in said


def test_without_json_it_is_three_lines(run, model, questions):
    lines = run("evaluate", model, "--choices", questions).stdout.decode().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["accuracy", "by bytes", "questions"]
    lines = run("evaluate", model, "--choices", questions, "--against", model).stdout.decode().splitlines()
    assert lines[-1].startswith("difference") and "p = 1" in lines[-1]


GOOD = {"context": "a", "choices": ["b", "c"], "answer": 0}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2: .*JSON"),
        ("[1]", "line 2: expected an object of JSON"),
        ('"text"', "line 2: expected an object of JSON"),
        (json.dumps(GOOD | {"context": 3}), 'line 2: "context": expected a text, got 3'),
        (json.dumps({"choices": ["b", "c"], "answer": 0}), 'line 2: "context" is missing'),
        (json.dumps(GOOD | {"choices": "bc"}), 'line 2: "choices": expected a list of two texts at least, got "bc"'),
        (json.dumps(GOOD | {"choices": ["b"]}), 'line 2: "choices": expected a list of two texts'),
        (json.dumps(GOOD | {"choices": ["b", 4]}), 'line 2: "choices": expected texts that are not empty, got 4'),
        (json.dumps(GOOD | {"choices": ["b", ""]}), 'line 2: "choices": expected texts that are not empty, got ""'),
        (json.dumps(GOOD | {"answer": 2}), 'line 2: "answer": expected 0 to 1, got 2'),
        (json.dumps(GOOD | {"answer": -1}), 'line 2: "answer": expected 0 to 1, got -1'),
        (json.dumps(GOOD | {"answer": "b"}), 'line 2: "answer": expected 0 to 1, got "b"'),
        (json.dumps({"context": "a", "choices": ["b", "c"]}), 'line 2: "answer" is missing'),
        (json.dumps(GOOD | {"context": "a" * 600}), "question 2: expected at most 512 tokens.*got 600"),
        ("[" * 10**5, "line 2"),
    ],
)
def test_lines_that_are_wrong(refused, model, tmp_path, line, sentence):
    path = tmp_path / "wrong.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + "\n")
    code, said = refused(model, "--choices", path)
    assert code == 3
    assert re.search(sentence, said), said


@pytest.mark.parametrize(
    "words, code, sentence",
    [
        ([], 2, "is required"),
        (["--choices", "QUESTIONS", "--speed"], 2, "Exactly 1 option"),
        (["--speed", "--against", "MODEL"], 2, "--against requires --choices"),
        (["--choices", "QUESTIONS", "--lengths", "8"], 2, "--lengths requires --speed"),
        (["--choices", "nowhere"], 3, "nowhere"),
        (["--choices", "QUESTIONS", "--against", "nowhere"], 3, "nowhere"),
        (["--choices", "EMPTY"], 3, "a question in each line"),
        (["--speed", "--lengths", "500"], 3, "--lengths: expected at most 480"),
        (["--speed", "--streams", "0"], 2, "--streams"),
        (["--speed", "--rounds", "0"], 2, "--rounds"),
        (["--speed", "--lengths", "8", "--streams", "4096", "--kv", "f99"], 2, "--kv"),
    ],
)
def test_wrong_use(refused, model, questions, tmp_path, words, code, sentence):
    (tmp_path / "empty").write_text("\n\n")
    names = {"QUESTIONS": questions, "MODEL": model, "EMPTY": tmp_path / "empty"}
    status, said = refused(model, *(names.get(word, word) for word in words))
    assert status == code and re.search(sentence, said), said


def test_logits_of_nan(refused, tmp_path, questions):
    def spoil(tensors):
        tensors["output_norm.weight"][:] = np.nan

    path = write_changed(tmp_path / "nan.gguf", spoil)
    code, said = refused(path, "--choices", questions, "--exact")
    assert code == 3 and "NaN or infinite in question 1" in said


def test_a_net_is_refused(refused, tmp_path, questions):
    (tmp_path / "net.safetensors").write_bytes(b"\0" * 100)
    code, said = refused(tmp_path / "net.safetensors", "--choices", questions)
    assert code == 3 and "got a net, which bie eval takes" in said


def test_speeds(told, model):
    found = told(model, "--speed", "--lengths", "8,70", "--streams", "1,3", "--rounds", 2)
    rows = [(row["kind"], row["tokens"], row.get("behind"), row.get("streams")) for row in found["speeds"]]
    kinds = ("read", None), ("write", 1), ("write", 3)
    assert rows == [
        (kind, 32 if streams else n, n if streams else None, streams) for n in (8, 70) for kind, streams in kinds
    ]
    assert all(0 < row["least"] <= row["tokens_a_second"] <= row["most"] for row in found["speeds"])
    assert found["peak_bytes"] > 0 and found["load_seconds"] > 0


def test_speeds_as_a_table(run, model):
    lines = (
        run("evaluate", model, "--speed", "--lengths", 8, "--streams", 2, "--rounds", 1).stdout.decode().splitlines()
    )
    assert [line.split("  ")[0] for line in lines[:3]] == [
        "tokens a second",
        "read 8 tokens",
        "write behind 8 tokens, 2 at once",
    ]
