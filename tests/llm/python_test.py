"""The Python package bie.llm."""

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from llm_package import imported
from small_models import write_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def llm(build):
    """The package over the library of this build."""
    return imported(build, "bie.llm")


@pytest.fixture(scope="session")
def path(models):
    return models("llama", "Q8_0")


@pytest.fixture(scope="session")
def model(llm, path):
    return llm.load(path, threads=2)


@pytest.fixture
def command(bie, path):
    """The JSON of `bie generate` on the same file."""

    def call(*words, stdin: str = ""):
        words = [str(bie), "generate", str(path), *map(str, words), "--json"]
        process = subprocess.run(words, input=stdin.encode(), capture_output=True, timeout=60, check=True)
        return json.loads(process.stdout)

    return call


def spelled(text: str) -> list[int]:
    """The tokens of a small model's text."""
    return [ord(c) - 31 for c in text]


@pytest.mark.parametrize("count", [1, 2, 64, 65, 200])
def test_a_score_is_a_sum_of_log_probabilities(model, count):
    tokens = spelled("the water boils at noon " * 20)
    front, behind = tokens[:7], tokens[7 : 7 + count]
    sequence = model.sequence()
    sequence.read(front)
    logits = model.logits(front + behind)[6:-1].astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    wanted = (logits[np.arange(count), behind] - np.log(np.exp(logits).sum(1))).sum()
    for _ in range(2):  # nothing is appended
        score, is_likeliest = sequence.score(behind)
        assert score == pytest.approx(wanted, rel=1e-12) and not is_likeliest
    assert len(sequence) == 7


def test_what_a_model_would_write_is_likeliest(model):
    answer = model.generate("the water", tokens=70)
    sequence = model.sequence()
    sequence.read(answer.prompt_tokens)
    score, is_likeliest = sequence.score(answer.tokens)
    assert is_likeliest and score < 0
    # Behind an answer, whose last token is not read yet.
    sequence.generate("", tokens=5)
    assert sequence.score(answer.tokens[5:9])[1]


@pytest.mark.parametrize(
    ("tokens", "sentence"), [([], "got none"), ([96], "0 to 95, got 96"), ([-1], "got -1"), ([5] * 600, "at most 512")]
)
def test_scores_of_tokens_that_cannot_be(llm, model, tokens, sentence):
    sequence = model.sequence()
    sequence.read([5])
    with pytest.raises(llm.ArgumentError, match=sentence):
        sequence.score(tokens)
    with pytest.raises(llm.ArgumentError, match="one token at least, got an empty one"):
        model.sequence().score([5])


def test_bos_and_eos(llm, model, models):
    assert (model.bos, model.eos) == (None, None)
    assert not hasattr(llm, "no_such_name")


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.5, "seed": 7, "top_k": 9}, {"temperature": 1.0, "top_p": 0.5, "repeat_penalty": 1.3}],
)
def test_it_writes_what_the_command_writes(model, command, options):
    words = itertools.chain(*((f"--{key.replace('_', '-')}", value) for key, value in options.items()))
    said = command("--prompt", "Water", "--tokens", 25, *words)
    answer = model.generate("Water", tokens=25, **options)
    assert (answer.prompt_tokens, answer.tokens) == (said["prompt_tokens"], said["tokens"])
    assert (answer.text, answer.finish) == (said["text"], said["finish"])
    assert "".join(model.stream("Water", tokens=25, **options)) == answer.text


def test_stop_texts_and_end_tokens(llm, model, command, tmp_path):
    whole = model.generate("abc", tokens=40).text
    stop = whole[7:10]
    for stops in (stop, ["never there", stop]):
        answer = model.generate("abc", tokens=40, stop=stops)
        assert (answer.text, answer.finish) == (whole[: whole.index(stop)], "stop")
    half = whole[-2:] + "\x01"  # its beginning ends the answer and is told in the end
    assert model.generate("abc", tokens=40, stop=half).text == whole
    end = model.generate("abc", tokens=20).tokens[9]
    write_model(tmp_path / "a.gguf", "llama", "Q8_0", end=end)
    answer = llm.load(tmp_path / "a.gguf").generate("abc")
    assert (answer.tokens[-1], answer.finish) == (end, "end")
    assert end not in answer.tokens[:-1]


def test_messages_are_written_by_the_template(model, command):
    messages = [{"role": "user", "content": "a<|end|>b"}]
    assert model.chat_tokens(messages) == [*spelled("u:a<|end|>b"), 0, *spelled("a:")]
    said = command("--messages", "-", "--tokens", 9, stdin=json.dumps(messages))
    assert model.generate(messages, tokens=9).tokens == said["tokens"]
    template = "{{ messages[0].content }}{{ tools | length }}{{ mood }}"
    tokens = model.chat_tokens(messages, tools=[{}, {}], template=template, variables={"mood": "!"})
    assert tokens == spelled("a<|end|>b2!")
    assert model.generate(messages, tokens=1, template="x").prompt_tokens == spelled("x")
    long = [{"role": "user", "content": "z" * 9000}]
    assert len(model.chat_tokens(long)) == 9000 + 5


def test_tokens_and_back(model):
    assert model.tokenize("Water <|end|>") == [*spelled("Water "), 0]
    assert model.tokenize("<|end|>", special=False) == spelled("<|end|>")
    assert model.detokenize([*spelled("Water"), 0]) == "Water"
    assert model.detokenize([0], special=True) == "<|end|>"
    assert model.tokenize("") == []
    assert model.tokenize("a\udcffb") == spelled("ab")  # a byte that is no UTF-8, and no token


def test_logits_are_those_of_the_library(model, library, path):
    tokens = spelled("Some words")
    found = model.logits(tokens)
    assert found.shape == (len(tokens), model.vocabulary)
    assert found.dtype == np.float32
    assert np.array_equal(found, library.model(path, 0).logits(tokens))
    assert np.array_equal(model.sequence().read(tokens), found[-1])


def test_a_fork_goes_on_by_itself(model):
    text = model.sequence()
    text.read(model.tokenize("one two "))
    fork = text.fork()
    assert text.generate("three", tokens=8).tokens == model.generate("one two three", tokens=8).tokens
    assert fork.generate("four", tokens=8).tokens == model.generate("one two four", tokens=8).tokens
    assert fork.generate(tokens=5).tokens == model.generate("one two four", tokens=13).tokens[8:]
    assert len(fork) == len("one two four") + 13


def test_a_cut_text_forgets(llm, model):
    text = model.sequence()
    text.generate("one two ", tokens=9)
    text.cut(4)
    assert len(text) == 4
    assert text.generate("four", tokens=8).tokens == model.generate("one four", tokens=8).tokens
    text.cut(0)
    with pytest.raises(llm.ArgumentError, match="expected a prompt of one token at least"):
        text.generate()
    with pytest.raises(llm.ArgumentError, match="from 0 to that of the sequence"):
        text.cut(9)


def test_a_prompt_of_several_parts(llm, tmp_path):
    write_model(tmp_path / "a.gguf", "llama", "Q8_0")
    model = llm.load(tmp_path / "a.gguf")
    prompt = "ab" * 300
    with pytest.raises(llm.ArgumentError, match="expected at most 512 tokens, the context, got 600"):
        model.generate(prompt)
    assert model.generate(prompt[:510]).finish == "length"
    assert len(model.generate(prompt[:510]).tokens) == 2


def test_the_context_bounds_an_answer(llm, path):
    model = llm.load(path, context=9)
    answer = model.generate("abcde")
    assert (len(answer.tokens), answer.finish) == (4, "length")
    assert model.generate("abcde", tokens=0).tokens == []


def test_threads_write_side_by_side(model):
    prompts = [f"prompt {i}" for i in range(6)]
    wanted = [model.generate(prompt, tokens=30).tokens for prompt in prompts]
    found: list = [None] * len(prompts)

    def work(i: int) -> None:
        found[i] = model.generate(prompts[i], tokens=30).tokens

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


def test_a_text_outlives_its_model(llm, path):
    text = llm.load(path).sequence()
    assert text.generate("abc", tokens=3).tokens == llm.load(path).generate("abc", tokens=3).tokens


def test_arithmetic_and_cache_are_chosen(llm, path, command):
    for words, options in ((("--exact",), {"arithmetic": "exact"}), (("--kv", "f16"), {"kv": "f16"})):
        said = command("--prompt", "abc", "--tokens", 20, *words)
        assert llm.load(path, **options).generate("abc", tokens=20).tokens == said["tokens"]


WRONG = {
    "an empty prompt": (lambda m: m.generate(""), "expected a prompt of one token"),
    "a token too large": (lambda m: m.logits([96]), "expected tokens from 0 to 95, got 96"),
    "a token of 33 bits": (lambda m: m.logits([2**32]), "expected tokens of the vocabulary, got 4294967296"),
    "a token below 0": (lambda m: m.logits([-1]), "got -1"),
    "an empty stop": (lambda m: m.generate("a", stop=[""]), "stop: expected texts"),
    "a seed below 0": (lambda m: m.generate("a", seed=-1), "seed: expected 0 to"),
    "a temperature below 0": (lambda m: m.generate("a", temperature=-1), "expected a finite temperature"),
    "a penalty of 0": (lambda m: m.generate("a", repeat_penalty=0), "repeat_penalty: expected a number above 0"),
    "a share above 1": (lambda m: m.generate("a", temperature=1, top_p=2), "shares from 0 to 1"),
    "messages that are none": (lambda m: m.chat_tokens({"role": "user"}), "messages"),
    "a template that is none": (lambda m: m.chat_tokens([{"role": "user"}], template="{% if"), "line 1"),
}


@pytest.mark.parametrize("use", WRONG)
def test_wrong_uses_are_told(llm, model, use):
    call, sentence = WRONG[use]
    with pytest.raises(llm.ArgumentError, match=sentence):
        call(model)
    assert model.generate("abc", tokens=3).finish == "length"


def test_files_and_options_that_cannot_be(llm, path, tmp_path):
    with pytest.raises(llm.FileError, match=r"none\.gguf"):
        llm.load(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="arithmetic: expected one of 'int8', 'exact', got 'int4'"):
        llm.load(path, arithmetic="int4")
    for options, sentence in (({"kv": "q4"}, "kv"), ({"threads": 0}, "threads"), ({"context": 513}, "1 to 512")):
        with pytest.raises(llm.ArgumentError, match=sentence):
            llm.load(path, **options)


def test_importing_it_imports_no_torch_and_no_numpy(llm):
    code = "import sys, bie.llm; assert not {'torch', 'numpy'} & set(sys.modules), 'imported'"
    env = os.environ | {"PYTHONPATH": str(ROOT / "python/bie-llm")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_vectors_of_texts(llm, model):
    texts = ["The water boils.", "A river runs to the sea, and more."]
    vectors = model.embed(texts)
    assert vectors.shape == (2, model.width) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for vector, text in zip(vectors, texts, strict=True):
        assert np.array_equal(model.embed(text), vector)
    assert not np.allclose(vectors[0], vectors[1], atol=0.1)
    with pytest.raises(llm.ArgumentError, match="expected texts of 1 to 512 tokens, the context, got one of 0"):
        model.embed(["a", ""])
