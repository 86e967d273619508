"""bie serve answers as OpenAI's interface says, and with what bie generate writes."""

import json
import re

import pytest
from serving import CHAT, COMPLETIONS, GREEDY, choice, merged, name_of, spelled, until, user
from small_models import CHAT_TEMPLATE, write_model

# The paths that tell


def test_health_is_ok(server):
    assert server.get("/health").json == {"status": "ok"}
    assert server.get("/health?from=a-probe").json == {"status": "ok"}


def test_the_model_is_listed(server, served_model):
    listed = server.get("/v1/models").json
    assert listed["object"] == "list"
    (entry,) = listed["data"]
    assert (entry["id"], entry["object"]) == (served_model.stem, "model")
    assert {"created", "owned_by"} <= entry.keys()
    assert server.listening["model"] == served_model.stem


def test_props_name_the_context(server, served_model):
    props = server.get("/props").json
    (entry,) = props["models"]
    assert (entry["id"], entry["context"], entry["chat"]) == (served_model.stem, 512, True)
    assert server.listening["context"] == 512


def test_the_page_needs_nothing_from_elsewhere(server):
    reply = server.get("/")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/html")
    assert reply.body.lower().startswith(b"<!doctype html>")
    assert not re.search(rb"(src|href)\s*=\s*[\"']?(https?:)?//", reply.body)
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]


def test_a_name_can_be_given(serve, served_model):
    named = serve(served_model, "--name", "a/b: c")
    assert named.get("/v1/models").json["data"][0]["id"] == "a/b: c"
    assert named.complete("a", max_tokens=1, model="other")["model"] == "a/b: c"


SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{([a-z_]+="[^"\\\n]*"(?:,[a-z_]+="[^"\\\n]*")*)\})? (-?[0-9.e+-]+|\+Inf|NaN)'
)


def test_metrics_are_well_formed(server):
    server.complete("abc", max_tokens=4)
    reply = server.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert reply.body.endswith(b"\n")
    types, helped, seen, family = {}, set(), set(), None
    for line in reply.body.decode().splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in helped
            helped.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == family and kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            name, labels, _ = SAMPLE.fullmatch(line).groups()
            assert (name, labels) not in seen
            seen.add((name, labels))
            ends = ("_bucket", "_sum", "_count") if types[family] == "histogram" else ("",)
            assert name in [family + end for end in ends]
            assert types[family] != "counter" or name.endswith("_total")
    assert types.keys() == helped
    values = server.metrics()
    histograms = [name for name, kind in types.items() if kind == "histogram"]
    assert histograms
    for name in histograms:
        buckets = [value for key, value in values.items() if key.startswith(f"{name}_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == values[f"{name}_count"] > 0
        assert values[f"{name}_sum"] > 0


def test_counters_rise_by_what_is_done(server):
    until(server.is_idle, "the end of other requests")
    path = f'bie_requests_total{{path="{COMPLETIONS}",status="%d"}}'
    before = server.metrics()
    server.complete("abc", max_tokens=5)
    server.post(COMPLETIONS, {"prompt": "abc", "n": 0})
    after = server.metrics()

    def rise(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert rise("bie_prompt_tokens_total") + rise("bie_cached_tokens_total") == 3
    assert rise("bie_answer_tokens_total") == 5
    assert rise("bie_request_seconds_count") == rise("bie_first_token_seconds_count") == 1
    assert rise("bie_next_token_seconds_count") == 4
    assert rise(path % 200) == rise(path % 400) == 1
    assert rise("bie_passes_total") >= 5 and rise("bie_rows_total") >= 5
    assert after["bie_pages_used"] <= after["bie_pages_limit"]


# Tokens and templates


@pytest.mark.parametrize("text", ["Water", "a <|end|>b", " ", "~" * 300, "", "<|end|>", "|>"])
def test_tokens_are_those_of_bie_tokenize(server, answer, served_model, text):
    tokens = server.answer("/tokenize", {"content": text})["tokens"]
    assert tokens == answer("tokenize", served_model, "--text", text)["tokens"]
    assert server.answer("/detokenize", {"tokens": tokens})["content"] == text


CONVERSATIONS = {
    "a question": user("Hi"),
    "a system prompt": [{"role": "system", "content": "Be"}, *user("Hi")],
    "three turns": [*user("Hi"), {"role": "assistant", "content": "Yo"}, *user("Who?")],
    "the name of a control token": user("a<|end|>b"),
}


@pytest.mark.parametrize("kind", CONVERSATIONS)
def test_templates_are_applied_as_bie_generate_does(server, written, kind):
    messages = CONVERSATIONS[kind]
    applied = server.answer("/apply-template", {"messages": messages})
    assert applied["tokens"] == written(messages, max_tokens=1)["prompt_tokens"]
    assert applied["prompt"] == "".join(map(name_of, applied["tokens"]))


def test_a_template_comes_from_a_file(serve, answer, served_model, tmp_path):
    (tmp_path / "template").write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    other = serve(served_model, "--template", tmp_path / "template")
    assert other.answer("/apply-template", {"messages": user("Hi")})["prompt"] == "<Hi>"
    wanted = answer("generate", served_model, "--prompt", "<Hi>", "--tokens", 9)["text"]
    assert choice(other.chat(user("Hi"), max_tokens=9, **GREEDY))["message"]["content"] == wanted


# Answers

FIELDS = {
    "greedy": {"max_tokens": 30},
    "sampled": {"max_tokens": 30, "temperature": 0.9, "seed": 5},
    "a large seed": {"max_tokens": 30, "temperature": 1, "seed": 2**62 + 1},
    "top_k": {"max_tokens": 30, "temperature": 1.5, "seed": 1, "top_k": 3},
    "top_p": {"max_tokens": 30, "temperature": 1.5, "seed": 2, "top_p": 0.6},
    "min_p": {"max_tokens": 30, "temperature": 1.5, "seed": 3, "min_p": 0.2},
    "all of them": {"max_tokens": 30, "temperature": 0.7, "seed": 4, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
    "a penalty": {"max_tokens": 30, "repeat_penalty": 1.5},
    "stops": {"max_tokens": 60, "temperature": 1.2, "seed": 6, "stop": ["a", "QQ", "~"]},
    "no tokens": {"max_tokens": 0},
    "the context's end": {"temperature": 1, "seed": 7},
}


@pytest.mark.parametrize("kind", FIELDS)
def test_answers_are_those_of_bie_generate(server, written, kind):
    fields = FIELDS[kind]
    asked = GREEDY | fields
    for path, prompt, body in (
        (COMPLETIONS, "Water", {"prompt": "Water", "max_tokens": -1} | asked),
        (CHAT, user("Hi"), {"messages": user("Hi")} | asked),
    ):
        wanted = written(prompt, **fields)
        whole = server.answer(path, body)
        only = choice(whole)
        assert only["index"] == 0
        text = only["message"]["content"] if path == CHAT else only["text"]
        assert text == wanted["text"]
        assert only["finish_reason"] == ("length" if wanted["finish"] == "length" else "stop")
        assert whole["usage"]["prompt_tokens"] == len(wanted["prompt_tokens"])
        assert whole["usage"]["completion_tokens"] == len(wanted["tokens"])
        assert whole["usage"]["total_tokens"] == len(wanted["prompt_tokens"]) + len(wanted["tokens"])
        assert merged(server.events(path, body)) == [only]


def test_a_prompt_that_fills_the_context_gets_no_answer(server, written):
    assert written("a" * 511, max_tokens=5)["finish"] == "length"
    only = choice(server.complete("a" * 511, max_tokens=5, **GREEDY))
    assert (only["text"], only["finish_reason"]) == (written("a" * 511)["text"], "length")
    assert choice(server.complete("a" * 512, max_tokens=5))["text"] == ""


def test_an_end_token_is_a_stop(serve, answer, tmp_path, served_model):
    tokens = answer("generate", served_model, "--prompt", "abc", "--tokens", 20)["tokens"]
    path = tmp_path / "ends.gguf"
    write_model(path, "llama", "Q8_0", end=tokens[9])
    wanted = answer("generate", path, "--prompt", "abc")
    assert wanted["finish"] == "end"
    ending = serve(path)
    for found in (
        ending.complete("abc", max_tokens=100, **GREEDY),
        ending.complete("abc", max_tokens=-1, **GREEDY),
    ):
        assert (choice(found)["text"], choice(found)["finish_reason"]) == (wanted["text"], "stop")
        assert found["usage"]["completion_tokens"] == len(wanted["tokens"])


def test_the_form_of_an_answer(server, served_model):
    whole = server.chat(user("Hi"), max_tokens=3, seed=11)
    assert (whole["object"], whole["model"], whole["seed"]) == ("chat.completion", served_model.stem, 11)
    assert whole["id"].startswith("chatcmpl-")
    assert isinstance(whole["created"], int)
    assert choice(whole)["message"]["role"] == "assistant"
    assert choice(whole)["logprobs"] is None
    whole = server.complete("Hi", max_tokens=3)
    assert (whole["object"], whole["model"]) == ("text_completion", served_model.stem)
    assert whole["id"].startswith("cmpl-")
    assert server.complete("Hi", max_tokens=3)["id"] != whole["id"]


def test_the_form_of_events(server, served_model):
    events = server.events(CHAT, {"messages": user("Hi"), "max_tokens": 3, "seed": 11})
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({(event["id"], event["created"], event["seed"]) for event in events}) == 1
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [bool(event["choices"][0]["finish_reason"]) for event in events] == [False] * (len(events) - 1) + [True]
    assert all("usage" not in event for event in events)
    events = server.events(COMPLETIONS, {"prompt": "Hi", "max_tokens": 3})
    assert {event["object"] for event in events} == {"text_completion"}
    assert {event["model"] for event in events} == {served_model.stem}


def test_usage_comes_with_a_stream_where_it_is_asked_for(server):
    for path, body in (
        (CHAT, {"messages": user("Hi")}),
        (COMPLETIONS, {"prompt": [spelled("ab"), spelled("abc")], "n": 2}),
    ):
        body = body | {"max_tokens": 3, "seed": 1}
        *events, last = server.events(path, body | {"stream_options": {"include_usage": True}})
        assert last["choices"] == []
        whole = server.answer(path, body)
        assert {k: v for k, v in last["usage"].items() if k.endswith("tokens")} == {
            k: v for k, v in whole["usage"].items() if k.endswith("tokens")
        }
        assert all(event["usage"] is None for event in events)
        assert merged(events) == whole["choices"]


def test_the_server_chooses_a_seed_and_names_it(server):
    first = server.complete("Water", max_tokens=40)
    again = server.complete("Water", max_tokens=40, seed=first["seed"])
    assert again["choices"] == first["choices"]
    other = server.complete("Water", max_tokens=40)
    assert other["seed"] != first["seed"]
    assert other["choices"] != first["choices"]
    events = server.events(CHAT, {"messages": user("Hi"), "max_tokens": 40})
    again = server.chat(user("Hi"), max_tokens=40, seed=events[0]["seed"])
    assert again["choices"] == merged(events)


@pytest.mark.parametrize("seed", [0, 2**63 - 1, -1, -(2**63)])
def test_the_seed_that_is_told_gives_the_answer_again(server, seed):
    first = server.complete("Water", max_tokens=40, seed=seed)
    assert server.complete("Water", max_tokens=40, seed=seed)["choices"] == first["choices"]
    assert server.complete("Water", max_tokens=40, seed=first["seed"])["choices"] == first["choices"]


def test_many_answers_have_streams_of_their_own(server, written):
    fields = {"max_tokens": 25, "temperature": 1.1, "seed": 9}
    many = server.complete("Water", n=5, **fields)
    texts = [each["text"] for each in many["choices"]]
    assert [each["index"] for each in many["choices"]] == list(range(5))
    assert len(set(texts)) == 5
    assert texts[0] == written("Water", **fields)["text"]
    assert [each["text"] for each in server.complete("Water", n=3, **fields)["choices"]] == texts[:3]
    assert many["usage"]["prompt_tokens"] == 5
    assert many["usage"]["completion_tokens"] == 5 * 25
    assert merged(server.events(COMPLETIONS, {"prompt": "Water", "n": 5} | fields)) == many["choices"]
    chats = server.chat(user("Hi"), n=3, **fields)["choices"]
    assert len({each["message"]["content"] for each in chats}) == 3
    assert chats[0]["message"]["content"] == written(user("Hi"), **fields)["text"]


def test_lists_of_prompts_are_answered_one_by_one(server):
    fields = {"max_tokens": 12, "temperature": 1, "seed": 3, "logprobs": 2}
    prompts = ["Water", "a", "W" * 100]
    for asked in (prompts, [spelled(prompt) for prompt in prompts], [prompts[0], spelled(prompts[1]), prompts[2]]):
        found = server.complete(asked, **fields)
        assert [each["index"] for each in found["choices"]] == [0, 1, 2]
        assert found["usage"]["prompt_tokens"] == 106
        for i, prompt in enumerate(prompts):
            assert found["choices"][i] | {"index": 0} == choice(server.complete(prompt, **fields))
    assert choice(server.complete(spelled("Water"), **fields)) == choice(server.complete("Water", **fields))
    pairs = server.complete(["Water", "a"], n=2, **fields)["choices"]
    assert [each["text"] for each in pairs] == [
        each["text"] for prompt in ("Water", "a") for each in server.complete(prompt, n=2, **fields)["choices"]
    ]


def test_a_completion_has_16_tokens_where_nobody_says_more(server):
    assert server.complete("abc")["usage"]["completion_tokens"] == 16


def test_the_two_names_of_the_most_tokens_of_a_chat(server):
    for fields in ({"max_tokens": 5}, {"max_completion_tokens": 5}, {"max_tokens": 9, "max_completion_tokens": 5}):
        assert server.chat(user("Hi"), **fields)["usage"]["completion_tokens"] == 5


def test_the_content_of_a_message_may_be_parts(server):
    fields = {"max_tokens": 9, "temperature": 0}
    wanted = server.chat(user("Hi you"), **fields)["choices"]
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": " you"}]
    assert server.chat([{"role": "user", "content": parts}], **fields)["choices"] == wanted
    assert server.answer("/apply-template", {"messages": [{"role": "user", "content": parts}]})["prompt"].startswith(
        "u:Hi you<"
    )
    empty = server.answer("/apply-template", {"messages": [{"role": "assistant", "content": None}, *user("Hi")]})
    assert empty["prompt"] == "a:<|end|>u:Hi<|end|>a:"


def test_fields_that_nobody_knows_are_ignored(server):
    fields = {"max_tokens": 9, "temperature": 0}
    more = {"user": "somebody", "metadata": {"a": [1]}, "store": False, "frobnicate": [None], "model": "any"}
    assert server.chat(user("Hi"), **fields, **more)["choices"] == server.chat(user("Hi"), **fields)["choices"]
    assert server.complete("Hi", **fields, **more)["choices"] == server.complete("Hi", **fields)["choices"]


def test_null_counts_as_absent(server):
    names = (
        *("n", "stream", "stream_options", "stop", "top_p", "min_p", "top_k", "presence_penalty", "logit_bias"),
        *("frequency_penalty", "logprobs", "top_logprobs", "echo", "suffix", "best_of", "tools", "response_format"),
        *("repeat_penalty", "priority", "user", "functions", "max_completion_tokens"),
    )
    fields = {"max_tokens": 9, "temperature": 0}
    nulls = dict.fromkeys(names)
    assert server.chat(user("Hi"), **fields, **nulls)["choices"] == server.chat(user("Hi"), **fields)["choices"]
    assert server.complete("Hi", **fields, **nulls)["choices"] == server.complete("Hi", **fields)["choices"]
    assert choice(server.complete("Hi", temperature=None, max_tokens=None, seed=4)) == choice(
        server.complete("Hi", seed=4)
    )


def test_what_asks_for_text_alone_is_no_wish(server):
    fields = {"max_tokens": 9, "temperature": 0}
    plain = server.chat(user("Hi"), **fields)["choices"]
    assert server.chat(user("Hi"), **fields, tools=[], response_format={"type": "text"})["choices"] == plain


def test_an_empty_stop_is_none(server):
    fields = {"max_tokens": 9, "temperature": 0}
    wanted = server.complete("Hi", **fields)["choices"]
    assert server.complete("Hi", stop="", **fields)["choices"] == wanted
    assert server.complete("Hi", stop=[], **fields)["choices"] == wanted


def test_one_stop_may_be_a_text(server):
    fields = {"max_tokens": 40, "temperature": 0}
    whole = choice(server.complete("Hi", **fields))["text"]
    stop = whole[7:10]
    only = choice(server.complete("Hi", stop=stop, **fields))
    assert (only["text"], only["finish_reason"]) == (whole[: whole.index(stop)], "stop")
    half = whole[-2:] + "\x01"  # its beginning ends the answer and is told in the end
    body = {"prompt": "Hi", "stop": half} | fields
    assert merged(server.events(COMPLETIONS, body)) == [choice(server.complete("Hi", **fields))]


def test_thoughts_are_told_apart(serve, tmp_path):
    write_model(tmp_path / "a.gguf", "llama", "Q8_0", template=CHAT_TEMPLATE.replace("a:{", "a:<think>{"))
    thinker = serve(tmp_path / "a.gguf")
    fields = {"max_tokens": 9, "temperature": 0}
    only = choice(thinker.chat(user("why"), **fields))
    assert only["message"]["content"] == ""
    thoughts = only["message"]["reasoning_content"]
    assert thoughts == choice(thinker.complete("u:why<|end|>a:<think>", **fields))["text"].lstrip()
    (streamed,) = merged(thinker.events(CHAT, {"messages": user("why")} | fields))
    assert streamed["message"]["reasoning_content"] == thoughts
    assert not streamed["message"]["content"]


# Pages that are kept, turns, the log


def test_a_prompt_that_was_read_is_not_read_again(serve, served_model):
    fresh = serve(served_model)
    prompt, fields = "Wa" * 150, {"max_tokens": 9, "seed": 2, "logprobs": 3}
    first, second = fresh.complete(prompt, **fields), fresh.complete(prompt, **fields)
    assert first["choices"] == second["choices"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    kept = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 200 <= kept < 300
    assert fresh.metrics()["bie_cached_tokens_total"] == kept
    begins_alike = fresh.complete(prompt[:200] + "other", **fields)
    assert 100 <= begins_alike["usage"]["prompt_tokens_details"]["cached_tokens"] <= 200
    assert begins_alike["choices"] == serve(served_model).complete(prompt[:200] + "other", **fields)["choices"]


def test_the_smaller_priority_comes_first(serve, served_model):
    """Two requests wait behind one that takes all rows; it ends once both are there."""
    narrow = serve(served_model, "--rows", 1)
    with narrow.stream(COMPLETIONS, {"prompt": "a", "n": 100, "max_tokens": 500, "priority": -1}) as events:
        blocker = next(events)["id"]
        waiting = [narrow.connect() for _ in range(3)]
        for connection, priority in zip(waiting, (7, 0, 5), strict=True):
            body = {"prompt": "b" * (10 + priority), "max_tokens": 2, "priority": priority}
            seen = len(narrow.get("/v1/requests").json["data"])
            connection.request("POST", COMPLETIONS, json.dumps(body), narrow.headers())
            until(lambda seen=seen: len(narrow.get("/v1/requests").json["data"]) > seen, "a request that waits")
        states = {each["prompt_tokens"]: each["state"] for each in narrow.get("/v1/requests").json["data"]}
        assert states[17] == states[10] == states[15] == "waiting"
        assert narrow.delete(f"/v1/requests/{blocker}").status == 200
        for connection in waiting:
            assert connection.getresponse().status == 200
            connection.close()
    ended = until(lambda: [line for line in narrow.log() if line["event"] == "request"][3:] and narrow.log(), "the log")
    assert [line["prompt_tokens"] for line in ended if line["event"] == "request"][1:] == [10, 15, 17]


def test_clients_take_turns(serve, served_model, tmp_path):
    """A client that comes late waits for one answer of another's request, not for all of them."""
    (tmp_path / "keys").write_text("one\ntwo\n")
    narrow = serve(served_model, "--rows", 1, "--api-key-file", tmp_path / "keys", key="one")
    with narrow.stream(COMPLETIONS, {"prompt": "a", "n": 128, "max_tokens": 500}) as events:
        first = next(events)["id"]
        late = narrow.post(COMPLETIONS, {"prompt": "b", "max_tokens": 2}, headers={"Authorization": "Bearer two"})
        assert late.status == 200
        assert [each["id"] for each in narrow.get("/v1/requests").json["data"] if each["id"] == first]


def test_the_log_has_a_line_for_each_answer(serve, served_model):
    for words, has_text in (((), False), (("--log-text",), True)):
        logging = serve(served_model, *words)
        text = choice(logging.complete("Water", max_tokens=3, seed=1))["text"]
        _, line = until(lambda: len(logging.log()) > 1 and logging.log(), "a line of the log")  # noqa: B023
        assert (line["event"], line["path"], line["status"]) == ("request", COMPLETIONS, 200)
        assert (line["prompt_tokens"], line["tokens"], line["cached_tokens"]) == (5, 3, 0)
        assert line["finish"] == "length"
        assert line.get("text") == (text if has_text else None)


def test_smollm_streams_characters_of_several_tokens(serve, answer, smollm):
    """Each event is whole UTF-8, and the bytes of the tokens are those of the text."""
    prompt = "Emojis: \U0001f600\U0001f680\U0001f600\U0001f680\U0001f600"
    wanted = answer("generate", smollm, "--prompt", prompt, "--tokens", 24)["text"]
    large = serve(smollm)
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0}
    assert choice(large.answer(COMPLETIONS, body))["text"] == wanted
    (streamed,) = merged(large.events(COMPLETIONS, body))
    assert streamed["text"] == wanted
    assert any(ord(c) > 0xFFFF for c in wanted)
    messages = user("Write emojis: \U0001f600\U0001f680")
    bias = {str(token): 2 for token in large.answer("/tokenize", {"content": "\U0001f600"})["tokens"]}
    body = {"messages": messages, "max_tokens": 16, "temperature": 0, "logprobs": True, "logit_bias": bias}
    only = choice(large.answer(CHAT, body))
    assert merged(large.events(CHAT, body)) == [only]
    told = b"".join(bytes(each["bytes"]) for each in only["logprobs"]["content"])
    cut = "\ufffd \n"  # the last character may have been half written
    said = told.decode(errors="replace").removesuffix("<|im_end|>").strip(cut)
    assert said and said == only["message"]["content"].strip(cut)


# OpenAI's own client


@pytest.fixture
def openai(server):
    module = pytest.importorskip("openai")
    with module.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_openai_lists_and_answers(openai, server, served_model):
    assert [each.id for each in openai.models.list()] == [served_model.stem]
    fields = {"max_tokens": 9, "temperature": 0.8, "seed": 3}
    found = openai.chat.completions.create(model="any", messages=user("Hi"), logprobs=True, top_logprobs=2, **fields)
    wanted = choice(server.chat(user("Hi"), logprobs=True, top_logprobs=2, **fields))
    assert found.choices[0].message.content == wanted["message"]["content"]
    assert found.choices[0].logprobs.content[0].logprob == wanted["logprobs"]["content"][0]["logprob"]
    assert found.usage.completion_tokens == 9
    text = openai.completions.create(model="any", prompt=["Hi", "Yo"], logit_bias={"34": 100}, **fields)
    assert [each.text for each in text.choices] == ["A" * 9] * 2


def test_openai_streams(openai, server):
    fields = {"max_tokens": 9, "temperature": 0.8, "seed": 3, "n": 2}
    texts = ["", ""]
    events = openai.chat.completions.create(
        model="any", messages=user("Hi"), stream=True, stream_options={"include_usage": True}, **fields
    )
    for event in events:
        for each in event.choices:
            texts[each.index] += each.delta.content or ""
    assert event.usage.completion_tokens == 18
    assert texts == [each["message"]["content"] for each in server.chat(user("Hi"), **fields)["choices"]]


def test_openai_raises_what_is_refused(openai):
    import openai as package

    with pytest.raises(package.BadRequestError, match="temperature: expected") as refused:
        openai.chat.completions.create(model="any", messages=user("Hi"), temperature=-1)
    assert refused.value.param == "temperature"
    with pytest.raises(package.NotFoundError):
        openai.images.generate(model="any", prompt="a")
