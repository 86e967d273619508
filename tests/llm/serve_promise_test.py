"""An answer of bie serve does not depend on what else the server does: it is that of the same request alone."""

import random

import pytest
from serving import CHAT, COMPLETIONS, IS_LONG, REQUESTS, SEED, Server, expect, running, side_by_side, until

LEAVE, CLIENTS, VARIANTS = REQUESTS * 3 // 20, 16 if IS_LONG else 8, 3


def kinds() -> list[tuple[str, dict]]:
    """Three variants of each of twenty kinds of requests."""
    numbers = random.Random(SEED)

    def tokens(count: int) -> list[int]:
        return [numbers.randrange(1, 96) for _ in range(count)]

    def text(count: int) -> str:
        return "".join(chr(token + 31) for token in tokens(count))

    story, other = tokens(400), tokens(300)
    system = {"role": "system", "content": text(150)}
    found = []
    for variant in range(VARIANTS):
        seed = {"seed": 1000 + variant}
        sampled = {"temperature": 1.0} | seed
        greedy = {"temperature": 0}
        user = [{"role": "user", "content": text(20 + variant)}]
        cut = 64 * (variant + 1)
        completions = [
            {"prompt": tokens(1), "max_tokens": 200} | greedy,
            {"prompt": tokens(1), "max_tokens": 1, "logprobs": 20} | sampled,
            {"prompt": tokens(63 + variant), "max_tokens": 40} | sampled,
            {"prompt": story[: 399 + variant % 2], "max_tokens": 50, "logprobs": 1} | greedy,
            {"prompt": story[:cut] + tokens(3), "max_tokens": 30} | sampled,
            {"prompt": story[: cut + 1], "max_tokens": 30, "logprobs": 3} | sampled,
            {"prompt": story[: cut - 1], "max_tokens": 0, "echo": True, "logprobs": 2},
            {"prompt": other[:250] + tokens(5), "max_tokens": 20, "echo": True, "logprobs": 5} | sampled,
            {"prompt": other[: 200 + variant], "max_tokens": 90, "n": 4} | sampled,
            {"prompt": tokens(30), "max_tokens": 250, "n": 3, "logprobs": 2, "stream": True} | sampled,
            {"prompt": [story[:150], tokens(9), other[:100]], "max_tokens": 15} | sampled,
            {"prompt": other, "max_tokens": -1, "stream": True} | sampled,
            {"prompt": tokens(100), "max_tokens": 60, "stop": [chr(65 + variant), "~~"], "stream": True} | sampled,
            {"prompt": tokens(12), "max_tokens": 50, "top_k": 20, "top_p": 0.9, "min_p": 0.02} | sampled,
            {"prompt": story[:90], "max_tokens": 40, "presence_penalty": 1, "frequency_penalty": 0.5} | greedy,
            {"prompt": tokens(40), "max_tokens": 40, "repeat_penalty": 1.3, "logit_bias": {"5": 4, "9": -100}}
            | sampled,
        ]
        chats = [
            {"messages": [system, *user], "max_tokens": 40} | sampled,
            {"messages": [system, *user], "max_tokens": 30, "logprobs": True, "top_logprobs": 4, "stream": True}
            | greedy,
            {"messages": user, "n": 2, "max_tokens": 30, "logprobs": True} | sampled,
            {"messages": user, "max_completion_tokens": 50, "stream": True, "priority": variant - 1} | sampled,
        ]
        found += [(COMPLETIONS, body) for body in completions] + [(CHAT, body) for body in chats]
    assert len(found) == 20 * VARIANTS
    return found


@pytest.fixture(scope="module")
def alone(bie, models) -> list[tuple[str, dict, list[dict]]]:
    """Requests with their answers from servers that have done nothing before."""
    found = []
    for path, body in kinds():
        with running(Server(bie, models("llama", "Q8_0"), "--threads", 1)) as fresh:
            found.append((path, body, fresh.choices(path, body)))
    return found


def differences(server: Server, alone, seed: int) -> list[BaseException]:
    """Sends all requests in random order from several threads; what differs from the answers alone."""
    numbers = random.Random(seed)
    order = [i % len(alone) for i in range(REQUESTS)]
    numbers.shuffle(order)
    leaving = {at: numbers.choice((0, 1, 200, 2000)) for at in numbers.sample(range(REQUESTS), LEAVE)}

    def send(at: int) -> None:
        path, body, wanted = alone[order[at]]
        try:
            if at in leaving:
                server.leave(path, body, leaving[at])
            else:
                expect("the choices", wanted, server.choices(path, body))
        except Exception as error:
            raise AssertionError(f"request {at}, {path} {body}: {error!r}") from error

    return side_by_side(CLIENTS, [lambda at=at: send(at) for at in range(REQUESTS)])


SERVERS = {
    "a small cache": ("--rows", 16, "--threads", 2, "--cache-size", "93KB"),
    "defaults": (),
    "one row": ("--rows", 1, "--threads", 2, "--cache-size", "200KB", "--pause", 1),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_answers_are_those_of_the_request_alone(serve, models, alone, kind):
    server = serve(models("llama", "Q8_0"), *SERVERS[kind])
    assert server.listening["context"] == 512
    found = differences(server, alone, SEED)
    assert not found, f"{len(found)} of {REQUESTS} differ (seed {SEED}); the first one is {found[0]}"
    until(server.is_idle, "the end of what was left")
    counts = server.metrics()
    assert counts["bie_cached_tokens_total"] > 0
    assert counts["bie_pages_used"] == counts["bie_pages_kept"] <= counts["bie_pages_limit"]
    if kind == "a small cache":
        assert counts["bie_put_back_total"] > 0
    assert server.stop() == 0
