"""bie chat, and messages as the prompt of bie generate."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from fcntl import ioctl

import pytest
from small_models import CHAT_TEMPLATE, write_model

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


@pytest.fixture
def run(bie):
    """Runs bie; the finished process, its output as text."""

    def call(*words, stdin: str = ""):
        return subprocess.run(
            [str(bie), *map(str, words)], input=stdin.encode(), capture_output=True, timeout=120, check=False
        )

    return call


@pytest.fixture
def model(models):
    return models("llama", "Q8_0")


def spelled(text: str) -> list[int]:
    """The tokens of a small model's text."""
    return [ord(c) - 31 for c in text]


def said(process) -> dict:
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def users(*texts: str) -> list[dict]:
    return [{"role": "user", "content": text} for text in texts]


# Messages


def test_a_message_is_written_by_the_template(run, model):
    words = ("generate", model, "--chat", "--prompt", "Hi", "--tokens", 3, "--json")
    assert said(run(*words))["prompt_tokens"] == [*spelled("u:Hi"), 0, *spelled("a:")]
    assert said(run(*words, "--system", "Be"))["prompt_tokens"] == [
        *[*spelled("s:Be"), 0],
        *[*spelled("u:Hi"), 0],
        *spelled("a:"),
    ]


def test_what_a_user_says_never_becomes_a_control_token(run, model):
    tokens = said(run("generate", model, "--chat", "--prompt", "a<|end|>b", "--tokens", 1, "--json"))["prompt_tokens"]
    assert tokens == [*spelled("u:a<|end|>b"), 0, *spelled("a:")]


def test_messages_come_from_a_file_and_from_stdin(run, model, tmp_path):
    messages = [*users("Hi"), {"role": "assistant", "content": "Yo"}, *users("Who?")]
    wanted = [*spelled("u:Hi"), 0, *spelled("a:Yo"), 0, *spelled("u:Who?"), 0, *spelled("a:")]
    for text in (json.dumps(messages), json.dumps({"messages": messages, "tools": None})):
        (tmp_path / "messages.json").write_text(text)
        for source in (tmp_path / "messages.json", "-"):
            process = run("generate", model, "--messages", source, "--tokens", 1, "--json", stdin=text)
            assert said(process)["prompt_tokens"] == wanted


def test_a_template_comes_from_a_file(run, model, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[0].content | upper }}{{ tools | length }}")
    (tmp_path / "m.json").write_text(json.dumps({"messages": users("hi"), "tools": [{"type": "function"}]}))
    words = ("generate", model, "--messages", tmp_path / "m.json", "--template", tmp_path / "t.jinja")
    assert said(run(*words, "--tokens", 1, "--json"))["prompt_tokens"] == spelled("HI1")


def test_a_batch_of_messages(run, model, tmp_path):
    (tmp_path / "lines").write_text("one\ntwo\n")
    together = run("generate", model, "--chat", "--batch", tmp_path / "lines", "--tokens", 5, "--json")
    for line, answer in zip(("one", "two"), json.loads(together.stdout), strict=True):
        alone = said(run("generate", model, "--chat", "--prompt", line, "--tokens", 5, "--json"))
        assert answer["tokens"] == alone["tokens"]


USES = {
    "a system without a chat": (("--prompt", "a", "--system", "b"), "--chat"),
    "a template without a chat": (("--prompt", "a", "--template", "b"), "--chat or --messages"),
    "no thoughts without a chat": (("--prompt", "a", "--no-think"), "--chat or --messages"),
    "a chat of messages": (("--messages", "m.json", "--chat"), "--chat"),
    "messages and a prompt": (("--messages", "m.json", "--prompt", "a"), "--prompt"),
}


@pytest.mark.parametrize("use", USES)
def test_wrong_uses_are_told(run, model, use):
    words, sentence = USES[use]
    process = run("generate", model, *words)
    assert process.returncode == 2
    assert sentence in process.stderr.decode()


FILES = {
    "nothing": ("", "expected JSON"),
    "no JSON": ("[{]", "expected JSON"),
    "a number": ("7", "expected a list of messages"),
    "no messages": ("[]", "expected a message at least"),
    "a message without a role": ('[{"content": "a"}]', "message 1: expected a text as its role"),
    "a role of no text": ('[{"role": 7}]', "message 1: expected a text as its role"),
    "a message of no object": ('[{"role": "user", "content": "a"}, 5]', "message 2: expected an object"),
    "messages of no list": ('{"messages": {}}', "expected a list of messages"),
    "tools of no list": ('{"messages": [{"role": "user"}], "tools": 5}', "expected a list of tools"),
    "too deep": ("[" * 100000, "expected"),
}


@pytest.mark.parametrize("file", FILES)
def test_files_that_hold_no_messages_are_refused(run, model, tmp_path, file):
    text, sentence = FILES[file]
    (tmp_path / "m.json").write_text(text)
    process = run("generate", model, "--messages", tmp_path / "m.json")
    assert process.returncode == 3
    assert sentence in process.stderr.decode()
    assert "m.json" in process.stderr.decode()
    assert process.stdout == b""


def test_models_without_a_template_are_refused(run, tmp_path):
    write_model(tmp_path / "a.gguf", "llama", template="")
    for words in (("generate", tmp_path / "a.gguf", "--chat", "--prompt", "a"), ("chat", tmp_path / "a.gguf")):
        process = run(*words)
        assert process.returncode == 3
        assert "--template" in process.stderr.decode()
    (tmp_path / "t.jinja").write_text(CHAT_TEMPLATE)
    process = run("generate", tmp_path / "a.gguf", "--chat", "--prompt", "a", "--template", tmp_path / "t.jinja")
    assert process.returncode == 0


def test_what_a_template_refuses_is_told(run, model, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ raise_exception('Only users may speak') }}")
    process = run("generate", model, "--chat", "--prompt", "a", "--template", tmp_path / "t.jinja")
    assert process.returncode == 3
    assert "Only users may speak" in process.stderr.decode()
    (tmp_path / "t.jinja").write_text("a\n{% if %}")
    process = run("generate", model, "--chat", "--prompt", "a", "--template", tmp_path / "t.jinja")
    assert process.returncode == 3
    assert "line 2" in process.stderr.decode()
    assert "t.jinja" in process.stderr.decode()


# Conversations through a pipe

SHORT = ("--tokens", "12")


def answer_to(run, model, messages: list[dict], *options) -> str:
    process = run("generate", model, "--messages", "-", "--json", *options, stdin=json.dumps(messages))
    return said(process)["text"]


@pytest.fixture
def talk(run, model):
    def call(lines, *options, path=None, code=0):
        process = run("chat", path or model, *options, stdin="\n".join(lines) + "\n")
        assert process.returncode == code, process.stderr
        return process.stdout.decode().splitlines(), process.stderr.decode()

    return call


def test_each_answer_is_that_of_its_messages(run, model, talk):
    questions = ["Who are you?", "a<|end|>b", "Why", "7 times 8", "  spaces  ", "//etc is a folder"]
    answers, sentences = talk(questions, *SHORT, "--system", "Be short")
    assert sentences == ""
    messages = [{"role": "system", "content": "Be short"}]
    assert len(answers) == len(questions)
    for question, answer in zip(questions, answers, strict=True):
        messages += users(question.replace("//", "/"))
        assert answer == answer_to(run, model, messages, *SHORT)
        messages.append({"role": "assistant", "content": answer})


def test_a_conversation_of_windows_is_read_again_where_it_must(run, models, talk):
    path = models("windowed mistral", "Q8_0")
    answers, _ = talk(["x" * 200, "/undo", "y" * 150, "z"], *SHORT, path=path)
    messages = users("y" * 150)
    assert answers[1] == answer_to(run, path, messages, *SHORT)
    messages += [{"role": "assistant", "content": answers[1]}, *users("z")]
    assert answers[2] == answer_to(run, path, messages, *SHORT)


def test_turns_are_taken_back_and_begun_anew(talk):
    first, both = talk(["one"], *SHORT)[0], talk(["one", "two"], *SHORT)[0]
    answers, sentences = talk(["one", "two", "/undo", "two", "/clear", "one", "/undo", "/undo"], *SHORT)
    assert answers == [*both, both[1], *first]
    assert sentences.count("taken back") == 2
    assert "expected a message to take back, got none" in sentences


def test_an_answer_is_written_anew(run, model, talk):
    options = (*SHORT, "--temperature", "1.5", "--seed", "3")
    answers, _ = talk(["one", "/retry", "/retry", "two"], *options)
    assert len(set(answers[:3])) == 3
    messages = [*users("one"), {"role": "assistant", "content": answers[2]}, *users("two")]
    assert answers[3] == answer_to(run, model, messages, *options)
    assert talk(["one", "/retry", "/retry", "two"], *options)[0] == answers
    answers, sentences = talk(["/retry", "one", "/retry"], *SHORT)
    assert len(answers) == 1
    assert "expected an answer to write anew, got none" in sentences
    assert "expected --temperature above 0, got 0" in sentences


def test_messages_are_saved_for_generate(run, model, talk, tmp_path):
    path = tmp_path / "kept.json"
    answers, sentences = talk(["one", f"/save {path}", "two"], *SHORT)
    messages = json.loads(path.read_text())
    assert messages == [*users("one"), {"role": "assistant", "content": answers[0]}]
    assert str(path) in sentences
    assert answers[1] == answer_to(run, model, messages + users("two"), *SHORT)
    before = model.read_bytes()
    _, sentences = talk(["one", "/save", f"/save {model}", f"/save {tmp_path}/none/x", "/save /"], *SHORT)
    assert sentences.count("error") == 4
    assert model.read_bytes() == before


def test_commands_are_told(talk):
    answers, sentences = talk(["/help", "one", "/tokens", "/frobnicate", "/undo now", "/exit", "never"], *SHORT)
    assert len(answers) == 1
    for word in ("/undo", "/retry", "/save", "/tokens", "/clear", "/exit"):
        assert word in sentences
    assert "of 512 tokens of the context are taken" in sentences
    assert "got /frobnicate" in sentences
    assert "expected nothing behind /undo, got now" in sentences


def test_json_is_the_conversation(run, model):
    document = said(run("chat", model, *SHORT, "--json", stdin="one\n\nab\xff\n/undo\ntwo"))
    assert [m["role"] for m in document["messages"]] == ["user", "assistant"] * 2
    assert [m["content"] for m in document["messages"]][::2] == ["one", "two"]
    assert document["unanswered"] == 0


def test_a_full_context_is_told_and_the_conversation_stays(run, model, talk):
    options = ("--context", "60", "--tokens", "8")
    answers, sentences = talk(["a" * 20, "b" * 40, "c"], *options, code=3)
    assert "1 of the messages could not be answered" in sentences
    assert "expected a conversation of fewer than 60 tokens, the context, got" in sentences
    messages = [*users("a" * 20), {"role": "assistant", "content": answers[0]}, *users("c")]
    assert answers[1] == answer_to(run, model, messages, *options)
    assert len(answers) == 2


def test_the_oldest_turns_are_forgotten_where_the_user_says_so(run, model, talk):
    options = ("--context", "60", "--tokens", "8")
    system = {"role": "system", "content": "Be"}
    answers, sentences = talk(["a" * 20, "b" * 20, "c"], *options, "--shift", "--system", "Be")
    assert "oldest turns are forgotten" in sentences
    assert answers[1] == answer_to(run, model, [system, *users("b" * 20)], *options)
    assert len(answers) == 3
    _, sentences = talk(["a" * 70], *options, "--shift", code=3)
    assert "expected a conversation of fewer than 60 tokens" in sentences


def test_an_answer_that_fills_the_context_says_so(talk):
    _, sentences = talk(["a" * 10], "--context", "20")
    assert "the context of 20 tokens is full" in sentences


# In a terminal


class Terminal:
    """bie chat in a pseudo-terminal of 40 columns."""

    def __init__(self, bie, *words, columns: int = 40, **variables: str):
        self.own, other = pty.openpty()
        self.resize(columns)
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | variables
        command = [str(bie), "chat", *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(other)

    def resize(self, columns: int) -> None:
        ioctl(self.own, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.own, text.encode())

    def until(self, wanted: str) -> str:
        """All that is shown up to these words."""
        shown, end = "", time.monotonic() + 60
        while wanted not in shown:
            ready, _, _ = select.select([self.own], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"waited for {wanted!r} behind {shown!r}"
            shown += os.read(self.own, 1).decode(errors="replace")
        return shown

    def end(self) -> int:
        try:
            while os.read(self.own, 4096):
                pass
        except OSError:
            pass  # the other end is closed
        return self.process.wait(timeout=60)


@pytest.fixture
def terminal(bie):
    made = []

    def begin(*words, **options) -> Terminal:
        made.append(Terminal(bie, *words, **options))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()
        each.process.wait()
        os.close(each.own)


def test_six_turns_in_a_terminal(terminal, run, model):
    chat = terminal(model, *SHORT, "--exact")
    assert "/help" in chat.until("> ")
    messages = []
    for turn, question in enumerate(["one", "two", "three", "four", "five", "six"]):
        if turn == 3:
            chat.resize(100)
        if turn == 4:
            chat.type("/undo\n")
            chat.until("taken back")
            chat.until("> ")
            messages = messages[:-2]
        chat.type(question + "\n")
        messages += users(question)
        answer = answer_to(run, model, messages, *SHORT, "--exact")
        shown = chat.until("\n> ")
        assert answer in shown.replace("\r", "")
        assert "\x1b" not in shown
        messages.append({"role": "assistant", "content": answer})
    chat.type("\x04")
    assert chat.end() == 0


def test_ctrl_c_ends_an_answer_and_then_leaves(terminal, models):
    chat = terminal(models("llama"), "--exact", "--temperature", "1", "--context", "512")
    chat.until("> ")
    chat.type("a\n")
    chat.until("a\r\n")
    os.read(chat.own, 1)  # the answer has begun
    chat.type("\x03")
    chat.until("\n> ")
    chat.type("/tokens\n")
    chat.until("are taken")
    chat.until("> ")
    chat.type("\x03")
    assert chat.end() == -signal.SIGINT


def test_sigterm_ends_the_chat(terminal, models):
    chat = terminal(models("llama"), "--exact", "--temperature", "1", "--context", "512")
    chat.until("> ")
    chat.type("a\n")
    chat.until("a\r\n")
    os.read(chat.own, 1)  # the answer has begun
    chat.process.send_signal(signal.SIGTERM)
    assert chat.end() in (130, -signal.SIGTERM)  # the latter where the answer was at its end before


def test_thoughts_are_dim_or_hidden(terminal, tmp_path):
    write_model(tmp_path / "a.gguf", "llama", "Q8_0", template=CHAT_TEMPLATE.replace("a:{", "a:<think>{"))
    for options, variables, is_dim, is_shown in (
        ((), {}, True, True),
        ((), {"NO_COLOR": "1"}, False, True),
        (("--no-think",), {}, False, False),
    ):
        chat = terminal(tmp_path / "a.gguf", *SHORT, *options, **variables)
        chat.until("> ")
        chat.type("why\n")
        chat.until("why\r\n")
        shown = chat.until("> ")
        assert (DIM in shown, PLAIN in shown) == (is_dim, is_dim)
        assert (len(shown.strip("\r\n> ")) > 0) == is_shown


def test_a_pipe_has_no_colour(run, tmp_path):
    write_model(tmp_path / "a.gguf", "llama", "Q8_0", template=CHAT_TEMPLATE.replace("a:{", "a:<think>{"))
    process = run("chat", tmp_path / "a.gguf", *SHORT, stdin="why\n")
    assert b"\x1b" not in process.stdout
    assert len(process.stdout.strip()) > 0


def test_smollm_is_asked_with_its_own_marks(run, smollm):
    question = "Name three rivers."
    prompt = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )
    wanted = said(run("generate", smollm, "--prompt", prompt, "--tokens", 24, "--json"))
    asked = said(run("generate", smollm, "--chat", "--prompt", question, "--tokens", 24, "--json"))
    assert (asked["prompt_tokens"], asked["text"]) == (wanted["prompt_tokens"], wanted["text"])
    assert run("chat", smollm, "--tokens", 24, stdin=question).stdout.decode() == wanted["text"] + "\n"
