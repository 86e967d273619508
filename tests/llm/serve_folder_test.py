"""The folder of --cache-dir: texts are not read again by the next server, however the last one ended."""

import contextlib
import http.client
import random
import threading

import pytest
from serving import COMPLETIONS, DidNotStart, choice, until

PROMPTS = [random.Random(i).choices(range(1, 96), k=260) for i in range(6)]
FIELDS = {"max_tokens": 70, "temperature": 0, "logprobs": 2, "logit_bias": {"0": -100}}


@pytest.fixture
def pages(tmp_path):
    return tmp_path / "below" / "pages"


@pytest.fixture
def start(serve, served_model, pages):
    """Starts a server with the folder."""
    return lambda *words: serve(served_model, "--cache-size", "2MB", "--cache-dir", pages, *words)


@pytest.fixture
def alone(server):
    return [choice(server.complete(prompt, **FIELDS)) for prompt in PROMPTS]


def test_the_next_server_goes_on_with_the_pages(start, alone):
    first = start()
    assert [choice(first.complete(prompt, **FIELDS)) for prompt in PROMPTS] == alone
    assert first.stop() == 0
    second = start()
    found = [second.complete(prompt, **FIELDS) for prompt in PROMPTS]
    assert [choice(one) for one in found] == alone
    assert [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in found] == [256] * 6
    assert second.metrics()["bie_pages_loaded_total"] == 4 * 6
    # The page that the answer filled was written too.
    longer = PROMPTS[0] + [ord(c) - 31 for c in alone[0]["text"]]
    usage = start().complete(longer, max_tokens=1)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 320


def test_a_killed_server_leaves_whole_files(start, pages, alone):
    for moment in range(5):
        killed = start()

        def ask(server=killed):
            with contextlib.suppress(OSError, http.client.HTTPException):  # it breaks in the middle
                for prompt in PROMPTS:
                    server.post(COMPLETIONS, {"prompt": prompt} | FIELDS)

        asker = threading.Thread(target=ask)
        asker.start()
        until(lambda wanted=moment: len(list(pages.glob("*.biekv*"))) > wanted, "a page in the folder")
        killed.kill()
        asker.join()
    last = start()
    assert not list(pages.glob("*.tmp-*"))
    assert [choice(last.complete(prompt, **FIELDS)) for prompt in PROMPTS] == alone
    assert last.metrics()["bie_pages_loaded_total"] > 0


def test_two_servers_share_a_folder(start, alone):
    servers = [start("--cache-dir-size", "300KB") for _ in range(2)]
    for prompt, wanted in zip(PROMPTS * 2, alone * 2, strict=True):
        for server in servers:
            assert choice(server.complete(prompt, **FIELDS)) == wanted
    for server in servers:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--cache-dir-size", "1GB"], "requires --cache-dir"),
        (["--cache-dir", "x", "--cache-dir-size", "much"], "--cache-dir-size"),
        (["--cache-dir", "/proc/none"], "cannot be made"),
        (["--cache-dir", "/dev/null"], "cannot be"),
        (["--cache-dir", ""], "empty"),
    ],
)
def test_wrong_folders_are_told(serve, served_model, words, sentence):
    with pytest.raises(DidNotStart, match=sentence):
        serve(served_model, *words)
