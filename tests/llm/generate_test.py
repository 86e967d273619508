"""bie generate and bie tokenize."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from llm_library import EXACT, INT8
from small_models import float_model, write_model


@pytest.fixture
def model(models):
    return models("llama", "Q8_0")


def greedy(library, path, tokens: list[int], count: int, arithmetic: int) -> list[int]:
    """The largest logit at a time, through the C API."""
    model = library.model(path, arithmetic)
    sequence, found, fed = model.sequence(), [], tokens
    while len(found) < count:
        logits = model.read([(sequence, fed)], every=False)[0]
        found.append(int(logits.argmax()))
        fed = found[-1:]
    return found


@pytest.mark.parametrize("arithmetic", ["int8", "exact"])
def test_it_writes_the_likeliest_tokens(answer, library, model, arithmetic):
    said = answer("generate", model, "--prompt", "Water", "--tokens", 20, "--arithmetic", arithmetic)
    assert said["prompt_tokens"] == [ord(c) - 31 for c in "Water"]
    wanted = greedy(library, model, said["prompt_tokens"], 20, EXACT if arithmetic == "exact" else INT8)
    assert said["tokens"] == wanted
    assert said["text"] == "".join(chr(t + 31) for t in wanted if t != 0)
    assert said["finish"] == "length"
    assert {"load_seconds", "prompt_seconds", "generate_seconds"} <= said.keys()


def test_an_end_token_ends_it(answer, model, tmp_path):
    tokens = answer("generate", model, "--prompt", "abc", "--tokens", 20)["tokens"]
    end = tokens[9]
    write_model(tmp_path / "a.gguf", "llama", "Q8_0", end=end)
    said = answer("generate", tmp_path / "a.gguf", "--prompt", "abc")
    assert said["tokens"] == tokens[: tokens.index(end) + 1]
    assert said["finish"] == "end"
    assert said["text"] == "".join(chr(t + 31) for t in said["tokens"][:-1] if t != 0)


def test_text_streams_to_stdout_and_speeds_to_stderr(run, answer, model):
    process = run("generate", model, "--prompt", "Hello", "--tokens", 9, "--exact")
    assert process.returncode == 0
    assert (
        process.stdout.decode()
        == answer("generate", model, "--prompt", "Hello", "--tokens", 9, "--exact")["text"] + "\n"
    )
    assert b"wrote 9 tokens" in process.stderr
    assert run("generate", model, "--prompt", "Hello", "--tokens", 9, "--quiet").stderr == b""


def test_prompts_come_from_files_and_stdin(answer, model, tmp_path):
    (tmp_path / "prompt").write_text("Some words")
    wanted = answer("generate", model, "--prompt", "Some words", "--tokens", 5)["tokens"]
    assert answer("generate", model, "--prompt-file", tmp_path / "prompt", "--tokens", 5)["tokens"] == wanted
    assert answer("generate", model, "--prompt-file", "-", "--tokens", 5, stdin=b"Some words")["tokens"] == wanted


def test_a_batch_is_answered_as_each_prompt_alone(answer, model, tmp_path):
    lines = [f"{'ab' * (i % 5)}line {i}" for i in range(17)]
    (tmp_path / "batch").write_text("\n".join(lines) + "\n")
    options = ("--tokens", 12, "--temperature", 0.9, "--seed", 5, "--threads", 2)
    together = answer("generate", model, "--batch", tmp_path / "batch", *options)
    assert [said["command"] for said in together] == ["generate"] * 17
    for line, said in zip(lines, together, strict=True):
        alone = answer("generate", model, "--prompt", line, *options)
        assert (said["prompt_tokens"], said["tokens"]) == (alone["prompt_tokens"], alone["tokens"])


def test_the_seed_decides(answer, model):
    def tokens(*options):
        return answer("generate", model, "--prompt", "abc", "--tokens", 30, "--temperature", 1.5, *options)["tokens"]

    assert tokens("--seed", 1) == tokens("--seed", 1)
    assert tokens("--seed", 1) != tokens("--seed", 2)
    assert tokens() == tokens("--seed", 0)
    best = answer("generate", model, "--prompt", "abc", "--tokens", 30)["tokens"]
    assert tokens("--top-k", 1) == tokens("--top-p", 0) == tokens("--min-p", 1) == best


def test_an_answer_ends_before_a_stop_text(answer, run, model):
    whole = answer("generate", model, "--prompt", "abc", "--tokens", 40)["text"]
    stop = whole[7:10]
    end = whole.index(stop)
    said = answer("generate", model, "--prompt", "abc", "--tokens", 40, "--stop", stop, "--stop", "never there")
    assert (said["text"], said["finish"]) == (whole[:end], "stop")
    assert (
        run("generate", model, "--prompt", "abc", "--tokens", 40, "--stop", stop).stdout.decode() == whole[:end] + "\n"
    )
    half = whole[-2:] + "\x01"  # its beginning ends the answer and is told in the end
    assert answer("generate", model, "--prompt", "abc", "--tokens", 40, "--stop", half)["text"] == whole


def test_the_context_bounds_an_answer(answer, run, model):
    said = answer("generate", model, "--prompt", "abcde", "--context", 9)
    assert (len(said["tokens"]), said["finish"]) == (4, "length")
    process = run("generate", model, "--prompt", "abcdef", "--context", 5)
    assert process.returncode == 3
    assert b"expected a prompt of at most 5 tokens, the context, got 6" in process.stderr
    assert b"expected at most 512" in run("generate", model, "--prompt", "a", "--context", 513).stderr
    assert answer("generate", model, "--prompt", "abc", "--tokens", 0)["tokens"] == []


def test_logprobs_are_those_of_the_logits(answer, library, model):
    said = answer("generate", model, "--prompt", "abc", "--tokens", 4, "--logprobs", 3, "--exact")
    logits = library.model(model).logits(said["prompt_tokens"])[-1].astype(np.float64)
    shares = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    best = np.argsort(-shares, kind="stable")[:3]
    assert [token for token, _ in said["logprobs"][0]] == best.tolist()
    assert [value for _, value in said["logprobs"][0]] == pytest.approx(shares[best])
    assert len(said["logprobs"]) == len(said["tokens"])


def test_a_penalty_keeps_tokens_from_coming_back(answer, model):
    said = answer("generate", model, "--prompt", "abc", "--tokens", 15, "--repeat-penalty", 100)
    both = said["prompt_tokens"] + said["tokens"]
    assert len(set(both)) == len(both)


def test_tokenize_is_what_generate_reads(answer, run, model):
    tokens = answer("tokenize", model, "--text", "Water <|end|>")["tokens"]
    assert tokens == [*(ord(c) - 31 for c in "Water "), 0]
    assert answer("tokenize", model, "--text", "<|end|>", "--no-special")["tokens"] == [ord(c) - 31 for c in "<|end|>"]
    assert run("tokenize", model, "--text", "ab").stdout.decode().split() == ["66", "a", "67", "b"]
    assert answer("tokenize", model, "--decode", ",".join(map(str, tokens)))["text"] == "Water <|end|>"
    assert answer("tokenize", model, "--file", "-", stdin=b"Water")["tokens"] == tokens[:5]
    assert b"expected tokens from 0 to 95, got 96" in run("tokenize", model, "--decode", "96").stderr


def test_inspect_names_what_a_model_is(answer, run, models):
    path = models("qwen3", "Q8_0")
    said = answer("inspect", path)["model"]
    assert (said["architecture"], said["context"]) == ("qwen3", 512)
    assert said["parameters"] == sum(p.numel() for p in float_model("qwen3").parameters())
    assert set(said["bytes_of_type"]) == {"F32", "Q8_0"}
    assert sum(said["bytes_of_type"].values()) == said["bytes"]
    assert f"architecture qwen3, context 512, {said['parameters']} parameters" in run("inspect", path).stdout.decode()


def test_ctrl_c_keeps_what_was_printed(bie, models):
    words = [str(bie), "generate", str(models("llama")), "--prompt", "a", "--exact", "--temperature", "1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    rest, sentences = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the answer was at its end before the signal came")
    assert process.returncode == 130
    assert b"interrupted" in sentences
    assert rest.endswith(b"\n")


USES = {
    "no prompt": ((), "--prompt"),
    "two prompts": (("--prompt", "a", "--batch", "b"), "--prompt"),
    "a seed that nothing reads": (("--prompt", "a", "--seed", "1"), "--temperature"),
    "two arithmetics": (("--prompt", "a", "--exact", "--arithmetic", "int8"), "--arithmetic"),
    "a wrong arithmetic": (("--prompt", "a", "--arithmetic", "int4"), "int4"),
    "logprobs without json": (("--prompt", "a", "--logprobs", "2"), "--json"),
    "a temperature below 0": (("--prompt", "a", "--temperature", "-1"), "from 0 to 1000, got -1"),
    "a share above 1": (("--prompt", "a", "--temperature", "1", "--top-p", "1.5"), "from 0 to 1, got 1.5"),
    "an empty stop": (("--prompt", "a", "--stop", ""), "empty"),
    "half a token": (("--prompt", "a", "--tokens", "1.5"), "--tokens"),
}


@pytest.mark.parametrize("use", USES)
def test_wrong_uses_are_told(run, model, use):
    words, sentence = USES[use]
    process = run("generate", model, *words)
    assert process.returncode == 2
    assert sentence in process.stderr.decode()
    assert process.stdout == b""


def test_smollm_goes_on(answer, smollm):
    start = time.monotonic()
    said = answer("generate", smollm, "--prompt", "Water boils at", "--tokens", 8, "--exact")
    assert said["text"].startswith(" 100")
    assert time.monotonic() - start < 60
