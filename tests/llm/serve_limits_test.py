"""bie serve tells those who come when it is full, sees those who leave, and ends as it is told."""

import contextlib
import json
import signal
import socket

import gguf
import pytest
from serving import (
    CLOSE,
    COMPLETIONS,
    ENDLESS,
    LONG,
    SHORT,
    Received,
    merged,
    posted,
    read_all,
    request,
    until,
)

# Too many, too late


def test_a_full_queue_says_when_to_come_again(other):
    """All requests are sent before the server reads the first one."""
    narrow = other("--queue", 1, "--rows", 1)
    narrow.signal(signal.SIGSTOP)
    clients = [narrow.socket() for _ in range(20)]
    for client in clients:
        client.sendall(posted({"prompt": "a" * 10, "max_tokens": 500}, CLOSE))
    narrow.signal(signal.SIGCONT)
    replies = [Received(read_all(client)).reply() for client in clients]
    for client in clients:
        client.close()
    assert {reply.status for reply in replies} == {200, 429}
    for reply in replies:
        if reply.status == 429:
            assert int(reply.headers["Retry-After"]) >= 1
            assert reply.error["message"]
    assert narrow.post(COMPLETIONS, SHORT).status == 200


def test_a_damaged_row_of_the_embedding_ends_its_request_alone(serve, models, tmp_path):
    """A model with a head of its own loads without opening the rows of its embedding."""
    whole = models("llama", "Q8_0").read_bytes()
    reader = gguf.GGUFReader(models("llama", "Q8_0"))
    assert any(tensor.name == "output.weight" for tensor in reader.tensors)
    (table,) = (tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    at = int(table.data_offset) + 40 * table.data.shape[-1]  # the scale of the first block of token 40
    (tmp_path / "damaged.gguf").write_bytes(whole[:at] + b"\x00\x7e" + whole[at + 2 :])
    server = serve(tmp_path / "damaged.gguf")
    assert server.answer(COMPLETIONS, {"prompt": [41], "max_tokens": 1})
    reply = server.post(COMPLETIONS, {"prompt": [40], "max_tokens": 1})
    assert (reply.status, reply.error["type"]) == (500, "server_error")
    assert server.get("/health").status == 200 and server.is_idle()


def test_a_request_waits_no_longer_than_it_may(other):
    narrow = other("--queue-seconds", 1, "--rows", 1, "--queue", 4096)
    with contextlib.ExitStack() as open_:
        before = [open_.enter_context(contextlib.closing(narrow.connect())) for _ in range(8)]
        for connection in before:
            connection.request("POST", COMPLETIONS, json.dumps(LONG | {"priority": -1}), narrow.headers())
        until(lambda: len(narrow.get("/v1/requests").json["data"]) == 8, "eight requests")
        reply = narrow.post(COMPLETIONS, SHORT)
    assert reply.status == 503
    assert int(reply.headers["Retry-After"]) >= 1
    assert "waited" in reply.error["message"]
    until(narrow.is_idle, "the end of those that left")
    assert narrow.post(COMPLETIONS, SHORT).status == 200


def test_a_request_is_listed_and_can_be_ended(server):
    with server.stream(COMPLETIONS, LONG) as events:
        first = next(events)
        (entry,) = server.get("/v1/requests").json["data"]
        assert entry["id"] == first["id"]
        assert (entry["state"], entry["prompt_tokens"]) == ("answering", 1)
        reply = server.delete(f"/v1/requests/{first['id']}")
        assert reply.status == 200
        assert reply.json["id"] == first["id"]
        rest = [first, *events]
    assert all(choice["finish_reason"] for choice in merged(rest))
    until(lambda: server.get("/v1/requests").json["data"] == [], "the end of that request")
    assert server.delete(f"/v1/requests/{first['id']}").status == 404


def test_an_answer_that_is_not_streamed_is_ended_with_what_it_has(server):
    connection = server.connect()
    connection.request("POST", COMPLETIONS, json.dumps(LONG | {"seed": 1, "temperature": 1}), server.headers())
    (entry,) = until(lambda: server.get("/v1/requests").json["data"], "a request that runs")
    assert server.delete(f"/v1/requests/{entry['id']}").status == 200
    response = connection.getresponse()
    assert response.status == 200
    ended = json.loads(response.read())
    connection.close()
    assert len(ended["choices"]) == 128
    whole = server.answer(COMPLETIONS, LONG | {"seed": 1, "temperature": 1, "n": 2, "max_tokens": 500})
    for cut, full in zip(ended["choices"], whole["choices"], strict=False):
        assert full["text"].startswith(cut["text"])
    until(server.is_idle, "the end of the answer")


def test_no_other_requests_can_be_ended(server):
    for name in ("", "nothing", "cmpl-0", "../", "%00"):
        reply = server.delete("/v1/requests/" + name)
        assert reply.status == 404
        assert reply.error["message"]


def tokens_of_a_client_that_leaves(server, leave) -> float:
    """How many tokens are written for it."""
    until(server.is_idle, "the end of other requests")
    before = server.metrics()["bie_answer_tokens_total"]
    leave()
    until(server.is_idle, "the end of an answer that nobody reads")
    return server.metrics()["bie_answer_tokens_total"] - before


def test_a_client_that_leaves_a_stream_frees_it(server):
    def leave():
        with server.stream(COMPLETIONS, LONG) as events:
            next(events)

    assert tokens_of_a_client_that_leaves(server, leave) < 128 * 500
    until(lambda: server.metrics()["bie_connections"] == 1, "the end of its connection")


@pytest.mark.parametrize("behind", [b"", b"\r\n", request("GET", "/health")], ids=["alone", "line break", "request"])
def test_a_client_that_leaves_before_its_answer_frees_it(server, behind):
    """Also one that has sent more, which waits for the answer to be read."""

    def leave():
        with server.socket() as gone:
            gone.sendall(posted(LONG))
            until(lambda: server.metrics()["bie_answers_running"] > 0, "the beginning of an answer")
            gone.sendall(behind)

    assert tokens_of_a_client_that_leaves(server, leave) < 128 * 500


def test_idle_connections_cost_nobody_an_answer(server):
    with contextlib.ExitStack() as idle:
        for i in range(500):
            made = idle.enter_context(server.socket())
            made.sendall((b"", b"GET /hea", posted(SHORT)[:-3])[i % 3])
        assert server.answer(COMPLETIONS, SHORT)["choices"]
        until(lambda: server.metrics()["bie_connections"] > 500, "500 connections")
    until(lambda: server.metrics()["bie_connections"] == 1, "the end of 500 connections")


def test_connections_beyond_the_limit_are_closed(other):
    few = other("--connections", 2)
    with few.socket() as one, few.socket() as two:
        for kept in (one, two):
            kept.sendall(request("GET", "/health"))
            assert kept.recv(15, socket.MSG_WAITALL) == b"HTTP/1.1 200 OK"
        with few.socket() as three:
            assert b"200 OK" not in read_all(three)

    def is_served() -> bool:
        with contextlib.suppress(OSError):
            return few.get("/health").status == 200
        return False

    until(is_served, "room for a connection")


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_answers_end_before_the_server_does(other, server, number):
    wanted = server.answer(COMPLETIONS, ENDLESS)["choices"]
    ending = other()
    with ending.socket() as idle, ending.socket() as half:
        half.sendall(b"GET /hea")
        with ending.stream(COMPLETIONS, ENDLESS, receive_buffer=4096) as events:
            first = next(events)
            ending.signal(number)
            assert read_all(idle) == b""  # it is let go
            assert read_all(half) == b""
            with pytest.raises(ConnectionRefusedError):
                ending.get("/health")
            assert ending.process.poll() is None
            assert merged([first, *events]) == wanted
    assert ending.wait() == 0
    assert "stopping" in ending.sentences()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(other, first, second):
    ending = other()
    with ending.stream(COMPLETIONS, ENDLESS, receive_buffer=4096) as events:
        next(events)
        ending.signal(first)
        until(lambda: "stopping" in ending.sentences(), "stopping")
        ending.signal(second)
        assert ending.wait() == 130


def test_answers_have_their_grace_to_end(other):
    hasty = other("--grace", 0)
    with hasty.stream(COMPLETIONS, ENDLESS, receive_buffer=4096) as events:
        next(events)
        assert hasty.stop() == 0


def test_an_idle_server_ends_at_once(other):
    ending = other("--grace", 1000)
    connection = ending.connect()
    assert ending.ask("GET", "/health", over=connection).status == 200
    assert ending.stop() == 0
    connection.close()
