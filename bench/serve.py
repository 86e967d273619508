"""Times `bie serve` under load: tokens a second of many streams, times to the first and the next token, beginnings in
common, what HTTP adds, memory of idle connections.

Usage: serve.py MODEL.gguf [--bie PROGRAM] [--threads N] [--streams N ...] [--rounds N] [--server URL] [--markdown]

Each stream is a client of its own that asks for 64 tokens behind a prompt of about 20. Numbers of streams take turns;
the table has medians of rounds. The clients run in this process, on the last CPU; the server has the first ones, and
they share one where there are no others, which is said. --server measures another server with OpenAI's interface, such
as llama-server, in the place of bie.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

WORDS = ["the", "river", "city", "house", "wood", "stone", "summer", "winter", "mountain", "animal", "people", "bank"]
WRITTEN = 64


def prompt_of(seed: int, words: int = 16) -> str:
    rng = random.Random(seed)
    return "Tell me more. " + " ".join(rng.choice(WORDS) for _ in range(words))


async def stream(host: str, port: int, fields: dict) -> tuple[float, list[float], int]:
    """Seconds to the first token, those between tokens, and how many events had text."""
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps({"stream": True, "temperature": 0, "max_tokens": WRITTEN, **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    begin = time.perf_counter()
    writer.write(head.encode() + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    first, between, last = None, [], begin
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        choices = json.loads(line[6:]).get("choices")
        if not choices or not choices[0].get("text"):
            continue
        now = time.perf_counter()
        if first is None:
            first = now - begin
        else:
            between.append(now - last)
        last = now
    writer.close()
    return first if first is not None else 0.0, between, len(between) + 1


async def load(host: str, port: int, streams: int, seed: int) -> dict:
    begin = time.perf_counter()
    prompts = [prompt_of(1000 * seed + i) for i in range(streams)]
    answers = await asyncio.gather(*(stream(host, port, {"prompt": prompt}) for prompt in prompts))
    seconds = time.perf_counter() - begin
    between = sorted(gap for _, gaps, _ in answers for gap in gaps)
    return {
        "tokens": sum(count for _, _, count in answers) / seconds,
        "first": statistics.median(first for first, _, _ in answers),
        "next": statistics.median(between),
        "next_99": between[int(0.99 * (len(between) - 1))],
    }


async def beginnings(host: str, port: int, seed: int) -> tuple[float, float]:
    """First tokens behind 1,000 words, and behind the same words with another end."""
    common = prompt_of(seed, 1000)
    fresh, _, _ = await stream(host, port, {"prompt": common + " one", "max_tokens": 1})
    again, _, _ = await stream(host, port, {"prompt": common + " two", "max_tokens": 1})
    return fresh, again


class Server:
    """bie serve on CPUs of its own."""

    def __init__(self, program: Path, model: str, threads: int, cpus: list[int]):
        words = ["taskset", "-c", ",".join(map(str, cpus)), program, "--threads", threads, "--json", "serve", model]
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(
            [*map(str, words), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.port = json.loads(self.process.stdout.readline())["port"]
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").read()
        self.start = time.perf_counter() - self.begin

    def resident(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def idle(server: Server) -> str:
    """What connections take that ask for nothing."""
    count = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    before = server.resident()
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health").read()
    each = (server.resident() - before) / count
    for connection in connections:
        connection.close()
    return f"{count} idle connections take {each / 1e3:.1f} KB each"


def generate_seconds(program: Path, model: str, threads: int) -> float:
    """A token of `bie generate` behind the same prompt."""
    words = [program, "generate", model, "--prompt", prompt_of(0), "--tokens", WRITTEN + 1, "--threads", threads]
    done = subprocess.run([*map(str, words), "--json"], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return answer["generate_seconds"] / (len(answer["tokens"]) - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--bie", type=Path, default=Path("build/runtime/src/cli/bie"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", help="http://HOST:PORT of another server, which runs already")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    of_server = cpus[: options.threads]
    os.sched_setaffinity(0, cpus[-1:])
    server = None
    if options.server:
        address = urlsplit(options.server)
        host, port = address.hostname, address.port
    else:
        server = Server(options.bie, options.model, options.threads, of_server)
        host, port = "127.0.0.1", server.port
    idle_text = idle(server) if server is not None else ""
    rows: dict[int, list[dict]] = {streams: [] for streams in options.streams}
    shared = []
    asyncio.run(load(host, port, 1, 99))
    for turn in range(options.rounds):
        for streams in options.streams:
            rows[streams].append(asyncio.run(load(host, port, streams, 100 * turn + streams)))
        shared.append(asyncio.run(beginnings(host, port, turn)))
    print("| streams | tokens a second | first token, ms | next token, ms | 99 % |")
    print("| --- | --- | --- | --- | --- |")
    for streams, rounds in rows.items():
        middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        times = " | ".join(f"{1000 * middle[name]:.1f}" for name in ("first", "next", "next_99"))
        print(f"| {streams} | {middle['tokens']:.1f} | {times} |")
    fresh, again = (statistics.median(column) for column in zip(*shared, strict=True))
    print(f"\n1,000 words in common: the first token after {1000 * fresh:.0f} ms, then after {1000 * again:.1f} ms")
    if cpus[-1] in of_server:
        print("the clients and the server share a CPU")
    if server is not None:
        os.sched_setaffinity(0, of_server)
        alone = generate_seconds(options.bie, options.model, options.threads)
        print(f"start to /health {server.start:.2f} s; a token of bie generate {1000 * alone:.1f} ms")
        print(f"{idle_text}; resident in the end {server.resident() / 1e6:.0f} MB")
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
