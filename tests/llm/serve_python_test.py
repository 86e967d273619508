"""bie.llm.serve starts the command, and ends it."""

import json
import urllib.request

import pytest
from llm_package import imported


@pytest.fixture(scope="session")
def llm(build):
    return imported(build, "bie.llm")


def get(url: str) -> dict:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def test_a_block_has_a_server(llm, bie, served_model):
    with llm.serve(served_model, program=bie, threads=1, context=64, name="small") as server:
        assert server.is_running() and server.model == "small" and server.context == 64
        assert get(server.url + "/v1/models")["data"][0]["id"] == "small"
        body = json.dumps({"prompt": "abc", "max_tokens": 2}).encode()
        request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
        assert json.load(urllib.request.urlopen(request))["usage"]["completion_tokens"] <= 2
    assert not server.is_running()
    (line,) = server.log
    assert line["path"] == "/v1/completions" and line["status"] == 200
    server.stop()


def test_several_models_have_names(llm, bie, served_model):
    with llm.serve({"a": served_model, "b": served_model}, program=bie, threads=1, cache_size="8MB") as server:
        assert server.models == ["a", "b"] == [one["id"] for one in get(server.url + "/v1/models")["data"]]
    with pytest.raises(llm.SettingError, match="--name"):
        llm.serve({"a": served_model}, program=bie, name="c")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"host": "nowhere"}, "--host: expected an address"),
        ({"cache_size": "1KB"}, "expected a cache of"),
        ({"no_such": 1}, "no-such"),
        ({"program": "/no/such/bie"}, "/no/such/bie cannot be started"),
    ],
)
def test_what_does_not_start_is_told(llm, bie, served_model, options, sentence):
    with pytest.raises(llm.SettingError, match=sentence):
        llm.serve(served_model, **({"program": bie} | options))


def test_a_program_that_is_not_there_is_told(llm, served_model, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(llm.SettingError, match="expected the program bie on the PATH, got none"):
        llm.serve(served_model)
