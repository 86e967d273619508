"""Responses, messages and several models of bie serve, asked with the standard library alone."""

import concurrent.futures
import contextlib
import json

import pytest
from interfaces import (
    CHANCES,
    COUNT,
    KINDS,
    MESSAGES,
    RESPONSES,
    SAMPLED,
    said,
)
from serving import (
    CHAT,
    COMPLETIONS,
    EXPECTED_GOT,
    LONG,
    choice,
    spelled,
    until,
    user,
)
from small_models import write_model

# Raw requests: wrong fields

ALIKE = [
    *(("stream", wrong) for wrong in (1, "true", [])),
    *(("temperature", wrong) for wrong in (-0.1, 1001, "hot", True, [], {})),
    *(("top_p", wrong) for wrong in (-0.1, 1.1, "1", False)),
    *(("top_k", wrong) for wrong in (-2, 1.5, "3", 2**40)),
    *(("seed", wrong) for wrong in (1.5, "1", True, 1e30)),
    *(("priority", wrong) for wrong in (10**9, "high")),
    *(("logit_bias", wrong) for wrong in ([], {"96": 1}, {"1": 101})),
    *(("tools", wrong) for wrong in ([{"type": "function"}], "f", {})),
    *(("enable_thinking", wrong) for wrong in (1, "no", [])),
    *(("chat_template_kwargs", wrong) for wrong in (5, [], "a", {"a": [1]}, {"a": {}})),
]
MOST = (0, -1, 1.5, "9", True, 1e300, [])
IN_RESPONSES = [
    *(("input", wrong) for wrong in (None, 5, [], {}, True)),
    *(("input[0]", [wrong]) for wrong in (5, None, "Hi", [], {}, {"content": "a"}, {"role": 5, "content": "a"})),
    *(("input[1]", [*user("Hi"), {"type": kind}]) for kind in ("function_call", "item_reference", 5)),
    *(("input[0].content", user(wrong)) for wrong in (None, 5, {}, True, [5], ["Hi"], [{}])),
    *(("input[0].content", user([{"type": kind}])) for kind in ("input_image", "input_file", "input_text", "thinking")),
    ("input[0].content", user([{"type": "input_text", "text": 5}])),
    ("input", [{"type": "reasoning", "id": "rs_1", "summary": []}]),
    *(("instructions", wrong) for wrong in (5, [], {}, True)),
    *(("max_output_tokens", wrong) for wrong in MOST),
    *(("stop", wrong) for wrong in (5, [""], ["a"] * 17, [1])),
    *(("include", wrong) for wrong in (5, "all", {}, [5], [None])),
    *(("top_logprobs", wrong) for wrong in (21, -1, 1.5, "2")),
    *(("metadata", wrong) for wrong in (5, "a", [])),
    *(("background", wrong) for wrong in (True, 1, "no")),
    *(("user", wrong) for wrong in (5, {}, [])),
    *((name, "resp_1") for name in ("previous_response_id", "conversation", "prompt")),
    *(("text", wrong) for wrong in (5, "plain", [])),
    *(
        ("text.format", {"format": wrong})
        for wrong in ("text", 5, {}, {"type": "json_object"}, {"type": "json_schema"})
    ),
]
IN_MESSAGES = [
    *(("messages", wrong) for wrong in (None, [], {}, "Hi", 5)),
    *(
        ("messages[1]", [*user("a"), wrong])
        for wrong in (5, None, [], {}, {"content": "a"}, {"role": 5, "content": ""})
    ),
    *(("messages[0]", [{"role": role, "content": "a"}]) for role in ("system", "tool", "developer", "")),
    *(("messages[0].content", user(wrong)) for wrong in (None, 5, {}, True, [5], ["Hi"], [{}])),
    *(("messages[0].content", user([{"type": kind}])) for kind in ("image", "document", "tool_result", "text")),
    ("messages[0].content", user([{"type": "text", "text": 5}])),
    ("messages", [*user("a"), {"role": "assistant", "content": "b"}]),
    *(("system", wrong) for wrong in (5, {}, True, [5], [{"type": "image"}], [{"type": "text"}])),
    *(("max_tokens", wrong) for wrong in (None, *MOST)),
    *(("stop_sequences", wrong) for wrong in (5, [""], ["a"] * 17, [1], {}, True)),
    *(("thinking", wrong) for wrong in (5, True, "enabled", [], {}, {"type": "on"}, {"type": 5})),
]
WRONG = [
    *((RESPONSES, name, wrong) for name, wrong in ALIKE + IN_RESPONSES),
    *((MESSAGES, name, wrong) for name, wrong in ALIKE + IN_MESSAGES),
    *((COUNT, name, wrong) for name, wrong in IN_MESSAGES if name.startswith(("messages", "system", "thinking"))),
]
RIGHT = {
    RESPONSES: {"input": "Hi", "max_output_tokens": 3},
    MESSAGES: {"messages": user("Hi"), "max_tokens": 3},
    COUNT: {"messages": user("Hi")},
}


def refusal_of(reply, path: str) -> tuple[str, str]:
    """The type and the sentence of a refusal in the form of its interface."""
    assert reply.headers["Content-Type"].startswith("application/json")
    if path == RESPONSES:
        return reply.error["type"], reply.error["message"]
    assert reply.json.keys() == {"type", "error"} and reply.json["type"] == "error"
    assert reply.json["error"].keys() == {"type", "message"}
    return reply.json["error"]["type"], reply.json["error"]["message"]


def is_a_sentence(text: str) -> bool:
    return bool(EXPECTED_GOT.search(text) or ": this server " in text) and "\n" not in text and ". " not in text


@pytest.mark.parametrize(
    ("path", "name", "wrong"), WRONG, ids=[f"{p.rpartition('/')[2]}-{n}={str(w)[:40]}" for p, n, w in WRONG]
)
def test_a_wrong_field_is_told_in_the_form_of_its_interface(server, path, name, wrong):
    field = name.partition("[")[0].partition(".")[0]
    for more in ({}, {"stream": True}) if field != "stream" else ({},):
        reply = server.post(path, RIGHT[path] | more | {field: wrong})
        assert reply.status == 400, reply.body
        kind, sentence = refusal_of(reply, path)
        assert kind == "invalid_request_error"
        assert is_a_sentence(sentence) and sentence.startswith(name + ":")
        assert path != RESPONSES or reply.error["param"] == name


def test_null_counts_as_absent_and_unknown_fields_are_ignored(server):
    names = (
        *("stream", "temperature", "top_p", "top_k", "seed", "stop", "stop_sequences", "tools", "thinking", "system"),
        *("include", "instructions", "metadata", "previous_response_id", "text", "background", "chat_template_kwargs"),
        *("enable_thinking", "top_logprobs", "frobnicate"),
    )
    for path in RIGHT:
        assert server.post(path, RIGHT[path] | dict.fromkeys(names)).status == 200
        more = {"tool_choice": {"type": "auto"}, "service_tier": "auto", "store": True, "frobnicate": [5]}
        assert server.post(path, RIGHT[path] | more).status == 200


@pytest.mark.parametrize("path", RIGHT)
def test_other_refusals_have_the_form_of_their_interface(server, keyed, both, path):
    """These are refused before a field is read."""
    asked, large = RIGHT[path], RIGHT[path] | {"user": "u" * 3000}
    keyless = {"Authorization": "", "X-Api-Key": "wrong"}
    plain = {"Content-Type": "text/plain"}
    for reply, status, kind in (
        (server.post(path, b"{"), 400, "invalid_request_error"),
        (server.post(path, b"[]"), 400, "invalid_request_error"),
        (server.post(path, asked, headers=plain), 415, "invalid_request_error"),
        (server.get(path), 405, "invalid_request_error"),
        (keyed.post(path, asked, headers=keyless), 401, "authentication_error"),
        (keyed.post(path, large), 413, "invalid_request_error" if path == RESPONSES else "request_too_large"),
        (both.post(path, asked), 404, "invalid_request_error" if path == RESPONSES else "not_found_error"),
        (both.post(path, asked | {"model": 5}), 400, "invalid_request_error"),
    ):
        assert reply.status == status
        found, sentence = refusal_of(reply, path)
        assert (found, is_a_sentence(sentence)) == (kind, True)


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_a_model_without_a_template_is_told(serve, tmp_path, path):
    write_model(tmp_path / "bare.gguf", "llama", "Q8_0", template="")
    reply = serve(tmp_path / "bare.gguf").post(path, RIGHT[path])
    assert (reply.status, refusal_of(reply, path)[0]) == (400, "invalid_request_error")
    assert "--template" in refusal_of(reply, path)[1]


def test_a_template_is_told_whether_to_think(thinker):
    def message(**fields) -> dict:
        return choice(thinker.chat(user("why"), max_tokens=9, **SAMPLED, **fields))["message"]

    assert message()["reasoning_content"]
    assert message(enable_thinking=True) == message(chat_template_kwargs={"enable_thinking": True}) == message()
    off = message(enable_thinking=False)
    assert "reasoning_content" not in off and off["content"]
    assert message(chat_template_kwargs={"enable_thinking": False}) == off
    assert message(chat_template_kwargs={"enable_thinking": True, "a": 1.5}, enable_thinking=False) == off
    for path in (RESPONSES, MESSAGES):
        more = {"max_tokens": 9, "max_output_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
        found = thinker.answer(path, RIGHT[path] | more | {"input": "why", "messages": user("why")} | SAMPLED)
        parts = found["output"][0]["content"] if path == RESPONSES else found["content"]
        assert parts[0]["text"] == off["content"]


# Raw requests: an answer that is ended


def named_events(response):
    """The events of a stream whose names are their types; after the last one nothing comes."""
    lines = iter(response)
    for name in lines:
        data, between = next(lines), next(lines)
        assert (name[:7], data[:6], between) == (b"event: ", b"data: ", b"\n")
        event = json.loads(data[6:])
        assert name[7:-1].decode() == event["type"]
        yield event


@contextlib.contextmanager
def slowed(server):
    """The server takes turns between many other answers and this one."""
    with server.stream(COMPLETIONS, LONG | {"seed": 1}) as events:
        next(events)
        yield
    until(server.is_idle, "the end of the other answers")


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_an_answer_that_is_ended_is_well_formed(server, path):
    """It is the beginning of the whole answer, streamed or not."""
    asked = RIGHT[path] | {"max_tokens": 480, "max_output_tokens": 480} | SAMPLED
    kind = "response.output_text.delta" if path == RESPONSES else "content_block_delta"
    with slowed(server), contextlib.closing(server.connect()) as connection:
        connection.request("POST", path, json.dumps(asked | {"stream": True}), server.headers())
        events = named_events(connection.getresponse())
        told = [next(events)]
        while told[-1]["type"] != kind:
            told.append(next(events))
        first = told[0]["response" if path == RESPONSES else "message"]["id"]
        assert server.delete(f"/v1/requests/{first}").status == 200
        rest = list(events)
        kinds = [event["type"] for event in rest if event["type"] != kind]
        deltas = [event["delta"] for event in told + rest if event["type"] == kind]
        assert server.delete(f"/v1/requests/{first}").status == 404
        connection.request("POST", path, json.dumps(asked), server.headers())
        prefix = "resp_" if path == RESPONSES else "msg_"

        def running_id() -> str | None:
            entries = server.get("/v1/requests").json["data"]
            return next((e["id"] for e in entries if e["id"].startswith(prefix) and e["completion_tokens"] > 5), None)

        assert server.delete("/v1/requests/" + until(running_id, "an answer")).status == 200
        ended = json.loads(connection.getresponse().read())
    if path == RESPONSES:
        assert kinds == [
            *("response.output_text.done", "response.content_part.done", "response.output_item.done"),
            "response.incomplete",
        ]
        assert rest[-2]["item"]["status"] == "incomplete"
        final = rest[-1]["response"]
        assert final["output"] == [rest[-2]["item"]]
        assert final["status"] == ended["status"] == "cancelled"
        texts = [each["output"][0]["content"][0]["text"] for each in (final, ended)]
        assert texts[0] == "".join(deltas)
    else:
        assert kinds == ["content_block_stop", "message_delta", "message_stop"]
        assert ended["type"] == "message" and ended["stop_reason"]
        assert rest[-2]["delta"]["stop_reason"] == ended["stop_reason"]
        texts = ["".join(each["text"] for each in deltas), ended["content"][0]["text"]]
    whole = said(server, user("Hi"), max_tokens=480, **SAMPLED)
    assert all(whole.startswith(text) and 0 < len(text) < len(whole) for text in texts)


# Several models


def text_and_chances(path: str, answer: dict) -> tuple:
    """What is said in an answer of any interface, without what is new each time."""
    if path == RESPONSES:
        return answer["model"], answer["output"][0]["content"]
    if path == MESSAGES:
        return answer["model"], answer["content"], answer["stop_reason"]
    return answer["model"], answer["choices"]


def requests_to(name: str) -> list[tuple[str, dict]]:
    sampled = {"model": name, "temperature": 1}
    return [
        (CHAT, sampled | {"messages": user("Hi"), "max_tokens": 60, "seed": 1, "logprobs": True, "top_logprobs": 2}),
        (COMPLETIONS, sampled | {"prompt": ["Water", "W" * 200], "max_tokens": 40, "seed": 2, "n": 3, "logprobs": 1}),
        (RESPONSES, sampled | {"input": "Who?", "max_output_tokens": 60, "seed": 3, "include": CHANCES}),
        (MESSAGES, sampled | {"messages": user("Why " * 30), "max_tokens": 60, "seed": 4}),
    ]


def test_two_models_answer_side_by_side_as_each_alone(serve, models, both):
    files = {name: models(kind, "Q8_0") for name, kind in KINDS.items()}
    asked = [each for pair in zip(*map(requests_to, files), strict=True) for each in pair]
    alone = {name: serve(file, "--name", name) for name, file in files.items()}
    wanted = [text_and_chances(path, alone[body["model"]].answer(path, body)) for path, body in asked]
    assert all(ours[1] != theirs[1] for ours, theirs in zip(wanted[::2], wanted[1::2], strict=True))
    one_by_one = [text_and_chances(path, both.answer(path, body)) for path, body in asked]
    assert one_by_one == wanted
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        for _ in range(3):
            found = clients.map(lambda each: text_and_chances(each[0], both.answer(*each)), asked)
            assert list(found) == wanted


def test_each_model_is_described(both):
    listed = both.get("/v1/models").json["data"]
    assert [each["id"] for each in listed] == both.listening["models"] == ["small", "other/2"]
    assert both.get("/v1/models/other%2F2").json == both.get("/v1/models/other/2").json == listed[1]
    assert both.get("/v1/models/small").json == listed[0]
    assert both.get("/v1/models/none").status == 404
    assert both.get("/v1/models/").status == 404
    assert [each["id"] for each in both.get("/props").json["models"]] == ["small", "other/2"]


def test_the_tools_for_tokens_name_their_model(both):
    for path, body in (
        ("/tokenize", {"content": "Hi"}),
        ("/detokenize", {"tokens": spelled("Hi")}),
        ("/apply-template", {"messages": user("Hi")}),
    ):
        assert both.post(path, body | {"model": "small"}).status == 200
        assert (both.post(path, body).status, both.post(path, body).error["param"]) == (404, "model")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model", "a=A", "--model", "a=A"), "expected a name of its own for each model"),
        (("--model", "a"), "expected NAME=FILE"),
        (("--model", "=A"), "expected NAME=FILE"),
        (("--model", "a="), "expected NAME=FILE"),
        (("--model", "a=/nowhere/b.gguf"), "/nowhere/b.gguf"),
        (("A", "--model", "a=A"), "--model"),
        (("--model", "a=A", "--name", "b"), "--name"),
        (("--model", "a=A", "--model", "b=A", "--template", "T"), "--template: expected one model"),
        ((), "--model NAME=FILE"),
    ],
)
def test_wrong_models_are_told(run, served_model, tmp_path, words, sentence):
    (tmp_path / "T").write_text("a")
    files = {"A": served_model, "a=A": f"a={served_model}", "b=A": f"b={served_model}", "T": tmp_path / "T"}
    process = run("serve", "--port", 0, *(files.get(word, word) for word in words))
    assert process.returncode in (1, 2, 3)
    assert sentence in process.stderr.decode()
    assert process.stdout == b""
