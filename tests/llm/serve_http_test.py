"""bie serve keeps the rules of HTTP, whatever comes, and asks for keys and origins."""

import json
import re
import socket

import pytest
from serving import (
    CHAT,
    CLOSE,
    COMPLETIONS,
    EXPECTED_GOT,
    SHORT,
    USER,
    Received,
    merged,
    posted,
    read_all,
    request,
    until,
)

# Broken HTTP

BROKEN = {
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
    "a line of words": b"hello there, this is no request\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "another protocol": b"GET /health ICY/1.0\r\n\r\n",
    "version 9": b"GET /health HTTP/9.9\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a field without a colon": b"GET /health HTTP/1.1\r\nHost\r\n\r\n",
    "a blank in a field's name": b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n",
    "a zero byte": b"GET /health HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    "no number as the length": b"POST /tokenize HTTP/1.1\r\nContent-Length: five\r\n\r\n{}",
    "a negative length": b"POST /tokenize HTTP/1.1\r\nContent-Length: -5\r\n\r\n{}",
    "a length of too many digits": b"POST /tokenize HTTP/1.1\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n{}",
    "two lengths": b"POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a length and chunks": (
        b"POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    ),
    "a chunk of no size": b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_http_is_refused_and_the_connection_closed(server, kind):
    said = server.raw(BROKEN[kind])
    assert said.startswith(b"HTTP/1.1 400 ")
    reply = Received(said).reply()
    assert EXPECTED_GOT.search(reply.error["message"])
    assert said.count(b"HTTP/1.1 ") == 1
    assert server.get("/health").status == 200


HALVES = {
    "nothing": b"",
    "half a line": b"POST /v1/comp",
    "half a header": b"POST /v1/completions HTTP/1.1\r\nHost: h",
    "half a body": posted(SHORT)[:-5],
    "no body": posted(SHORT).partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
    "half a chunk": b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{}",
}


@pytest.mark.parametrize("kind", HALVES)
def test_half_a_request_leaves_nothing_behind(server, kind):
    server.raw(HALVES[kind], ends=True)  # returns as the server closes
    with server.socket() as left:
        left.sendall(HALVES[kind])
    until(lambda: server.metrics()["bie_connections"] == 1, "the end of that connection")
    assert server.is_idle()


def test_a_slow_body_delays_nobody(server):
    body = posted(SHORT, CLOSE)
    with server.socket() as slow:
        for at in range(0, len(body), 20):
            slow.sendall(body[at : at + 20])
            assert server.get("/health").status == 200
        assert Received(read_all(slow)).reply().json["choices"]


def test_a_body_in_chunks_is_read(server):
    body = json.dumps(SHORT).encode()
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:8], body[8:])) + b"0\r\n\r\n"
    head = request("POST", COMPLETIONS, b"", "Content-Type: application/json", "Transfer-Encoding: chunked", CLOSE)
    wanted = server.answer(COMPLETIONS, SHORT)["choices"]
    assert Received(server.raw(head + parts)).reply().json["choices"] == wanted


def test_requests_in_a_row_are_answered_in_order(server):
    streamed = SHORT | {"stream": True}
    said = Received(
        server.raw(
            request("GET", "/health")
            + posted(SHORT | {"max_tokens": 300})
            + posted(streamed)
            + request("GET", "/nowhere")
            + request("HEAD", "/health")
            + posted(SHORT, CLOSE)
        )
    )
    assert said.reply().json == {"status": "ok"}
    assert said.reply().json["usage"]["completion_tokens"] == 300
    assert said.reply().body.endswith(b"data: [DONE]\n\n")
    assert said.reply().status == 404
    assert said.reply("HEAD").body == b""
    last = said.reply()
    assert last.json["usage"]["completion_tokens"] == 2
    assert last.headers["Connection"] == "close"
    assert said.read() == b""


def test_a_connection_is_used_again(server):
    connection = server.connect()
    wanted = server.answer(COMPLETIONS, SHORT)["choices"]
    for _ in range(20):
        assert server.post(COMPLETIONS, SHORT, over=connection).json["choices"] == wanted
        assert server.post(COMPLETIONS, {}, over=connection).status == 400
        assert server.post(COMPLETIONS, SHORT | {"stream": True}, over=connection).body.endswith(b"[DONE]\n\n")
    connection.close()


def test_http_1_0_is_answered_without_chunks(server):
    said = server.raw(request("GET", "/health", version="1.0"))
    assert Received(said).reply().json == {"status": "ok"}
    whole = Received(server.raw(posted(SHORT, version="1.0"))).reply().json
    reply = Received(server.raw(posted(SHORT | {"stream": True}, version="1.0"))).reply()
    assert "Transfer-Encoding" not in reply.headers
    events = [line for line in reply.body.split(b"\n\n") if line]
    assert events[-1] == b"data: [DONE]"
    assert merged([json.loads(line.removeprefix(b"data: ")) for line in events[:-1]]) == whole["choices"]


def test_head_has_the_header_alone(server):
    for path in ("/health", "/", "/v1/models", "/metrics"):
        said = server.raw(request("HEAD", path, b"", CLOSE))
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert re.search(rb"\r\nContent-Length: [1-9]", head)
        assert body == b""


def test_a_client_that_waits_for_leave_gets_it(server):
    head, _, body = posted(SHORT, "Expect: 100-continue", CLOSE).partition(b"\r\n\r\n")
    with server.socket() as careful:
        careful.sendall(head + b"\r\n\r\n")
        leave = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert careful.recv(len(leave), socket.MSG_WAITALL) == leave
        careful.sendall(body)
        assert Received(read_all(careful)).reply().json["choices"]


# Keys and origins


@pytest.fixture
def keyed(other, tmp_path):
    (tmp_path / "keys").write_text("first-key\n\nsecond key\n")
    return other("--api-key-file", tmp_path / "keys")


CLOSED = [
    *(("GET", path) for path in ("/v1/models", "/props", "/metrics", "/v1/requests")),
    *(("POST", path) for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize", "/apply-template")),
    ("DELETE", "/v1/requests/some"),
]


def test_a_key_is_asked_for(keyed):
    wrong = (
        *(None, "Bearer", "Bearer ", "Bearer wrong", "Bearer first-ke", "Bearer first-keyy", "first-key"),
        *("Basic first-key", "Bearer first-key\tsecond key", "Bearer \xff", "Bearer " + "a" * 9000),
    )
    for method, path in CLOSED:
        for value in wrong:
            reply = keyed.ask(method, path, b"{}", headers={"Authorization": value} if value else {})
            assert reply.status == 401, value
            assert (reply.error["type"], reply.error["code"]) == ("authentication_error", "invalid_api_key")
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")
            assert "first-key" not in reply.error["message"]


def test_each_key_opens(keyed):
    for key in ("first-key", "second key"):
        headers = {"Authorization": f"Bearer {key}"}
        assert keyed.get("/v1/models", headers=headers).status == 200
        assert keyed.post(COMPLETIONS, SHORT, headers=headers).status == 200
    until(lambda: len(keyed.log()) == 3, "two lines of the log")
    clients = [line["client"] for line in keyed.log()[1:]]
    assert len(set(clients)) == 2
    assert not any("first-key" in json.dumps(line) for line in keyed.log())
    assert "first-key" not in keyed.sentences()


def test_the_scheme_of_a_key_has_no_case(keyed):
    """RFC 9110, section 11.1."""
    assert keyed.get("/v1/models", headers={"Authorization": "bearer first-key"}).status == 200


def test_health_and_the_page_are_open(keyed):
    assert keyed.get("/health").json == {"status": "ok"}
    assert keyed.get("/").status == 200


def test_openai_raises_what_a_wrong_key_is(keyed):
    package = pytest.importorskip("openai")

    def listed(key: str) -> list:
        with package.OpenAI(base_url=f"http://127.0.0.1:{keyed.port}/v1", api_key=key, max_retries=0) as client:
            return client.models.list().data

    with pytest.raises(package.AuthenticationError):
        listed("wrong")
    assert listed("first-key")


def test_keys_of_windows_files_are_keys(other, tmp_path):
    (tmp_path / "keys").write_bytes(b"one\r\ntwo\r\n")
    assert other("--api-key-file", tmp_path / "keys", key="one").get("/v1/models").status == 200


def test_a_key_may_come_in_the_header_of_anthropics_clients(keyed):
    for headers in ({"X-Api-Key": "second key"}, {"X-Api-Key": "first-key", "Authorization": "Bearer of another"}):
        assert keyed.get("/v1/models", headers=headers).status == 200
    for value in ("", "wrong", "Bearer first-key"):
        assert keyed.get("/v1/models", headers={"X-Api-Key": value}).status == 401
    refused = keyed.post("/v1/messages", {}, headers={"X-Api-Key": "wrong"})
    assert (refused.status, refused.json["error"]["type"]) == (401, "authentication_error")


ORIGIN = {"Origin": "https://elsewhere.example"}
ALLOWED = "Access-Control-Allow-Origin"


def test_pages_of_others_may_not_ask(server):
    for reply in (
        server.get("/v1/models", headers=ORIGIN),
        server.post(COMPLETIONS, SHORT, headers=ORIGIN),
        server.post(COMPLETIONS, SHORT | {"stream": True}, headers=ORIGIN),
        server.ask("OPTIONS", CHAT, headers=ORIGIN | {"Access-Control-Request-Method": "POST"}),
    ):
        assert ALLOWED not in reply.headers
        assert reply.status in (403, 405)


@pytest.mark.parametrize("origin", ["http://localhost:1", "http://127.0.0.1", "http://[::1]:8080", "https://localhost"])
def test_pages_of_this_machine_may_ask(server, origin):
    assert server.post(COMPLETIONS, SHORT, headers={"Origin": origin}).status == 200


@pytest.mark.parametrize("origin", ["http://localhost.example", "http://127.0.0.1.example:80", "null", "http://[::2]"])
def test_a_name_that_another_gave_this_machine_is_not_it(server, origin):
    """A page whose name leads here is one of this server to a browser: only its origin tells it apart."""
    assert server.post(COMPLETIONS, SHORT, headers={"Origin": origin}).status == 403


def test_pages_of_any_name_may_ask_who_asks_for_keys_or_serves_a_network(keyed, other):
    headers = {"Authorization": "Bearer first-key"} | ORIGIN
    assert keyed.post(COMPLETIONS, SHORT, headers=headers).status == 200
    assert other("--host", "0.0.0.0").post(COMPLETIONS, SHORT, headers=ORIGIN).status == 200


@pytest.mark.parametrize("allowed", ["https://elsewhere.example", "*"])
def test_pages_of_an_origin_may_ask_where_the_user_says_so(other, allowed, tmp_path):
    (tmp_path / "keys").write_text("key\n")
    open_ = other("--cors", allowed, "--api-key-file", tmp_path / "keys", key="key")
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    leave = Received(
        open_.raw(request("OPTIONS", CHAT, b"", CLOSE, *(f"{n}: {v}" for n, v in (ORIGIN | asks).items())))
    ).reply("OPTIONS")
    assert leave.status in (200, 204)
    assert leave.headers[ALLOWED] == allowed
    assert {"GET", "POST", "DELETE"} <= set(leave.headers["Access-Control-Allow-Methods"].replace(" ", "").split(","))
    granted = leave.headers["Access-Control-Allow-Headers"].lower()
    assert "authorization" in granted and "content-type" in granted
    replies = {
        "the models": open_.get("/v1/models", headers=ORIGIN),
        "health": open_.get("/health", headers=ORIGIN),
        "metrics": open_.get("/metrics", headers=ORIGIN),
        "tokens": open_.post("/tokenize", {"content": "a"}, headers=ORIGIN),
        "an answer": open_.post(COMPLETIONS, SHORT, headers=ORIGIN),
        "a chat": open_.post(CHAT, {"messages": USER, "max_tokens": 1}, headers=ORIGIN),
        "a stream": open_.post(COMPLETIONS, SHORT | {"stream": True}, headers=ORIGIN),
        "a wrong field": open_.post(COMPLETIONS, {}, headers=ORIGIN),
        "a prompt too long": open_.post(COMPLETIONS, {"prompt": "a" * 600}, headers=ORIGIN),
        "a wrong key": open_.get("/v1/models", headers=ORIGIN | {"Authorization": "Bearer wrong"}),
    }
    assert {name: reply.headers[ALLOWED] for name, reply in replies.items()} == dict.fromkeys(replies, allowed)


def test_no_line_break_enters_a_header(other, run, served_model):
    named = other("--name", "a\r\nX-Evil: 1", "--cors", "*")
    for reply in (
        named.get("/v1/models", headers={"Origin": "https://a.example"}),
        named.post(COMPLETIONS, SHORT | {"model": "b\r\nX-Evil: 1"}),
        named.post(COMPLETIONS, {"prompt": "a", "n": "1\r\nX-Evil: 1"}),
        named.post(COMPLETIONS, SHORT | {"user": "c\r\n\r\nX-Evil: 1", "stop": "\r\nX-Evil: 1"}),
        named.get("/%0d%0aX-Evil:%201"),
    ):
        assert "X-Evil" not in reply.headers
        assert b"\r\n" not in reply.body
    assert named.get("/v1/models").json["data"][0]["id"] == "a\r\nX-Evil: 1"
    assert all(line["command"] == "serve" for line in named.log())
    process = run("serve", served_model, "--port", 0, "--cors", "https://a.example\r\nX-Evil: 1")
    assert process.returncode != 0
    assert b"--cors: expected an origin in one line" in process.stderr
