"""bie serve tells log-probabilities, and takes biases and penalties."""

import numpy as np
import pytest
from llm_library import INT8
from serving import COMPLETIONS, GREEDY, by_name, choice, merged, name_of, spelled, user


@pytest.mark.parametrize("fields", [{"max_tokens": 12}, {"max_tokens": 12, "temperature": 1.3, "seed": 8}])
def test_logprobs_of_a_completion_are_those_of_bie_generate(server, written, fields):
    wanted = written("Water", logprobs=20, **fields)
    found = choice(server.complete("Water", logprobs=20, **(GREEDY | fields)))["logprobs"]
    assert found["tokens"] == [name_of(token) for token in wanted["tokens"]]
    assert found["top_logprobs"] == [by_name(each) for each in wanted["logprobs"]]
    for name, value, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
        assert value == top.get(name, value) <= 0
    lengths = [0 if token == 0 else 1 for token in wanted["tokens"]]
    assert found["text_offset"] == [sum(lengths[:i]) for i in range(12)]
    few = choice(server.complete("Water", logprobs=2, **(GREEDY | fields)))["logprobs"]
    assert few["top_logprobs"] == [by_name(each[:2]) for each in wanted["logprobs"]]
    assert few["token_logprobs"] == found["token_logprobs"]
    none = choice(server.complete("Water", logprobs=0, **(GREEDY | fields)))["logprobs"]
    assert none["token_logprobs"] == found["token_logprobs"]
    assert not any(none["top_logprobs"])


def test_logprobs_of_a_chat_are_those_of_bie_generate(server, written):
    wanted = written(user("Hi"), logprobs=5, max_tokens=12)
    fields = {"max_tokens": 12, "logprobs": True, "temperature": 0}
    found = choice(server.chat(user("Hi"), top_logprobs=5, **fields))["logprobs"]["content"]
    assert [each["token"] for each in found] == [name_of(token) for token in wanted["tokens"]]
    for each, likeliest in zip(found, wanted["logprobs"], strict=True):
        assert [(top["token"], top["logprob"]) for top in each["top_logprobs"]] == list(by_name(likeliest).items())
        assert each["logprob"] == each["top_logprobs"][0]["logprob"]
        for told in (each, *each["top_logprobs"]):
            assert bytes(told["bytes"]).decode() == told["token"]
    alone = choice(server.chat(user("Hi"), **fields))["logprobs"]["content"]
    assert alone == [each | {"top_logprobs": []} for each in found]


def test_the_echo_of_a_prompt_has_its_logprobs(server, written, library, served_model):
    prompt = "Water boils"
    only = choice(server.complete(prompt, echo=True, logprobs=3, max_tokens=4, **GREEDY))
    assert only["text"] == prompt + written(prompt, max_tokens=4)["text"]
    found = only["logprobs"]
    assert found["tokens"][: len(prompt)] == list(prompt)
    assert found["text_offset"][: len(prompt)] == list(range(len(prompt)))
    assert (found["token_logprobs"][0], found["top_logprobs"][0]) == (None, None)
    for i in range(1, len(prompt)):
        (likeliest,) = written(prompt[:i], max_tokens=1, logprobs=3)["logprobs"]
        assert found["top_logprobs"][i] == by_name(likeliest)
    logits = library.model(served_model, INT8).logits(spelled(prompt)).astype(np.float64)
    shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    wanted = [shares[i - 1, token] for i, token in enumerate(spelled(prompt)) if i > 0]
    assert found["token_logprobs"][1 : len(prompt)] == pytest.approx(wanted, abs=1e-5)
    assert found["top_logprobs"][len(prompt) :] == [
        by_name(each) for each in written(prompt, max_tokens=4, logprobs=3)["logprobs"]
    ]
    body = {"prompt": prompt, "echo": True, "logprobs": 3, "max_tokens": 4} | GREEDY
    assert merged(server.events(COMPLETIONS, body)) == [only]
    scored = choice(server.complete(prompt, echo=True, logprobs=3, max_tokens=0))  # as evaluations ask
    assert (scored["text"], scored["finish_reason"]) == (prompt, "length")
    assert scored["logprobs"] == {name: values[: len(prompt)] for name, values in found.items()}


def test_an_echo_without_logprobs_is_the_prompt_alone(server):
    plain = choice(server.complete("Water", max_tokens=5, **GREEDY))
    for prompt in ("Water", spelled("Water")):
        only = choice(server.complete(prompt, echo=True, max_tokens=5, **GREEDY))
        assert only == plain | {"text": "Water" + plain["text"]}


def test_biases_move_the_choice(server):
    def text(**bias) -> str:
        return choice(server.complete("Water", max_tokens=8, temperature=0, logit_bias=bias))["text"]

    free = text()
    assert text(**{"34": 100}) == "A" * 8
    (first,) = spelled(free[0])
    assert free[0] not in text(**{str(first): -100})
    assert text(**{"34": 0}) == free
    sampled = server.chat(user("Hi"), max_tokens=8, seed=1, temperature=1, logit_bias={"34": 100, "35": -100})
    assert choice(sampled)["message"]["content"] == "A" * 8


def test_biases_leave_logprobs_as_the_model_has_them(server):
    free = choice(server.complete("Water", max_tokens=1, temperature=0, logprobs=20))["logprobs"]
    bound = choice(server.complete("Water", max_tokens=1, temperature=0, logprobs=20, logit_bias={"34": 100}))
    assert bound["logprobs"]["top_logprobs"] == free["top_logprobs"]


@pytest.mark.parametrize("fields", [{"presence_penalty": 2}, {"frequency_penalty": 1.5}, {"frequency_penalty": -2}])
def test_penalties_follow_their_formula(server, library, served_model, fields):
    """OpenAI's: the logit of a token of the answer loses the presence penalty, and the other for each time."""
    asked = library.model(served_model, INT8)
    sequence, fed, counts, wanted = asked.sequence(), spelled("Water"), np.zeros(96), []
    for _ in range(40):
        logits = asked.read([(sequence, fed)], every=False)[0].astype(np.float64)
        logits -= fields.get("presence_penalty", 0) * (counts > 0) + fields.get("frequency_penalty", 0) * counts
        wanted.append(int(logits.argmax()))
        counts[wanted[-1]] += 1
        fed = wanted[-1:]
    found = choice(server.complete("Water", max_tokens=40, temperature=0, logprobs=0, **fields))
    assert found["logprobs"]["tokens"] == [name_of(token) for token in wanted]
    assert found["text"] != choice(server.complete("Water", max_tokens=40, temperature=0))["text"]
