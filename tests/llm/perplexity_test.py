"""bie perplexity: the numbers of its definition, the same however they are computed, and a sentence for wrong use."""

import math
import subprocess
from functools import partial

import gguf
import numpy as np
import pytest
from interrupts import interrupt
from llm_library import EXACT, INT8
from small_models import write_changed

TEXT = "Water boils at 100 degrees. " * 45 + "Ice melts at 0."  # more tokens than two reads of the session take


@pytest.fixture
def told(answer):
    return partial(answer, "perplexity")


@pytest.fixture
def refused(refusal):
    return partial(refusal, "perplexity")


@pytest.fixture
def model(models):
    return models("llama", "Q8_0")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def losses_by_definition(model, tokens: list[int], window: int) -> np.ndarray:
    """Each window read alone, from an empty text; the place before a token predicts it."""
    losses = []
    for begin in range(0, len(tokens) - 1, window):
        logits = model.logits(tokens[begin : begin + window]).astype(np.float64)
        for row, token in zip(logits, tokens[begin + 1 : begin + window + 1], strict=False):
            losses.append(np.log(np.exp(row - row.max()).sum()) + row.max() - row[token])
    return np.array(losses)


@pytest.mark.parametrize("window", [1, 7, 64, 500])
@pytest.mark.parametrize("arithmetic", ["int8", "exact"])
def test_numbers_are_those_of_the_definition(told, library, model, text, arithmetic, window):
    found = told(model, "--data", text, "--context", window, "--arithmetic", arithmetic)
    loaded = library.model(model, EXACT if arithmetic == "exact" else INT8)
    losses = losses_by_definition(loaded, loaded.tokenize(TEXT, special=False, begin=True), window)
    assert found["tokens"] == len(losses) == len(TEXT) - 1
    assert found["nats"] == pytest.approx(losses.mean(), rel=1e-12)
    assert found["perplexity"] == pytest.approx(math.exp(losses.mean()), rel=1e-12)
    assert found["bits_per_byte"] == pytest.approx(losses.sum() / math.log(2) / len(TEXT), rel=1e-12)
    assert (found["bytes"], found["context"]) == (len(TEXT), window)


def test_the_interval_is_that_of_blocks(told, library, model, text):
    found = told(model, "--data", text, "--context", 64)
    loaded = library.model(model, INT8)
    losses = losses_by_definition(loaded, loaded.tokenize(TEXT, special=False, begin=True), 64)
    count = len(losses) // 128
    blocks = [losses[128 * i : 128 * (i + 1) if i + 1 < count else None] for i in range(count)]
    shares = [len(block) / len(losses) for block in blocks]
    squares = sum((share * (block.mean() - losses.mean())) ** 2 for share, block in zip(shares, blocks, strict=True))
    error = 1.96 * math.sqrt(squares * count / (count - 1))
    wanted = [math.exp(losses.mean() - error), math.exp(losses.mean() + error)]
    assert found["interval"] == pytest.approx(wanted, rel=1e-9)
    assert told(model, "--data", "-", "--context", 64, stdin=TEXT[:256].encode())["interval"] is None


def test_digits_do_not_depend_on_threads(told, model, text):
    def digits(*words):
        found = told(model, "--data", text, "--context", 50, *words)
        return {key: value for key, value in found.items() if key != "seconds"}

    assert digits("--threads", 1) == digits("--threads", 3) == digits()


def test_without_json_it_is_four_lines(run, model, text):
    process = run("perplexity", model, "--data", text, "--context", 64)
    lines = process.stdout.decode().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["perplexity", "nats a token", "bits a byte", "predictions"]
    assert f"{len(TEXT) - 1}, in windows of 64 tokens" in lines[3]
    assert "the 95 % interval" in lines[0]


def test_names_of_control_tokens_are_text(told, model):
    assert told(model, "--data", "-", "--context", 8, stdin=b"a <|end|> stays ten letters")["tokens"] == 26


def test_a_token_behind_a_text_is_not_predicted(answer, told, tmp_path, text):
    ends = {"tokenizer.ggml.add_eos_token": (gguf.GGUFValueType.BOOL, True)}
    path = write_changed(tmp_path / "ends.gguf", overrides=ends)
    assert len(answer("tokenize", path, "--file", text)["tokens"]) == len(TEXT) + 1
    assert told(path, "--data", text, "--context", 8)["tokens"] == len(TEXT) - 1


@pytest.mark.parametrize(
    "words, code, sentence",
    [
        (["--data", "nowhere.txt"], 3, "nowhere.txt"),
        ([], 2, "--data is required"),
        (["--data", ""], 2, "the name is empty"),
        (["--data", "TEXT", "--context", 0], 2, "--context"),
        (["--data", "TEXT", "--context", 1 << 20], 3, "--context: expected at most"),
        (["--data", "TEXT", "--exact", "--arithmetic", "int8"], 2, "excludes"),
    ],
)
def test_wrong_use(refused, model, text, words, code, sentence):
    status, said = refused(model, *(str(text) if word == "TEXT" else word for word in words))
    assert status == code and sentence in said


@pytest.mark.parametrize("short, context", [(b"", 8), (b"a", 1), (b"seven..", 8)])
def test_a_text_shorter_than_a_window(refused, model, short, context):
    status, said = refused(model, "--data", "-", "--context", context, stdin=short)
    assert status == 3
    assert f"expected a text of {max(context, 2)} tokens at least, a window, got {len(short)}" in said


def test_logits_of_nan(refused, tmp_path, text):
    def spoil(tensors):
        tensors["output_norm.weight"][:] = np.nan

    path = write_changed(tmp_path / "nan.gguf", spoil)
    status, said = refused(path, "--data", text, "--context", 64, "--exact")
    assert status == 3 and "NaN" in said


def test_an_interrupt_ends_it(bie, model, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text(TEXT * 1000)
    process = subprocess.Popen(
        [str(bie), "perplexity", str(model), "--data", str(long)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    interrupt(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b"" and b"interrupted" in err
