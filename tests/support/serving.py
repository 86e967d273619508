"""A running `bie serve` and clients of it that use the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import queue
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE = 60  # seconds; only a server that hangs needs them
#: A test sends so many random requests. `make test-serve` sets more, with which the tests of time limits run too.
REQUESTS = int(os.environ.get("BIE_SERVE_REQUESTS", "200"))
IS_LONG = REQUESTS > 200
SEED = 20261201


def until(is_true: Callable[[], object], what: str):
    """Polls until the call returns something true, and returns that."""
    end = time.monotonic() + PATIENCE
    while not (found := is_true()):
        assert time.monotonic() < end, f"{what} did not happen in {PATIENCE} seconds"
        time.sleep(0.002)
    return found


class DidNotStart(Exception):
    """Tells what the server said."""


COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GREEDY = {"temperature": 0}
USER = [{"role": "user", "content": "Hi"}]
EXPECTED_GOT = re.compile(r"expected .+, got .+")
#: More than the buffers of a connection hold: it goes on only while the client reads.
ENDLESS = {"prompt": "a", "n": 16, "max_tokens": 400, "temperature": 1, "seed": 1, "logprobs": 20}
LONG = {"prompt": "a", "n": 128, "max_tokens": 500}
CLOSE = "Connection: close"
SHORT = {"prompt": "a", "max_tokens": 2, "temperature": 0}


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self) -> dict:
        """The error object, whose form is the same in every refusal."""
        error = self.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return error


def read_events(lines) -> Iterator[dict]:
    """The events of a stream up to [DONE], which must be there."""
    for line in lines:
        line = line.rstrip(b"\r\n")
        if not line:
            continue
        assert line.startswith(b"data: "), line
        if line == b"data: [DONE]":
            return
        yield json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended without [DONE]")


def merged(events: list[dict]) -> list[dict]:
    """The choices of a streamed answer, in the form that they have in one that is not streamed."""
    found: dict[int, dict] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        whole = found.setdefault(choice["index"], {"index": choice["index"], "logprobs": None, "finish_reason": None})
        assert whole["finish_reason"] is None, "the finish is the last event of a choice"
        whole["finish_reason"] = choice["finish_reason"]
        if "delta" in choice:
            message = whole.setdefault("message", {"role": None, "content": ""})
            for name, text in choice["delta"].items():
                message[name] = (message.get(name) or "") + text
        else:
            whole["text"] = whole.get("text", "") + choice["text"]
        if choice.get("logprobs"):
            before = whole["logprobs"] or {}
            whole["logprobs"] = {name: before.get(name, []) + more for name, more in choice["logprobs"].items()}
    return [found[i] for i in sorted(found)]


def request(method: str, path: str, body: bytes = b"", *headers: str, version: str = "1.1") -> bytes:
    """A request as it is sent; one with a body has its type and length unless headers say others."""
    lines = [f"{method} {path} HTTP/{version}", "Host: here", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def posted(body: dict, *headers: str, **more) -> bytes:
    return request("POST", COMPLETIONS, json.dumps(body).encode(), *headers, **more)


CONTENT = b'{"content":"a"}'
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(CONTENT), CONTENT)


def tokenize_request(*headers: str, body: bytes = CONTENT, version: str = "1.1") -> bytes:
    return request("POST", "/tokenize", b"", "Content-Type: application/json", *headers, version=version) + body


def in_chunks(body: bytes) -> bytes:
    return tokenize_request("Transfer-Encoding: chunked", body=body)


class Server:
    """One process of `bie serve` on a free port of 127.0.0.1."""

    def __init__(self, bie: Path, model: Path, *words, key: str | None = None):
        self.key = key
        self.files = contextlib.ExitStack()  # of its output: a full pipe would block it
        self.out, self.err = (self.files.enter_context(tempfile.TemporaryFile()) for _ in range(2))  # noqa: SIM115
        command = [str(bie), "serve", str(model), "--json", "--port", "0", *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err)
        try:
            self.listening = until(self._first_line, "listening")
        except BaseException:
            self.kill()
            raise
        self.port = self.listening["port"]

    def _first_line(self) -> dict | None:
        has_ended = self.process.poll() is not None
        lines = self.log()
        if has_ended or (lines and "error" in lines[0]):
            self.wait()
            raise DidNotStart(self.sentences())
        return lines[0] if lines else None

    def log(self) -> list[dict]:
        """The lines of stdout so far."""
        size = self.out.seek(0, 2)
        self.out.seek(0)
        text = self.out.read(size)
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def sentences(self) -> str:
        """What stderr has so far."""
        self.err.seek(0)
        return self.err.read().decode()

    # Requests

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def socket(self, receive_buffer: int = 0) -> socket.socket:
        """A raw connection; a small receive buffer lets the server write no further than the client reads."""
        made = socket.socket()
        made.settimeout(PATIENCE)
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.connect(("127.0.0.1", self.port))
        return made

    def headers(self, more: dict | None = None) -> dict:
        key = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return key | {"Content-Type": "application/json"} | (more or {})

    def ask(self, method: str, path: str, body=None, headers: dict | None = None, over=None) -> Reply:
        """Sends one request; a body that is no bytes is sent as JSON."""
        connection = over or self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            connection.request(method, path, body, self.headers(headers))
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            if over is None:
                connection.close()

    def get(self, path: str, **more) -> Reply:
        return self.ask("GET", path, **more)

    def post(self, path: str, body, **more) -> Reply:
        return self.ask("POST", path, body, **more)

    def delete(self, path: str, **more) -> Reply:
        return self.ask("DELETE", path, **more)

    def answer(self, path: str, body, **more) -> dict:
        """The JSON of a request that succeeds."""
        reply = self.post(path, body, **more)
        assert reply.status == 200, reply.body
        assert reply.headers["Content-Type"].startswith("application/json")
        return reply.json

    def complete(self, prompt, **fields) -> dict:
        return self.answer("/v1/completions", {"prompt": prompt, **fields})

    def chat(self, messages, **fields) -> dict:
        return self.answer("/v1/chat/completions", {"messages": messages, **fields})

    @contextlib.contextmanager
    def stream(self, path: str, body: dict, receive_buffer: int = 0):
        """The events of a streamed answer, as they come; leaving early closes the connection."""
        connection = self.connect()
        connection.sock = self.socket(receive_buffer)
        try:
            connection.request("POST", path, json.dumps(body | {"stream": True}), self.headers())
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"].startswith("text/event-stream")
            yield read_events(response)
        finally:
            connection.close()

    def events(self, path: str, body: dict) -> list[dict]:
        with self.stream(path, body) as events:
            return list(events)

    def choices(self, path: str, body: dict) -> list[dict]:
        """The choices of an answer, in the same form whether it is streamed or not."""
        return merged(self.events(path, body)) if body.get("stream") else self.answer(path, body)["choices"]

    def leave(self, path: str, body: dict, after: int) -> None:
        """Leaves an answer once so many bytes of it, or all, are read; 0 leaves at once."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps(body), self.headers())
            if after > 0:
                response = connection.getresponse()
                while after > 0 and (part := response.read1(after)):
                    after -= len(part)

    def raw(self, sent: bytes, ends: bool = False) -> bytes:
        """What the server says to these bytes up to its closing the connection; `ends` closes our side first."""
        with self.socket() as made:
            made.sendall(sent)
            if ends:
                made.shutdown(socket.SHUT_WR)
            return read_all(made)

    # Metrics

    def metrics(self, over=None) -> dict[str, float]:
        """The values of GET /metrics by name and labels; those of several models are added up."""
        values: dict[str, float] = {}
        for line in self.get("/metrics", over=over).body.decode().splitlines():
            if line[0] != "#":
                name, _, value = re.sub(r'{model="[^"]*"}', "", line).rpartition(" ")
                values[name] = values.get(name, 0) + float(value)
        return values

    def is_idle(self) -> bool:
        now = self.metrics()
        return now["bie_answers_running"] == now["bie_answers_waiting"] == 0

    # The end

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE)

    def stop(self) -> int:
        """Asks it to end; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.files.close()


def side_by_side(threads: int, calls: Iterable[Callable[[], None]]) -> list[BaseException]:
    """Makes the calls in their order from so many threads; what they raise."""
    work: queue.SimpleQueue = queue.SimpleQueue()
    for call in calls:
        work.put(call)
    raised: list[BaseException] = []

    def run() -> None:
        while True:
            try:
                call = work.get_nowait()
            except queue.Empty:
                return
            try:
                call()
            except Exception as error:
                raised.append(error)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return raised


def kilobytes(server: Server, name: str) -> int:
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1])


def is_sanitized(server: Server) -> bool:
    """A sanitizer reserves terabytes of addresses, and holds back memory that is freed."""
    return kilobytes(server, "VmSize") > 1 << 30


def expect(what: object, wanted: object, got: object) -> None:
    assert got == wanted, f"{what}: expected {wanted}, got {got}"


def read_all(of: socket.socket) -> bytes:
    """All bytes until the other side closes."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := of.recv(1 << 16):
            found += part
    return bytes(found)


class Received(io.BytesIO):
    """Bytes of one connection, of which http.client reads reply after reply."""

    def makefile(self, _mode: str) -> Received:
        return self

    def close(self) -> None:
        """Leaves the bytes behind a reply readable."""

    def reply(self, method: str = "GET") -> Reply:
        """The next reply, to a request of this method."""
        response = http.client.HTTPResponse(self, method=method)
        response.begin()
        return Reply(response.status, response.headers, response.read())


def spelled(text: str) -> list[int]:
    """The tokens of a small model's text."""
    return [ord(c) - 31 for c in text]


def name_of(token: int) -> str:
    return "<|end|>" if token == 0 else chr(token + 31)


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def choice(answer: dict) -> dict:
    (only,) = answer["choices"]
    return only


def by_name(likeliest) -> dict[str, float]:
    return {name_of(token): value for token, value in likeliest}


@contextlib.contextmanager
def running(server: Server):
    """The server, which ends with the block."""
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def serve(bie):
    """Starts servers and leaves none behind."""
    made = []

    def start(model: Path, *words, **options) -> Server:
        made.append(Server(bie, model, *words, **options))
        return made[-1]

    yield start
    for server in made:
        server.kill()


@pytest.fixture
def served_model(models):
    return models("llama", "Q8_0")


@pytest.fixture
def other(serve, served_model):
    """A server with options, for one test alone."""

    def start(*words, **options) -> Server:
        return serve(served_model, *words, **options)

    return start


@pytest.fixture(scope="module")
def server(bie, models):
    """A server of the small llama with default options, which the tests of a file share. It ends well."""
    with running(Server(bie, models("llama", "Q8_0"))) as made:
        yield made
        assert made.stop() == 0, made.sentences()


@pytest.fixture
def written(answer, served_model, tmp_path):
    """What bie generate writes to a prompt or to messages with the fields of a request."""
    names = {"max_tokens": "tokens", "repeat_penalty": "repeat-penalty"}

    def call(prompt, of=served_model, **fields):
        words = []
        for name, value in fields.items():
            option = "--" + names.get(name, name).replace("_", "-")
            for each in value if isinstance(value, list) else [value]:
                words += [option, each]
        if isinstance(prompt, str):
            return answer("generate", of, "--prompt", prompt, *words)
        (tmp_path / "messages.json").write_text(json.dumps(prompt))
        return answer("generate", of, "--messages", tmp_path / "messages.json", *words)

    return call
