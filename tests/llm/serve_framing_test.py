"""No bytes that a client sends end or confuse bie serve."""

import contextlib
import http.client
import json
import random
import re
import socket

import pytest
from serving import (
    CHAT,
    CHUNKS,
    CLOSE,
    COMPLETIONS,
    CONTENT,
    LONG,
    REQUESTS,
    SEED,
    SHORT,
    USER,
    Received,
    Reply,
    Server,
    expect,
    in_chunks,
    is_sanitized,
    kilobytes,
    posted,
    read_all,
    request,
    side_by_side,
    tokenize_request,
    until,
)

CHUNKED = "Transfer-Encoding: chunked"

# Where a request ends

LENGTH = f"Content-Length: {len(CONTENT)}"
HEALTH = request("GET", "/health", b"", CLOSE)


#: A proxy may see another end of the body than the server (RFC 9112, sections 2.2, 5.1, 6.1 to 6.3, 7.1).
UNCLEAR = {
    "a length and chunks": tokenize_request(LENGTH, CHUNKED, body=CHUNKS),
    "chunks and a length": tokenize_request(CHUNKED, LENGTH, body=CHUNKS),
    "an unknown coding and a length": tokenize_request("Transfer-Encoding: xchunked", LENGTH),
    "a length and an unknown coding": tokenize_request(LENGTH, "Transfer-Encoding: xchunked"),
    "no coding and a length": tokenize_request("Transfer-Encoding: identity", LENGTH),
    "an empty coding and a length": tokenize_request("Transfer-Encoding:", LENGTH),
    "an empty coding": tokenize_request("Transfer-Encoding:", body=b""),
    "no coding": tokenize_request("Transfer-Encoding: identity", body=b""),
    "chunks that are not the last coding": tokenize_request("Transfer-Encoding: chunked, identity", body=b""),
    "chunks in chunks": tokenize_request("Transfer-Encoding: chunked, chunked", body=CHUNKS),
    "chunks twice": tokenize_request(CHUNKED, CHUNKED, body=CHUNKS),
    "a coding in quotes": tokenize_request('Transfer-Encoding: "chunked"', body=CHUNKS),
    "a compressed body": tokenize_request("Transfer-Encoding: gzip, chunked", body=CHUNKS),
    "chunks in HTTP/1.0": tokenize_request(CHUNKED, "Connection: keep-alive", body=CHUNKS, version="1.0"),
    "a blank before the colon": tokenize_request("Transfer-Encoding : chunked", body=CHUNKS),
    "a control character before the coding": tokenize_request("Transfer-Encoding: \x0bchunked", body=CHUNKS),
    "a fold before the first field": HEALTH.replace(b"\r\nHost", b"\r\n Host"),
    "line feeds": tokenize_request(LENGTH).replace(b"\r\n", b"\n"),
    "a line feed in a header": tokenize_request(f"X: a\n{LENGTH}"),
    "line feeds behind a header": tokenize_request(LENGTH).replace(b"\r\n\r\n", b"\n\n"),
    "a carriage return in a header": tokenize_request(f"X: a\r{LENGTH}"),
    "two carriage returns": tokenize_request(f"X: a\r\r\n{LENGTH}"),
    "chunks with line feeds": in_chunks(b"f\n" + CONTENT + b"\n0\n\n"),
    "a chunk's extension with a line feed": in_chunks(b"f;a\n\r\n" + CONTENT + b"\r\n0\r\n\r\n"),
    "a chunk without an end": in_chunks(b"f\r\n" + CONTENT + b"0\r\n\r\n"),
    "a chunk with another end": in_chunks(b"f\r\n" + CONTENT + b"XX0\r\n\r\n"),
    "a length behind the chunks": in_chunks(CHUNKS[:-2] + LENGTH.encode() + b"\r\n\r\n"),
    "a coding behind the chunks": in_chunks(CHUNKS[:-2] + CHUNKED.encode() + b"\r\n\r\n"),
    **{
        f"a chunk of the size {size!r}": in_chunks(size + b"\r\n" + CONTENT + b"\r\n0\r\n\r\n")
        for size in (b"0xf", b"+f", b"-f", b" f", b"", b"f f", b"1000000000000000f")
    },
    **{
        f"the length {length!r}": tokenize_request(f"Content-Length: {length}")
        for length in ("+15", "-15", "1 5", "15, 3", ",15", "0xf", "15;x=1", '"15"', "", "15.0", f"{2**64 + 15}")
    },
}
CLEAR = {
    "a length": tokenize_request(LENGTH),
    "chunks": in_chunks(CHUNKS),
    "blanks about a length": tokenize_request("Content-Length: \t 15 \t"),
    "a length that is told twice": tokenize_request(LENGTH, LENGTH),
    "a length in a list": tokenize_request("Content-Length: 15, 15"),
    "a length of more digits": tokenize_request("Content-Length: 0015"),
    "chunk sizes of more digits": in_chunks(b"000F\r\n" + CONTENT + b"\r\n000\r\n\r\n"),
    "a chunk's extension": in_chunks(b'f;a="b";c\r\n' + CONTENT + b"\r\n0;d\r\n\r\n"),
    "a trailer": in_chunks(CHUNKS[:-2] + b"X: a\r\n\r\n"),
    "a coding in a fold": tokenize_request("Transfer-Encoding:\r\n chunked", body=CHUNKS),
    "a coding in the fold of another field": tokenize_request("X: a\r\n Transfer-Encoding: chunked", LENGTH),
    "a length of another name": tokenize_request("Content_Length: 3", LENGTH),
}


@pytest.mark.parametrize("kind", UNCLEAR)
def test_a_request_without_a_clear_end_is_refused_and_nothing_behind_it_is_read(server, kind):
    said = server.raw(UNCLEAR[kind] + HEALTH)
    expect(f"the statuses of {said!r}", [b"400"], re.findall(rb"HTTP/1\.1 (\d+) ", said))
    assert Received(said).reply().error["message"]


@pytest.mark.parametrize("kind", CLEAR)
def test_a_request_with_a_clear_end_is_read_to_there(server, kind):
    said = Received(server.raw(CLEAR[kind] + HEALTH))
    expect(kind, {"tokens": [66]}, said.reply().json)
    expect("the request behind it", {"status": "ok"}, said.reply().json)
    expect("what is behind that", b"", said.read())


HOST = b"Host: here\r\n"


@pytest.mark.parametrize("hosts", [b"", HOST + HOST, HOST + b"Host: there\r\n"])
def test_a_request_names_one_host(server, hosts):
    """RFC 9112, section 3.2."""
    said = Received(server.raw(HEALTH.replace(HOST, hosts))).reply()
    assert said.status == 400 and said.error["message"].startswith("expected one Host, got ")
    old = request("GET", "/health", version="1.0").replace(HOST, b"")
    expect("HTTP/1.0, which knows no Host", 200, Received(server.raw(old)).reply().status)


def test_fields_behind_a_body_are_no_header(server):
    sent = request("POST", "/tokenize", b"", CHUNKED, CLOSE) + CHUNKS[:-2] + b"Content-Type: application/json\r\n\r\n"
    expect("the status", 415, Received(server.raw(sent)).reply().status)


def test_a_refusal_behind_a_head_has_its_body(server):
    said = Received(server.raw(request("HEAD", "/health") + b"\x01\r\n\r\n"))
    expect("HEAD", 200, said.reply("HEAD").status)
    assert said.reply().error["message"]


TARGETS = {
    "http://here/health": 200,
    "HTTP://here:80/health?x=http://a": 200,
    "http://here/nowhere": 404,
    "*": 404,
    "here:80": 404,
    "health": 404,
    "//health": 404,
    "/health#a": 404,
    "/he%61lth": 404,
    "/\xff": 404,
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_has_the_form_of_a_path_or_an_address(server, target):
    """RFC 9112, section 3.2.2: a server must accept whole addresses."""
    sent = HEALTH.replace(b"/health", target.encode("latin-1"))
    expect(target, TARGETS[target], Received(server.raw(sent)).reply().status)


BESIDE = {
    "an extension": (b"f;", b"a", b"\r\n" + CONTENT + b"\r\n0\r\n\r\n"),
    "a trailer": (CHUNKS[:-2] + b"X: ", b"a", b"\r\n\r\n"),
    "a trailer's name": (CHUNKS[:-2], b"a", b": X\r\n\r\n"),
    "trailers": (CHUNKS[:-2], b"X: a\r\n", b"\r\n"),
}


@pytest.mark.parametrize("size", [60_000, 70_000, 32 << 20])
@pytest.mark.parametrize("kind", BESIDE)
def test_little_is_kept_of_what_chunks_carry_beside_a_body(other, kind, size):
    own = other()
    before = kilobytes(own, "VmRSS")
    begin, filling, end = BESIDE[kind]
    with own.socket() as made:
        with contextlib.suppress(OSError):  # the server need not read all of it
            made.sendall(in_chunks(begin) + filling * (size // len(filling)))
            grown = kilobytes(own, "VmRSS") - before
            assert is_sanitized(own) or grown < 8000, f"memory: expected at most 8000 kB more, got {grown}"
            made.sendall(end)
            made.shutdown(socket.SHUT_WR)
        said = read_all(made)
    if size > 1 << 20:
        assert re.match(rb"HTTP/1\.1 4\d\d ", said), f"expected a refusal, got {said!r}; {own.sentences()}"
    expect("GET /health", 200, own.get("/health").status)


def test_a_client_that_closes_its_side_has_left(server):
    """Its end and that of one who is gone look the same."""
    expect("the answer", b"", server.raw(posted(LONG), ends=True))
    until(server.is_idle, "the end of an answer that nobody reads")


# Random bytes

VALID = [
    posted(SHORT),
    posted(SHORT | {"stream": True, "n": 2}),
    posted(SHORT, "Expect: 100-continue"),
    posted(SHORT, "Connection: keep-alive", version="1.0"),
    request("POST", CHAT, json.dumps({"messages": USER, "max_tokens": 2}).encode()),
    in_chunks(CHUNKS),
    in_chunks(b"7;a=b\r\n" + CONTENT[:7] + b"\r\n8\r\n" + CONTENT[7:] + b"\r\n0\r\nX: a\r\n\r\n"),
    request("GET", "/health"),
    request("GET", "/v1/models?a=b", b"", "Accept: */*", "Cookie: a=b; c=d"),
    request("DELETE", "/v1/requests/cmpl-0"),
    request("OPTIONS", "*"),
    request("GET", "http://here/health"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    b"GET /\r\n",
]
NUMBERS = (
    *("0", "1", "+15", "-1", " 15 ", "1 5", "15, 15", "15,3", "0xf", "", "15;q", "fffffffffffffffe", "8388609"),
    *("9" * 25, str(2**63), str(2**64 - 1), "\N{FULLWIDTH DIGIT ONE}"),
)
LINES = (LENGTH, "Content-Length: 3", CHUNKED, "Transfer-Encoding: identity", "Transfer-Encoding: x, chunked")
LINE_ENDS = (b"\n", b"\r", b"\n\r", b"\r\r\n", b"\r\n ", b"\r\n\t", b"\r\n\r\n", b"\0\r\n", b"")
ODD = (b"\0", b"\r", b"\n", b"\x7f", b"\x80", b"\xff", b":", b" ", b"\r\n", b"\0" * 300)


def mutated(numbers: random.Random, sent: bytes) -> bytes:
    """The bytes of a request with one thing wrong, most of the time."""
    at = numbers.randrange(len(sent) + 1)
    lines = sent.split(b"\r\n")
    line = numbers.randrange(len(lines))
    match numbers.choice(("flip", "cut", "insert", "line", "again", "end", "number", "name", "behind", "target")):
        case "flip":
            changed = bytearray(sent)
            for _ in range(numbers.randint(1, 8)):
                changed[numbers.randrange(len(changed))] = numbers.randrange(256)
            return bytes(changed)
        case "cut":
            return sent[:at] or b"\0"
        case "insert":
            return sent[:at] + numbers.choice(ODD) + sent[at:]
        case "line":
            return b"\r\n".join([*lines[:1], numbers.choice(LINES).encode(), *lines[1:]])
        case "again":
            return b"\r\n".join([*lines[:line], *lines[line : line + 1] * 2, *lines[line + 1 :]])
        case "end":
            parts = [each + b"\r\n" for each in lines]
            parts[line] = lines[line] + numbers.choice(LINE_ENDS)
            return b"".join(parts).removesuffix(b"\r\n") or b"\0"
        case "number":
            found = list(re.finditer(rb"(?<=Content-Length: )\d+|(?<=\r\n)[0-9a-f]+(?=[;\r])|(?<=HTTP/)[\d.]+", sent))
            if not found:
                return numbers.randbytes(at + 1)
            start, end = numbers.choice(found).span()
            return sent[:start] + numbers.choice(NUMBERS).encode() + sent[end:]
        case "name":
            many = b"X" * numbers.choice((300, 16_000, 17_000, 70_000)) + numbers.choice((b"", b": a", b" : a"))
            return b"\r\n".join([*lines[:line], many, *lines[line:]])
        case "behind":
            return sent + numbers.choice((numbers.randbytes(at), numbers.choice(VALID), b"\r\n", HEALTH[:at]))
        case "target":
            target = numbers.choice(("*", "http://here/health", "http://", "//", "/%00", "/../..", "?", "#", "a:1"))
            return re.sub(rb" \S+", b" " + target.encode(), sent, count=1)
    raise AssertionError


def replies_in(said: bytes) -> list[Reply]:
    """All replies that bytes are; the last one may be cut, or end with 100 Continue, as our side was closed."""
    received, found = Received(said), []
    with contextlib.suppress(http.client.IncompleteRead, http.client.RemoteDisconnected):
        while received.tell() < len(said):
            found.append(received.reply())
    return found


STATUSES = {200, 400, 404, 405, 413, 415, 431}


def send_hostile(server: Server, seed: int, seen: set[int]) -> None:
    """Sends one changed request. Who is told nothing for a while closes our side, which ends what waits for more."""
    numbers = random.Random(seed)
    sent = numbers.choice(VALID)
    for _ in range(numbers.choice((1, 1, 1, 2, 3))):
        sent = mutated(numbers, sent)
    try:
        with server.socket() as made:
            said = b""
            with contextlib.suppress(OSError):
                made.sendall(sent)
                made.settimeout(0.2)
                said = made.recv(1 << 16)
                made.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_WR)
            made.settimeout(20)
            said += read_all(made)
        for reply in replies_in(said):
            assert reply.status in STATUSES, f"expected a status of {STATUSES}, got {reply.status}"
            assert reply.status < 400 or reply.error["message"]
            seen.add(reply.status)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {len(sent)} bytes {sent[:600]!r}: {error!r}") from error


def test_random_bytes_are_answered_or_the_connection_closed(server):
    wanted, seen, count = server.choices(COMPLETIONS, SHORT), set(), 5 * REQUESTS
    calls = [lambda seed=SEED + i: send_hostile(server, seed, seen) for i in range(count)]
    for first in range(0, count, 500):
        raised = side_by_side(16, calls[first : first + 500])
        assert not raised, f"{len(raised)} failed; the first one is {raised[0]}; {server.sentences()}"
        until(server.is_idle, "the end of all answers")
        until(lambda: server.metrics()["bie_connections"] == 1, "the end of all connections")
        expect("a request behind them", wanted, server.choices(COMPLETIONS, SHORT))
    assert seen > {200, 400, 404, 413, 431}, f"expected more statuses, got {seen}"
