"""The server command of bie.green_bit_llm starts bie serve with the options and paths of green-bit-llm 0.2.6."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from llm_package import imported
from serving import CHAT, COMPLETIONS, EXPECTED_GOT, GREEDY, USER, Server, merged, running, until

ROOT = Path(__file__).parents[2]
MODULE = "bie.green_bit_llm.serve.api.v1.fastapi_server"
BRIEF = GREEDY | {"max_tokens": 6}
BOTH = [(COMPLETIONS, BRIEF | {"prompt": "Hi"}), (CHAT, BRIEF | {"messages": USER})]


def command_of(*words) -> list[str]:
    return [sys.executable, "-m", MODULE, *map(str, words)]


def environment(build: Path, programs: Path) -> dict:
    return os.environ | {
        "PATH": str(programs),
        "PYTHONPATH": str(ROOT / "python/bie-llm"),
        "BIE_LLM_LIBRARY": str(build / "src/llm/libbie_llm.so"),
    }


class DropIn(Server):
    """The command as a process, with the requests that tests of bie serve make."""

    def __init__(self, build: Path, bie: Path, *words, key: str | None = None):
        self.key = key
        self.files = ExitStack()
        self.out, self.err = (self.files.enter_context(tempfile.TemporaryFile()) for _ in range(2))  # noqa: SIM115
        self.process = subprocess.Popen(
            command_of("--port", "0", *words),
            env=environment(build, bie.parent),
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
        )
        try:
            self.port = int(until(self._told_port, "listening")[1])
        except BaseException:
            self.kill()
            raise

    def _told_port(self) -> re.Match | None:
        assert self.process.poll() is None, self.sentences()
        return re.search(r" at http://127\.0\.0\.1:(\d+)", self.sentences())


@pytest.fixture(scope="module")
def module(build):
    return imported(build, MODULE)


@pytest.fixture(scope="module")
def paths(models):
    """Two models whose answers differ."""
    return [models("llama", "Q8_0"), models("qwen2", "Q8_0")]


@pytest.fixture(scope="module")
def names(module, paths):
    return [module.name_of(str(path)) for path in paths]


@pytest.fixture(scope="module")
def both(build, bie, paths):
    """A server of two models with options of 0.2.6, which ends well."""
    words = ["--model_list", *paths, "--host", "127.0.0.1", "--seqlen", 256, "--device", "cuda:0", "--temperature", 0.7]
    with running(DropIn(build, bie, *words)) as made:
        yield made
        assert made.stop() == 0, made.sentences()


@pytest.fixture
def start(build, bie, paths):
    """Starts the command on one model and leaves no process behind."""
    with ExitStack() as stack:
        yield lambda *words, **options: stack.enter_context(
            running(DropIn(build, bie, "--model", paths[0], *words, **options))
        )


@pytest.fixture
def stand_in(build, tmp_path):
    """Runs the command where the program bie is a script; the finished process, with the script's words in stdout."""
    script = tmp_path / "programs/bie"

    def call(*words, body='printf "%s\\n" "$@"'):
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        return subprocess.run(
            command_of(*words),
            env=environment(build, script.parent),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call


@pytest.fixture
def folder(tmp_path):
    """A folder that has a configuration alone, by its path from where the command runs."""
    path = Path("GreenBitAI/Small-1.5-bpw-2.2")
    (tmp_path / path).mkdir(parents=True)
    (tmp_path / path / "config.json").write_text('{"max_position_embeddings": 128}')
    return path


# Options


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("GreenBitAI/Qwen-3-1.7B-layer-mix-bpw-4.0", "GreenBitAI-Qwen-3-17B-layer-mix-bpw-40"),
        ("/srv/models/a_b.gguf", "srv-models-a_bgguf"),
        ("./models//a/", "models-a"),
        ("../a b", "ab"),
        ("-a---b-", "a-b"),
        ("Größe/1", "Größe-1"),
        ("..", ""),
    ],
)
def test_the_name_of_a_path_is_that_of_0_2_6(module, path, name):
    assert module.name_of(path) == name


def test_the_program_gets_the_options_that_it_has(stand_in, folder):
    process = stand_in("--model", folder, "--host", "::1", "--port", 11668, "--api-key-file", "keys.txt")
    assert process.returncode == 0, process.stderr
    model = f"GreenBitAI-Small-15-bpw-22={folder}"
    told = ["serve", "--host", "::1", "--port", "11668", "--model", model, "--api-key-file", "keys.txt"]
    assert process.stdout.splitlines() == told
    (sentence,) = process.stderr.splitlines()
    assert "/v1/GreenBitAI-Small-15-bpw-22/chat/completions" in sentence


def test_host_and_port_are_those_of_0_2_6_where_none_are_given(stand_in, folder):
    words = stand_in("--model", folder).stdout.splitlines()
    assert words[:5] == ["serve", "--host", "127.0.0.1", "--port", "8000"]
    assert "--context" not in words


def test_each_model_of_a_list_has_its_name_once(stand_in, folder, tmp_path):
    (tmp_path / "b").mkdir()
    words = stand_in("--model_list", "b", folder, "b").stdout.splitlines()
    given = [after for word, after in pairwise(words) if word == "--model"]
    assert given == ["b=b", f"GreenBitAI-Small-15-bpw-22={folder}"]


@pytest.mark.parametrize(("seqlen", "context"), [(4096, "128"), (128, "128"), (64, "64")])
def test_seqlen_is_the_context_as_far_as_the_model_has_one(stand_in, folder, seqlen, context):
    words = stand_in("--model", folder, "--seqlen", seqlen).stdout.splitlines()
    assert words[words.index("--context") + 1] == context


def test_a_chat_template_is_a_file_for_the_program(stand_in, folder):
    text = "{{ messages[0].content }}\n é"
    body = 'while [ "$1" != --template ]; do shift; done; cat "$2"; cat "$2"'
    process = stand_in("--model", folder, "--chat_template", text, body=f"PATH=/usr/bin:/bin\n{body}")
    assert process.stdout == 2 * text, process.stderr


def test_the_exit_code_is_that_of_the_program(stand_in, folder):
    assert stand_in("--model", folder, body="exit 7").returncode == 7


def test_a_broken_pipe_ends_the_program(stand_in, folder):
    process = stand_in("--model", folder, body="kill -s PIPE $$")
    assert process.returncode == -signal.SIGPIPE


MEANINGLESS = [
    *(["--device", "cuda:0"], ["--device_map", "balanced"], ["--max_new_tokens", "9"], ["--temperature", "0.1"]),
    *(["--use_default_chat_template"], ["--trust_remote_code"], ["--eos_token", "<|im_end|>"]),
    *(["--db_file_path", "db/greenbit.db"], ["--env_file", ".env"]),
]


@pytest.mark.parametrize("words", MEANINGLESS, ids=lambda words: words[0])
def test_what_has_no_meaning_is_told(stand_in, folder, words):
    process = stand_in("--model", folder, *words)
    sentence, _where = process.stderr.splitlines()
    assert f"{words[0]} has no meaning here: " in sentence
    assert words[0] not in process.stdout


def test_every_option_without_meaning_is_tested(module):
    assert {words[0] for words in MEANINGLESS} == {f"--{name}" for name in module.MEANINGLESS}


@pytest.mark.parametrize("words", [["--device", "cpu"], ["--device_map", "auto"], ["--chat_template", ""]])
def test_what_is_so_anyway_is_not_told(stand_in, folder, words):
    assert "no meaning" not in stand_in("--model", folder, *words).stderr


# Refusals


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([], 1, "expected --model or --model_list, got neither"),
        (["--model", ""], 1, "expected --model or --model_list, got neither"),
        (
            ["--model", "nowhere"],
            1,
            "expected a folder or a GGUF file on this machine, got 'nowhere'; nothing is fetch",
        ),
        (["--model", "a" * 5000], 1, "expected a folder or a GGUF file on this machine, got 'aaa"),
        (["--model", ".."], 1, "expected a path with letters or digits, which make the name in URLs, got '..'"),
        (["--model_list", "a/b", "a-b"], 1, "expected models of different names, got 'a/b' and 'a-b', both 'a-b'"),
        (["--model", "a-b", "--model_list", "a-b"], 2, "argument --model_list: not allowed with argument --model"),
        (["--model_list"], 2, "argument --model_list: expected at least one argument"),
        (["--model", "a-b", "--seqlen", "0"], 2, "--seqlen: expected a number of tokens from 1 on, got '0'"),
        (["--model", "a-b", "--seqlen", "many"], 2, "--seqlen: expected a number of tokens from 1 on, got 'many'"),
        (["--model", "a-b", "--no_such"], 2, "unrecognized arguments: --no_such"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(stand_in, tmp_path, words, code, sentence):
    for name in ("a/b", "a-b"):
        (tmp_path / name).mkdir(parents=True)
    process = stand_in(*words)
    assert (process.returncode, process.stdout) == (code, "")
    (line,) = process.stderr.splitlines()
    assert sentence in line


def test_a_configuration_that_is_no_json_is_told(stand_in, folder, tmp_path):
    (tmp_path / folder / "config.json").write_text("no JSON")
    process = stand_in("--model", folder, "--seqlen", 64)
    assert process.returncode == 1
    assert "config.json: expected JSON" in process.stderr


def test_a_program_that_is_not_there_is_told(build, tmp_path):
    process = subprocess.run(
        command_of("--model", tmp_path), env=environment(build, tmp_path), capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1
    assert "expected the program bie on the PATH, got none" in process.stderr


def test_a_program_that_cannot_be_started_is_told(build, tmp_path, folder):
    (tmp_path / "bie").write_text("no program")
    (tmp_path / "bie").chmod(0o755)
    process = subprocess.run(
        command_of("--model", tmp_path / folder),
        env=environment(build, tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 1
    assert process.stderr.endswith("bie cannot be started: Exec format error\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "70000"], "--port: .*70000"),
        (["--host", "nowhere"], "--host: expected an address, .*got"),
        (["--seqlen", "9999"], "--context: expected at most 512, the context of the model, got 9999"),
        (["--api-key-file", "/no/such/keys"], "/no/such/keys"),
    ],
)
def test_what_the_server_refuses_is_its_sentence_and_code(build, bie, paths, words, sentence):
    process = subprocess.run(
        command_of("--model", paths[0], "--port", 0, *words),
        env=environment(build, bie.parent),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode > 0
    assert re.search(sentence, process.stderr), process.stderr
    assert "Traceback" not in process.stderr


# Requests


@pytest.mark.parametrize(("path", "body"), BOTH)
def test_the_path_names_the_model(both, names, path, body):
    answers = []
    for name in names:
        own = f"/v1/{name}{path.removeprefix('/v1')}"
        by_path = both.answer(own, body)
        by_field = both.answer(path, body | {"model": name})
        assert by_path["choices"] == by_field["choices"]
        assert by_path["usage"]["completion_tokens"] > 0
        answers.append(by_path["choices"])
    assert answers[0] != answers[1]


@pytest.mark.parametrize(("path", "body"), BOTH)
def test_the_field_model_is_not_asked_where_the_path_names_one(both, names, path, body):
    own = f"/v1/{names[1]}{path.removeprefix('/v1')}"
    assert both.answer(own, body | {"model": "default_model"})["choices"] == both.answer(own, body)["choices"]


@pytest.mark.parametrize(("path", "body"), BOTH)
def test_a_path_streams(both, names, path, body):
    own = f"/v1/{names[0]}{path.removeprefix('/v1')}"
    (streamed,), (whole,) = merged(both.events(own, body)), both.answer(own, body)["choices"]
    assert streamed == whole


@pytest.mark.parametrize(("path", "body"), BOTH)
def test_a_model_that_is_not_served_is_not_found(both, path, body):
    for reply in (
        both.post(f"/v1/other{path.removeprefix('/v1')}", body),
        both.post(path, body | {"model": "other"}),
    ):
        assert reply.status == 404
        assert EXPECTED_GOT.search(reply.error["message"])
        assert "other" in reply.error["message"]


def test_a_list_of_prompts_and_fields_of_0_2_6(both, names):
    fields = {"repetition_penalty": 1.1, "repetition_context_size": 20, "remote_score": True, "api_key": ""}
    body = {"model": "default_model", "prompt": ["Hello", "Hi"], "max_tokens": 3, "top_p": 0.9, "stop": None} | fields
    answer = both.answer(f"/v1/{names[0]}/completions", body)
    assert [each["index"] for each in answer["choices"]] == [0, 1]


def test_the_models_are_listed(both, names):
    listed = both.get("/v1/models").json["data"]
    assert [each["id"] for each in listed] == names
    assert {each["max_model_len"] for each in listed} == {256}
    assert both.get("/health").status == 200


def test_a_given_chat_template_is_that_of_the_model(start, names):
    server = start("--chat_template", "<{{ messages[0].content }}>")
    assert server.answer("/apply-template", {"messages": USER, "model": names[0]})["prompt"] == "<Hi>"


def test_a_key_is_sent_as_0_2_6_sends_it(start, names, tmp_path):
    (tmp_path / "keys").write_text("first\nsecond\n")
    server = start("--api-key-file", tmp_path / "keys")
    path, body = f"/v1/{names[0]}/completions", {"prompt": "a", "max_tokens": 1}
    for key in ("first", "second"):
        assert server.post(path, body, headers={"X-Api-Key": key}).status == 200
        assert server.post(path, body, headers={"Authorization": f"Bearer {key}"}).status == 200
    for headers in ({}, {"X-Api-Key": "third"}, {"X-Api-Key": ""}, {"X-Api-Key": "Bearer first"}):
        assert server.post(path, body, headers=headers).status == 401


def test_without_a_file_of_keys_none_is_asked_for(both, names):
    body = {"prompt": "a", "max_tokens": 1}
    assert both.post(f"/v1/{names[0]}/completions", body, headers={"X-Api-Key": "any"}).status == 200


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server(start, number):
    server = start()
    server.signal(number)
    assert server.wait() == 0, server.sentences()
    assert "stopping; answers have 30 seconds to end" in server.sentences()
    assert "Traceback" not in server.sentences()
