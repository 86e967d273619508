"""bie serve refuses wrong fields, bodies and options in one sentence, and goes on serving."""

import json
import re

import pytest
from serving import (
    CHAT,
    CLOSE,
    COMPLETIONS,
    EXPECTED_GOT,
    SHORT,
    USER,
    DidNotStart,
    request,
)
from small_models import write_model

# Wrong fields

BOTH = [
    *(("n", wrong) for wrong in (0, 129, -1, 1.5, "2", True, [], {})),
    *(("stream", wrong) for wrong in (1, "true", [])),
    *(("stop", wrong) for wrong in (5, [""], ["a"] * 17, [1], {}, ["a", None], True)),
    *(("temperature", wrong) for wrong in (-0.1, 1001, "hot", True, [], {})),
    *(("top_p", wrong) for wrong in (-0.1, 1.1, "1", False)),
    *(("min_p", wrong) for wrong in (-0.1, 1.1, [])),
    *(("top_k", wrong) for wrong in (-2, 1.5, "3", 2**40)),
    *(("repeat_penalty", wrong) for wrong in (0, 101, "1")),
    *(("repetition_penalty", wrong) for wrong in (0, -1)),
    *(("presence_penalty", wrong) for wrong in (-2.1, 2.1, "0")),
    *(("frequency_penalty", wrong) for wrong in (-2.1, 2.1, [])),
    *(("logit_bias", wrong) for wrong in ([], 5, {"a": 1}, {"96": 1}, {"-1": 1}, {"": 1}, {"1.5": 1}, {" 1": 1})),
    *(("logit_bias", wrong) for wrong in ({"1": 101}, {"1": -101}, {"1": "5"}, {"1": None}, {"1": 2, "01": 2})),
    *(("logit_bias", wrong) for wrong in ({"99999999999": 1}, {"1": True})),
    *(("seed", wrong) for wrong in (1.5, "1", True, 1e30, [])),
    *(("priority", wrong) for wrong in (10**9, "high", 0.5)),
    *(("max_tokens", wrong) for wrong in (-2, 1.5, "9", True, 1e300, [])),
    ("stream_options", {}),
]
STREAMED = [("stream_options", wrong) for wrong in (5, [], "usage")]
IN_CHATS = [
    *(("messages", wrong) for wrong in (None, [], {}, "Hi", 5)),
    *(("messages[1]", [*USER, wrong]) for wrong in (5, None, [], {}, {"content": "a"}, {"role": 5, "content": "a"})),
    *(("messages[0].content", [{"role": "user", "content": wrong}]) for wrong in (5, {}, True, [5], ["Hi"], [{}])),
    ("messages[0].content", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}]),
    ("messages[0].content", [{"role": "user", "content": [{"type": "text", "text": 5}]}]),
    *(("max_completion_tokens", wrong) for wrong in (-1, 1.5, "9")),
    *(("logprobs", wrong) for wrong in (1, "yes", [])),
    *(("top_logprobs", wrong) for wrong in (21, -1, 1.5, "2")),
]
IN_COMPLETIONS = [
    *(("prompt", wrong) for wrong in (None, 5, [], {}, True, [[]], [1.5], [-1], [96], [1, "a"], ["a", 5], ["a", [96]])),
    *(("prompt", wrong) for wrong in (["a"] * 129, [[1, [2]]], [None], [True], [2**40], [1e300])),
    *(("logprobs", wrong) for wrong in (21, -1, 1.5, "3", True)),
    *(("echo", wrong) for wrong in (1, "yes")),
    *(("best_of", wrong) for wrong in (0, "2", 1.5)),
]
WRONG = [
    *((path, name, wrong, {}) for path in (CHAT, COMPLETIONS) for name, wrong in BOTH),
    *((path, name, wrong, {"stream": True}) for path in (CHAT, COMPLETIONS) for name, wrong in STREAMED),
    *((CHAT, name, wrong, {"logprobs": True} if name == "top_logprobs" else {}) for name, wrong in IN_CHATS),
    *((COMPLETIONS, name, wrong, {}) for name, wrong in IN_COMPLETIONS),
]


@pytest.mark.parametrize(
    ("path", "name", "wrong", "beside"), WRONG, ids=[f"{p.split('/')[2]}-{n}={str(w)[:30]}" for p, n, w, _ in WRONG]
)
def test_a_wrong_field_is_named(server, path, name, wrong, beside):
    body = {"messages": USER} if path == CHAT else {"prompt": "a"}
    reply = server.post(path, body | beside | {name.partition("[")[0]: wrong})
    assert reply.status == 400
    assert reply.error["param"] == name
    assert reply.error["type"] == "invalid_request_error"
    assert EXPECTED_GOT.search(reply.error["message"])
    assert reply.error["message"].startswith(name)


def test_fields_that_must_be_there_are_named(server):
    for path, name in ((CHAT, "messages"), (COMPLETIONS, "prompt"), ("/tokenize", "content")):
        reply = server.post(path, {"model": "a"})
        assert (reply.status, reply.error["param"]) == (400, name)
        assert EXPECTED_GOT.search(reply.error["message"])
    assert server.post("/apply-template", {}).error["param"] == "messages"
    assert server.post("/tokenize", {"content": 5}).error["param"] == "content"


@pytest.mark.parametrize("tokens", [None, 5, "a", [96], [-1], ["a"], [[1, 2]], [1.5]])
def test_wrong_tokens_are_named(server, tokens):
    reply = server.post("/detokenize", {"tokens": tokens})
    assert (reply.status, reply.error["param"]) == (400, "tokens")
    assert EXPECTED_GOT.search(reply.error["message"])


def test_a_token_out_of_range_is_told(server):
    message = server.post(COMPLETIONS, {"prompt": [1, 2, 96]}).error["message"]
    assert "from 0 to 95" in message
    assert "96" in message


def test_wrong_options_of_a_stream_are_named(server):
    reply = server.post(CHAT, {"messages": USER, "stream": True, "stream_options": {"include_usage": 1}})
    assert reply.status == 400
    assert reply.error["param"].endswith("include_usage")


def test_likeliest_tokens_want_logprobs_beside_them(server):
    for beside in ({}, {"logprobs": False}):
        reply = server.post(CHAT, {"messages": USER, "top_logprobs": 2} | beside)
        assert (reply.status, reply.error["param"]) == (400, "top_logprobs")


def test_too_many_answers_to_all_prompts_are_refused(server):
    reply = server.post(COMPLETIONS, {"prompt": ["a"] * 65, "n": 2})
    assert (reply.status, reply.error["param"]) == (400, "prompt")
    assert "at most 128" in reply.error["message"]


ABSENT = [
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("functions", [{"name": "f"}]),
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {}}),
    ("response_format", "text"),
    *(("grammar", 'root ::= "a"'), ("json_schema", {}), ("guided_json", {}), ("guided_regex", "a")),
]


@pytest.mark.parametrize(("name", "value"), ABSENT)
def test_what_is_not_there_is_refused(server, name, value):
    for path, body in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "a"})):
        reply = server.post(path, body | {name: value})
        assert (reply.status, reply.error["param"]) == (400, name)


def test_gaps_and_the_best_of_many_are_refused(server):
    assert server.post(COMPLETIONS, {"prompt": "a", "suffix": "b"}).error["param"] == "suffix"
    assert server.post(COMPLETIONS, {"prompt": "a", "best_of": 3}).error["param"] == "best_of"


def test_a_prompt_must_fit_the_context(server):
    """OpenAI's code for it is context_length_exceeded."""
    for path, name, body in (
        (COMPLETIONS, "prompt", {"prompt": "a" * 513}),
        (COMPLETIONS, "prompt", {"prompt": ["a", "a" * 513]}),
        (COMPLETIONS, "prompt", {"prompt": "a" * 513, "stream": True}),
        (CHAT, "messages", {"messages": [{"role": "user", "content": "a" * 513}]}),
    ):
        reply = server.post(path, body)
        assert reply.status == 400
        assert EXPECTED_GOT.search(reply.error["message"])
        assert "512" in reply.error["message"]
        assert (reply.error["param"], reply.error["code"]) == (name, "context_length_exceeded")


def test_an_empty_prompt_is_refused(server):
    for prompt in ("", [""], ["a", ""]):
        reply = server.post(COMPLETIONS, {"prompt": prompt})
        assert reply.status == 400
        assert EXPECTED_GOT.search(reply.error["message"])
        assert (reply.error["param"], reply.error["code"]) == ("prompt", None)


def test_what_a_template_refuses_is_told(other, tmp_path):
    (tmp_path / "template").write_text("{{ raise_exception('roles must alternate') }}")
    reply = other("--template", tmp_path / "template").post(CHAT, {"messages": USER})
    assert (reply.status, reply.error["param"]) == (400, "messages")
    assert "roles must alternate" in reply.error["message"]


def test_a_chat_wants_a_template(serve, tmp_path):
    write_model(tmp_path / "a.gguf", "llama", "Q8_0", template="")
    bare = serve(tmp_path / "a.gguf")
    assert "no chat template" in bare.sentences()
    assert bare.get("/props").json["models"][0]["chat"] is False
    for path in (CHAT, "/apply-template"):
        reply = bare.post(path, {"messages": USER})
        assert reply.status == 400
        assert "--template" in reply.error["message"]
    assert bare.complete("a", max_tokens=1)["choices"]


# Wrong bodies

BODIES = {
    "nothing": b"",
    "a brace": b"{",
    "two objects": b"{}{}",
    "text behind it": b'{"prompt": "a"} x',
    "a list": b'[{"prompt": "a"}]',
    "a text": b'"prompt"',
    "a number": b"5",
    "null": b"null",
    "single quotes": b"{'prompt': 'a'}",
    "a comment": b'{"prompt": "a" /* b */}',
    "a comma too many": b'{"prompt": "a",}',
    "10000 brackets": b'{"prompt": ' + b"[" * 10000 + b"]" * 10000 + b"}",
    "10000 open brackets": b"[" * 10000,
    "10000 objects": b'{"a":' * 10000 + b"1" + b"}" * 10000,
    "a key twice": b'{"prompt": "a", "prompt": "b"}',
    "a key twice inside": b'{"prompt": "a", "logit_bias": {"1": 1, "1": 2}}',
    "infinity": b'{"prompt": "a", "temperature": Infinity}',
    "not a number": b'{"prompt": "a", "temperature": NaN}',
    "a number too large": b'{"prompt": "a", "temperature": 1e999}',
    "a byte that is no UTF-8": b'{"prompt": "\xff"}',
    "half a character": b'{"prompt": "\xc3"}',
    "an overlong slash": b'{"prompt": "\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"prompt": "\xed\xa0\x80"}',
    "half a pair": b'{"prompt": "\\ud800"}',
    "a line break in a text": b'{"prompt": "a\nb"}',
    "a zero byte": b'{"prompt": "a\0b"}',
    "UTF-16": '{"prompt": "a"}'.encode("utf-16"),
    "a form": b"prompt=a",
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_is_no_object_of_json_is_refused(server, kind):
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize", "/apply-template"):
        reply = server.post(path, BODIES[kind])
        assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
        assert EXPECTED_GOT.search(reply.error["message"])
        assert reply.headers["Content-Type"].startswith("application/json")


def test_odd_texts_are_texts(server):
    """What JSON can write is a prompt, though this vocabulary has letters alone."""
    for body in (b'{"prompt": "a\\u0000b"}', b'{"prompt": "\\ud83d\\ude00a"}', '{"prompt": "é\U0001f600a"}'.encode()):
        assert server.post(COMPLETIONS, body).status == 200
    assert server.post(CHAT, {"messages": [{"role": "user\r\nX: 1", "content": "\x00\x1b[31m"}]}).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_another_type_of_body_is_refused(server, kind):
    for path in (COMPLETIONS, CHAT, "/tokenize"):
        reply = server.post(path, {"prompt": "a"}, headers={"Content-Type": kind})
        assert reply.status == 415
        assert "expected Content-Type: application/json, got" in reply.error["message"]
    assert server.raw(request("POST", COMPLETIONS, b"", "Content-Length: 0", CLOSE)).startswith(b"HTTP/1.1 415 ")


def test_the_type_of_json_is_written_in_several_ways(server):
    for kind in ("application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON"):
        assert server.post(COMPLETIONS, SHORT, headers={"Content-Type": kind}).status == 200


METHODS = [
    *(("GET", path, "POST") for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize", "/apply-template")),
    *(("POST", path, "GET") for path in ("/", "/health", "/v1/models", "/props", "/metrics", "/v1/requests")),
    *(("DELETE", "/health", "GET"), ("PUT", COMPLETIONS, "POST"), ("PATCH", CHAT, "POST"), ("HEAD", CHAT, "POST")),
    *(("OPTIONS", CHAT, "POST"), ("GET", "/v1/requests/some", "DELETE"), ("FROBNICATE", "/", "GET")),
]


@pytest.mark.parametrize(("method", "path", "wanted"), METHODS)
def test_a_wrong_method_is_refused(server, method, path, wanted):
    reply = server.ask(method, path)
    assert reply.status == 405
    if method != "HEAD":
        assert f"expected {wanted}, got {method}" in reply.error["message"]


def test_a_wrong_method_is_told_the_right_one(server):
    """RFC 9110, section 15.5.6: a 405 has the field Allow."""
    assert "POST" in server.get(COMPLETIONS).headers["Allow"]
    assert "GET" in server.post("/health", {}).headers["Allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/completions/",
        "/health/",
        "/V1/models",
        "/../etc/passwd",
        "/v1/images/generations",
        "//",
        "*",
    ],
)
def test_an_unknown_path_is_not_found(server, path):
    for method in ("GET", "POST", "DELETE"):
        reply = server.ask(method, path)
        assert reply.status == 404
        assert reply.error["type"] == "invalid_request_error"


def test_paths_that_clients_invent_are_no_labels(server):
    for path in ('/invented"}', "/invented/health", "/v1/requests/invented"):
        assert server.raw(request("GET", path, b"", CLOSE)).startswith(b"HTTP/1.1 40")
    assert not any("invented" in name for name in server.metrics())


# Limits of sizes


def test_a_body_too_large_is_refused(other):
    small = other("--body", 2048)
    longest = {"prompt": "a", "max_tokens": 1, "user": ""}
    longest["user"] = "u" * (2048 - len(json.dumps(longest)))
    assert small.post(COMPLETIONS, longest).status == 200
    longest["user"] += "u"
    reply = small.post(COMPLETIONS, longest)
    assert reply.status == 413
    assert "expected a body of at most 2048 bytes, got more" in reply.error["message"]
    chunked = b"".join(b"400\r\n" + b"a" * 1024 + b"\r\n" for _ in range(3)) + b"0\r\n\r\n"
    head = request("POST", COMPLETIONS, b"", "Content-Type: application/json", "Transfer-Encoding: chunked")
    assert small.raw(head + chunked).startswith(b"HTTP/1.1 413 ")
    promised = request("POST", COMPLETIONS, b"", "Content-Length: 99999999999999", "Expect: 100-continue")
    assert small.raw(promised).startswith(b"HTTP/1.1 413 ")
    assert small.post(COMPLETIONS, SHORT).status == 200


def test_a_large_body_is_read(server):
    assert server.post(COMPLETIONS, SHORT | {"user": "u" * 5_000_000}).status == 200


def test_an_object_of_many_keys_delays_nobody(other):
    """A reader whose time grows with the square of the keys would need minutes."""
    asked, many = other(), {f"k{i}": i for i in range(300_000)}
    for body in (SHORT | many, SHORT | {"logit_bias": many}, SHORT | {"user": [[many]]}):
        assert (
            asked.post(COMPLETIONS, body)
            .error["message"]
            .startswith("expected objects of at most 512 keys, got one of")
        )
    assert asked.post(COMPLETIONS, SHORT | {f"k{i}": i for i in range(500)}).status == 200
    assert asked.post(COMPLETIONS, SHORT | {"user": [{f"k{i}": i for i in range(512)}] * 300}).status == 200


def test_a_header_too_large_is_refused(server):
    for fields in (["X: " + "x" * 20000], [f"X-{i}: {'x' * 100}" for i in range(1000)], ["X" * 20000 + ": 1"]):
        said = server.raw(request("GET", "/health", b"", *fields))
        assert said.startswith(b"HTTP/1.1 431 ")
        assert b"expected a header of at most" in said
    assert server.raw(request("GET", "/" + "x" * 20000)).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 414 "))
    assert server.get("/health", headers={"X": "x" * 8000}).status == 200


# Options


def test_a_port_that_is_taken_is_told(run, server, served_model):
    process = run("serve", served_model, "--port", server.port)
    assert (process.returncode, process.stdout) == (1, b"")
    lines = process.stderr.decode().splitlines()
    assert len(lines) == 1
    assert str(server.port) in lines[0] and "127.0.0.1" in lines[0]


@pytest.mark.parametrize("host", ["nowhere", "", "1.2.3", "http://127.0.0.1", "203.0.113.7"])
def test_a_wrong_host_is_told(run, served_model, host):
    process = run("serve", served_model, "--port", 0, "--host", host)
    assert process.returncode in (1, 2)
    assert process.stdout == b""
    assert len(process.stderr.decode().splitlines()) == 1
    assert host in process.stderr.decode()


def test_a_cache_too_small_is_told(run, served_model):
    process = run("serve", served_model, "--port", 0, "--cache-size", "1KB")
    assert process.returncode != 0
    assert re.search(rb"expected a cache of \d+ bytes at least.*, got 1000", process.stderr)


def test_a_context_that_the_cache_cannot_hold_is_told(other):
    """The user asks for it: it is not made smaller in silence."""
    with pytest.raises(DidNotStart, match=r"expected .*got"):
        other("--cache-size", "30KB", "--context", 512)


def test_a_small_cache_makes_the_context_smaller(other):
    small = other("--cache-size", "30KB")
    assert small.listening["context"] < 512
    longest = small.listening["context"]
    assert small.complete("a" * (longest - 1), max_tokens=5)["usage"]["completion_tokens"] == 1
    assert small.post(COMPLETIONS, {"prompt": "a" * (longest + 1)}).error["code"] == "context_length_exceeded"


OPTIONS = {
    "two arithmetics": (("--exact", "--arithmetic", "int8"), "--arithmetic"),
    "a wrong arithmetic": (("--arithmetic", "int4"), "int4"),
    "a context beyond the served_model's": (("--context", "513"), "513"),
    "no context": (("--context", "0"), "--context"),
    "a port of too many digits": (("--port", "65536"), "--port"),
    "half a port": (("--port", "1.5"), "--port"),
    "no rows": (("--rows", "0"), "--rows"),
    "no queue": (("--queue", "0"), "--queue"),
    "no patience": (("--queue-seconds", "0"), "--queue-seconds"),
    "a small body": (("--body", "1023"), "--body"),
    "a size of no unit": (("--cache-size", "5 apples"), "--cache-size"),
    "a negative size": (("--cache-size", "-5MB"), "--cache-size"),
    "more memory than there is": (("--cache-size", "900TB"), "--cache-size"),
    "an empty name": (("--name", ""), "--name"),
    "keys that are not there": (("--api-key-file", "/nowhere/keys"), "/nowhere/keys"),
    "a template that is not there": (("--template", "/nowhere/template"), "/nowhere/template"),
    "a wrong word": (("--frobnicate",), "--frobnicate"),
    "a wrong cache": (("--kv", "q5"), "q5"),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_wrong_options_are_told(run, served_model, kind):
    words, sentence = OPTIONS[kind]
    process = run("serve", served_model, *(() if "--port" in words else ("--port", 0)), *words)
    assert process.returncode in (1, 2, 3)
    assert sentence in process.stderr.decode()
    assert process.stdout == b""


def test_wrong_files_are_told(run, served_model, tmp_path):
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "broken").write_text("{% for %}")
    for words, sentence in (
        ((served_model, "--api-key-file", tmp_path / "empty"), "expected a key"),
        ((served_model, "--template", tmp_path / "broken"), "broken"),
        ((tmp_path / "none.gguf",), "none.gguf"),
        ((tmp_path / "empty",), "empty"),
    ):
        process = run("serve", *words, "--port", 0)
        assert process.returncode != 0
        assert sentence in process.stderr.decode()
