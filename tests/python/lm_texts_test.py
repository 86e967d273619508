"""Texts and conversations as tokens: documents, splits, the files they are kept in, and everything that is refused."""

import hashlib
import json
import os
import resource

import numpy as np
import pytest

from bie.lm import encoding, texts, token_files
from bie.lm.documents import documents_of
from bie.lm.texts import tokenize

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]


def make_tokenizer(template=CHAT, merges=(), bos="<|bos|>", eos="<|eos|>", more=0):
    """One token a byte, the merges, the special tokens and so many more."""
    names = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges]
    names += [f"<|{i}|>" for i in range(more)]
    bpe = tokenizers.models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=list(merges))
    made = tokenizers.Tokenizer(bpe)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=bos, eos_token=eos, additional_special_tokens=SPECIAL
    )
    found.chat_template = template
    return found


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def write(path, *items):
    """A file of texts, or of JSON lines."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    else:
        path.write_text("\n<|endoftext|>\n".join(items) + "\n", encoding="utf-8")
    return path


def documents(found):
    """[(tokens, counts)] of a set."""
    pairs = zip(found.starts[:-1], found.starts[1:], strict=True)
    return [(found.tokens[a:b].tolist(), found.counts[a:b].tolist()) for a, b in pairs]


def decoded(tokenizer, found):
    return [tokenizer.decode(tokens) for tokens, _ in documents(found)]


def counted(tokenizer, found):
    """The text of the tokens that count, of each document."""
    return [
        tokenizer.decode([token for token, counts in zip(*document, strict=True) if counts])
        for document in documents(found)
    ]


def chat(*pairs):
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"one", [("one", 1)]),
        (b"one\ntwo\n", [("one\ntwo", 1)]),
        (b"one\n\n<|endoftext|>\ntwo", [("one\n", 1), ("two", 4)]),
        (b"one\r\n <|endoftext|> \r\ntwo\r\n<|endoftext|>\r\n", [("one", 1), ("two", 3)]),
        (b"\xef\xbb\xbfone", [("one", 1)]),
        (b"in <|endoftext|> line\n", [("in <|endoftext|> line", 1)]),
        (b"one\n<|endoftext|>\n<|endoftext|>\ntwo", [("one", 1), ("", 3), ("two", 4)]),
        ("schön ☃\n".encode(), [("schön ☃", 1)]),
        (b"", []),
    ],
)
def test_documents_of_a_text(tmp_path, content, expected):
    path = tmp_path / "a.md"
    path.write_bytes(content)
    found = list(documents_of(path))
    assert [(document.content, int(document.place.removeprefix(f"{path}:"))) for document in found] == expected
    assert sum(document.size for document in found) in (len(content), len(content) - 3)


def test_texts_begin_with_bos_and_end_with_eos(tmp_path, tokenizer):
    path = write(tmp_path / "a.txt", "one", "two ☃", "x")
    found = tokenize([path], tokenizer, tmp_path / "tokens", validation=0)
    assert found.validation is None and found.training.tokens.dtype == np.uint16
    assert decoded(tokenizer, found.training) == ["<|bos|>one<|eos|>", "<|bos|>two ☃<|eos|>", "<|bos|>x<|eos|>"]
    assert counted(tokenizer, found.training) == ["one<|eos|>", "two ☃<|eos|>", "x<|eos|>"]
    assert found.vocabulary == 1 + max(tokenizer.bos_token_id, tokenizer.eos_token_id)


def test_a_tokenizer_without_bos_or_without_either(tmp_path):
    path = write(tmp_path / "a.txt", "one", "x")
    found = tokenize(path, make_tokenizer(bos=None), tmp_path / "a", validation=0)
    assert decoded(make_tokenizer(bos=None), found.training) == ["<|eos|>one<|eos|>", "<|eos|>x<|eos|>"]
    found = tokenize(path, make_tokenizer(bos=None, eos=None), tmp_path / "b", validation=0)
    assert documents(found.training) == [([78, 77, 68], [0, 1, 1])]
    assert found.empty == 1, "a document of one token has none that counts"


def test_empty_and_equal_documents_are_left_out(tmp_path, tokenizer):
    a = write(tmp_path / "a.txt", "one", " ", "two", "one")
    b = write(tmp_path / "b.jsonl", {"text": ""}, {"text": "two"}, {"text": "three"}, chat(("user", "hi")))
    found = tokenize([a, b], tokenizer, tmp_path / "tokens", validation=0)
    assert sorted(counted(tokenizer, found.training)) == ["one<|eos|>", "three<|eos|>", "two<|eos|>"]
    assert (found.duplicates, found.empty) == (2, 3)


def test_neither_names_nor_the_order_of_files_decide(tmp_path, tokenizer):
    for i in range(3):
        write(tmp_path / f"{i}.txt", *(f"{i} {j}" for j in range(40)))
    first = tokenize([tmp_path / f"{i}.txt" for i in range(3)], tokenizer, tmp_path / "a", validation=0.3)
    for i in range(3):
        (tmp_path / f"{i}.txt").rename(tmp_path / f"{9 - i}.text")
    second = tokenize([tmp_path / f"{i}.text" for i in (8, 7, 9)], tokenizer, tmp_path / "b", validation=0.3)
    assert documents(first.training) == documents(second.training)
    assert documents(first.validation) == documents(second.validation)
    expected = {
        f"{i} {j}"
        for i in range(3)
        for j in range(40)
        if int.from_bytes(hashlib.sha256(f"{i} {j}".encode()).digest()[:8], "big") < 0.3 * 2**64
    }
    assert {text.removesuffix("<|eos|>") for text in counted(tokenizer, first.validation)} == expected
    assert 20 < len(expected) < 55


def test_the_answers_of_conversations_count(tmp_path, tokenizer):
    path = write(
        tmp_path / "a.jsonl",
        chat(("user", "a"), ("assistant", "b c")),
        chat(
            ("system", "s"),
            ("user", "a"),
            ("assistant", "b\n"),
            ("tool", "t"),
            ("assistant", "<|user|>"),
            ("user", "z"),
        ),
    )
    found = tokenize(path, tokenizer, tmp_path / "tokens", validation=0)
    assert decoded(tokenizer, found.training) == [
        "<|user|>a<|end|>\n<|assistant|>b c<|end|>\n",
        "<|system|>s<|end|>\n<|user|>a<|end|>\n<|assistant|>b\n<|end|>\n<|tool|>t<|end|>\n"
        "<|assistant|><|user|><|end|>\n<|user|>z<|end|>\n",
    ]
    assert counted(tokenizer, found.training) == ["b c<|end|>", "b\n<|end|><|user|><|end|>"]


@pytest.mark.parametrize(
    ("template", "counts"),
    [
        # The prompt for an answer says more than the answer of a conversation does.
        (CHAT.replace("<|assistant|>{% endif", "<|assistant|><think>{% endif"), "b<|end|>"),
        # No special token ends a turn.
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "assistant: b\n"),
        # A token reaches from the prompt into the answer.
        (
            "{% for m in messages %}{{ m.role }}:\n{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}assistant:\n{% endif %}",
            "b<|end|>",
        ),
    ],
)
def test_chat_templates(tmp_path, template, counts):
    tokenizer = make_tokenizer(template)
    path = write(tmp_path / "a.jsonl", chat(("user", "a"), ("assistant", "b")))
    assert counted(tokenizer, tokenize(path, tokenizer, tmp_path / "tokens", validation=0).training) == [counts]


def test_a_token_that_reaches_from_the_prompt_into_the_answer_counts(tmp_path):
    template = CHAT.replace("<|{{ m['role'] }}|>", "{{ m['role'] }}:").replace("<|assistant|>", "assistant:")
    tokenizer = make_tokenizer(template, merges=[(":", ")"), ("x", "y")])
    path = write(tmp_path / "a.jsonl", chat(("user", "a"), ("assistant", ") b"), ("user", "x"), ("assistant", "y")))
    found = tokenize(path, tokenizer, tmp_path / "tokens", validation=0)
    assert counted(tokenizer, found.training) == [":) b<|end|>y<|end|>"]


def test_long_texts_are_tokenized_in_parts(tmp_path, tokenizer, monkeypatch):
    text = "".join(f"line {i}\n" for i in range(50)) + "x" * 100
    path = write(tmp_path / "a.txt", text)
    whole = documents(tokenize(path, tokenizer, tmp_path / "a", validation=0).training)
    monkeypatch.setattr(encoding, "_LONG_TEXT", 32)
    assert all(len(part) <= 32 and part.endswith("\n") for part in list(encoding._parts(text))[:-4])
    assert documents(tokenize(path, tokenizer, tmp_path / "b", validation=0).training) == whole


def test_large_vocabularies_take_32_bits(tmp_path):
    tokenizer = make_tokenizer(more=66_000)
    found = tokenize(write(tmp_path / "a.txt", "one"), tokenizer, tmp_path / "tokens", validation=0)
    assert found.training.tokens.dtype == np.uint32 and found.training.starts.dtype == np.int64
    assert decoded(tokenizer, found.training) == ["<|bos|>one<|eos|>"] and found.vocabulary > 1 << 16


def test_progress(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(texts, "_BATCH_DOCUMENTS", 7)
    a = write(tmp_path / "a.jsonl", *({"text": f"{i}"} for i in range(20)))
    b = write(tmp_path / "b.txt", *(f"b {i}" for i in range(20)))
    total, seen = a.stat().st_size + b.stat().st_size, []
    found = tokenize([a, b], tokenizer, tmp_path / "c", validation=0.2, progress=lambda *what: seen.append(what))
    assert seen == sorted(seen) and seen[-1] == (total, total) and len(seen) > 5
    assert {whole for _, whole in seen} == {total}
    assert len(found.training.starts) + len(found.validation.starts) == 42
    tokenize([a, b], tokenizer, tmp_path / "c", validation=0.2, progress=lambda *what: pytest.fail("made again"))


@pytest.fixture
def made(monkeypatch):
    """How often texts were tokenized."""
    seen, write = [], texts._Making.write

    def counting(self, folder):
        seen.append(folder)
        write(self, folder)

    monkeypatch.setattr(texts._Making, "write", counting)
    return seen


def test_the_same_inputs_use_the_files_that_are_there(tmp_path, tokenizer, made):
    path = write(tmp_path / "a.txt", *map(str, range(50)))
    first = tokenize(path, tokenizer, tmp_path / "tokens", validation=0.2)
    tokenizer(["a", "b c"], padding=False, truncation=True, max_length=1)  # which the tokenizer's own file tells
    second = tokenize(path, make_tokenizer(), tmp_path / "tokens", validation=0.2, vocab_size=1000)
    assert len(made) == 1 and documents(first.training) == documents(second.training)
    assert first[2:] == second[2:]


@pytest.mark.parametrize("change", ["text", "validation", "vocabulary", "merges", "template", "eos", "kind"])
def test_other_inputs_are_tokenized(tmp_path, tokenizer, made, change):
    path, validation = write(tmp_path / "a.txt", '{"text": "ab"}'), 0.0
    old = documents(tokenize(path, tokenizer, tmp_path / "tokens", validation=validation).training)
    if change == "text":
        write(path, "ac")
    elif change == "validation":
        validation = 1e-9
    elif change == "kind":
        path = path.rename(tmp_path / "a.jsonl")
    others = {
        "vocabulary": {"more": 1},
        "merges": {"merges": [("a", "b")]},
        "template": {"template": None},
        "eos": {"eos": None},
    }
    other = make_tokenizer(**others.get(change, {}))
    if change == "validation":
        with pytest.raises(ValueError, match="got 1 and 0, where validation takes 1e-09 of all"):
            tokenize(path, other, tmp_path / "tokens", validation=validation)
    else:
        new = documents(tokenize(path, other, tmp_path / "tokens", validation=validation).training)
        assert (new == old) == (change == "template")
    assert len(made) == 2


@pytest.mark.parametrize("at", ["documents", "move", "facts", "files"])
def test_an_interrupted_run_leaves_nothing(tmp_path, tokenizer, made, monkeypatch, at):
    path, folder = write(tmp_path / "a.txt", *map(str, range(50))), tmp_path / "tokens"

    def fails(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if at == "move":
            patched.setattr(token_files.os, "replace", fails)
        elif at == "facts":
            patched.setattr(texts, "write_facts", fails)
        elif at == "files":
            patched.setattr(token_files.os, "fsync", fails)
        progress = fails if at == "documents" else None
        with pytest.raises(KeyboardInterrupt):
            tokenize(path, tokenizer, folder, validation=0.2, progress=progress)
    assert list(folder.iterdir()) == []
    assert len(tokenize(path, tokenizer, folder, validation=0.2).training.starts) > 30 and len(made) == 2


def test_a_run_that_is_killed_leaves_a_folder_that_nobody_reads(tmp_path, tokenizer, monkeypatch):
    path, folder = write(tmp_path / "a.txt", *map(str, range(50))), tmp_path / "tokens"

    def fails(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(token_files.shutil, "rmtree", lambda *_, **__: None)  # a process that is killed removes nothing
        with pytest.raises(KeyboardInterrupt):
            tokenize(path, tokenizer, folder, validation=0.2, progress=fails)
    (left,) = folder.iterdir()
    assert left.name.startswith(".") and left.suffix == ".part" and any(left.iterdir())
    found = tokenize(path, tokenizer, folder, validation=0.2)
    assert len(documents(found.training)) + len(documents(found.validation)) == 50


def test_a_full_disk_leaves_nothing(tmp_path, tokenizer):
    path, folder = write(tmp_path / "a.txt", *map(str, range(50))), tmp_path / "tokens"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))
    try:
        with pytest.raises(OSError):
            tokenize(path, tokenizer, folder, validation=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(folder.iterdir()) == []
    assert len(documents(tokenize(path, tokenizer, folder, validation=0).training)) == 50


@pytest.mark.parametrize("name", ["training.tokens", "validation.counts", "training.starts", "texts.json"])
def test_a_folder_that_is_broken_is_made_again(tmp_path, tokenizer, made, name):
    path, folder = write(tmp_path / "a.txt", *map(str, range(50))), tmp_path / "tokens"
    whole = documents(tokenize(path, tokenizer, folder, validation=0.2).training)
    (file,) = folder.glob(f"*/{name}")
    os.truncate(file, file.stat().st_size - 1)
    assert documents(tokenize(path, tokenizer, folder, validation=0.2).training) == whole and len(made) == 2
    file.unlink()
    assert documents(tokenize(path, tokenizer, folder, validation=0.2).training) == whole and len(made) == 3
    assert len(list(folder.iterdir())) == 1


def test_the_folder_of_another_process_stays(tmp_path):
    target = tmp_path / "target"
    for name in ("first", "second"):
        with token_files.replacing_folder(target) as scratch:
            (scratch / name).write_text(name)
            if name == "second":  # the first one is whole, so it is not replaced
                assert token_files.is_whole(target)
            token_files.write_facts(scratch, np.dtype(np.uint16), {})
    assert sorted(path.name for path in target.iterdir()) == ["first", "texts.json"]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"ab\n<|endoftext|>\nc\xff", r"a.txt: byte 18: expected UTF-8, got 0xff$"),
        ("a.txt", b"\xef\xbb\xbfa\xe2\x98", r"a.txt: byte 4: expected UTF-8, got 0xe2$"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', r"a.jsonl: byte 24: expected UTF-8, got 0xe9$"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": ', r"a.jsonl:3: expected a JSON object, got a line that is no JSON: "),
        ("a.jsonl", b"[" * 100_000, r"a.jsonl:1: expected a JSON object, got a line that is no JSON: "),
        ("a.jsonl", b"[1]", r"a.jsonl:1: expected a JSON object, got a list$"),
        (
            "a.jsonl",
            b'{"a": 1, "b": 2}',
            r"a.jsonl:1: expected text or messages, or instruction .*, got the keys 'a', 'b'$",
        ),
        (
            "a.jsonl",
            b"{}",
            r"a.jsonl:1: expected text or messages, or instruction .*, got the keys of an empty object$",
        ),
        (
            "a.jsonl",
            b'{"text": "a", "messages": []}',
            r"a.jsonl:1: expected text or messages, or instruction .*, got both$",
        ),
        ("a.jsonl", b'{"instruction": 1, "output": "a"}', r"a.jsonl:1: instruction: expected a string, got a int$"),
        ("a.jsonl", b'{"text": null}', r"a.jsonl:1: text: expected a string, got a NoneType$"),
        (
            "a.jsonl",
            b'{"text": "\\ud800"}',
            r"a.jsonl:1: expected characters of Unicode, got half of a surrogate pair$",
        ),
        ("a.jsonl", b'{"messages": "a"}', r"a.jsonl:1: messages: expected a list of messages, got a str$"),
        ("a.jsonl", b'{"messages": []}', r"a.jsonl:1: messages: expected a list of messages, got an empty list$"),
        ("a.jsonl", b'{"messages": ["a"]}', r"a.jsonl:1: messages\[0\]: expected a JSON object, got a str$"),
        (
            "a.jsonl",
            b'{"messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "a"}]}',
            r"a.jsonl:1: messages\[1\]: role: expected one of system, user, assistant, tool, got 'robot'$",
        ),
        (
            "a.jsonl",
            b'{"messages": [{"role": "user"}]}',
            r"a.jsonl:1: messages\[0\]: content: expected a string, got a NoneType$",
        ),
        (
            "a.jsonl",
            b'{"messages": [{"role": "assistant", "content": "a"}]}',
            r"a.jsonl:1: messages\[0\]: role: expected another one before the assistant's, got none$",
        ),
        ("a.txt", b"\n \n", r"a.txt: expected documents, got none that is not empty$"),
        ("a.txt", b"one", r"a.txt: expected documents for training and for validation, got 1 and 0, where validation"),
    ],
)
def test_inputs_that_are_refused(tmp_path, tokenizer, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        tokenize(tmp_path / name, tokenizer, tmp_path / "tokens")
    assert list((tmp_path / "tokens").iterdir()) == []


def test_other_refusals(tmp_path, tokenizer):
    path, folder = write(tmp_path / "a.jsonl", {"text": "a"}, chat(("user", "a"), ("assistant", "b"))), tmp_path / "t"
    with pytest.raises(ValueError, match=r"tokenize: validation: expected a number in \[0, 1\), got 1$"):
        tokenize(path, tokenizer, folder, validation=1)
    with pytest.raises(ValueError, match=r"tokenize: no files: expected documents, got none"):
        tokenize([], tokenizer, folder)
    with pytest.raises(
        ValueError, match=r"a.jsonl:2: messages: expected a tokenizer with a chat template, got one wit"
    ):
        tokenize(path, make_tokenizer(None), folder)
    with pytest.raises(ValueError, match=r"a.jsonl:2: messages: the chat template does not take them: no user"):
        tokenize(path, make_tokenizer("{{ raise_exception('no user') }}"), folder)
    with pytest.raises(FileNotFoundError):
        tokenize(tmp_path / "b.txt", tokenizer, folder)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% if loop.last %}!{% endif %}{% endfor %}",
        # Thoughts stay in the last answer only.
        "{% for m in messages %}{% if loop.last and m.role != 'user' %}<think>{% endif %}{{ m.content }}{% endfor %}",
    ],
)
def test_a_template_that_does_not_grow(tmp_path, template):
    path = write(tmp_path / "a.jsonl", chat(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")))
    with pytest.raises(
        ValueError, match=r"a.jsonl:1: messages\[1\]: expected a chat template that adds each message at"
    ):
        tokenize(path, make_tokenizer(template), tmp_path / "tokens", validation=0)


def test_lines_of_instructions_are_conversations(tmp_path, tokenizer):
    path = write(
        tmp_path / "a.jsonl",
        {"instruction": "a", "input": "", "output": "b"},
        {"instruction": "a", "output": "c", "id": 3},
        {"instruction": "a", "input": "more", "output": "d"},
        {"instruction": "a", "input": "more", "output": "d", "text": "all of it"},
    )
    found = tokenize(path, tokenizer, tmp_path / "tokens", validation=0)
    assert decoded(tokenizer, found.training) == [
        "<|user|>a<|end|>\n<|assistant|>b<|end|>\n",
        "<|user|>a<|end|>\n<|assistant|>c<|end|>\n",
        "<|user|>a\n\nmore<|end|>\n<|assistant|>d<|end|>\n",
        "<|bos|>all of it<|eos|>",
    ]
    assert counted(tokenizer, found.training)[:3] == ["b<|end|>", "c<|end|>", "d<|end|>"]


def test_a_tokenizer_of_another_model(tmp_path, tokenizer):
    path, folder = write(tmp_path / "a.txt", "one"), tmp_path / "tokens"
    largest = max(tokenizer.bos_token_id, tokenizer.eos_token_id)
    sentence = (
        f"the tokens: expected numbers below {largest}, which the model knows, got {largest}: the tokenizer is of"
    )
    with pytest.raises(ValueError, match=f"a.txt:1: {sentence} another model"):
        tokenize(path, tokenizer, folder, validation=0, vocab_size=largest)
    tokenize(path, tokenizer, folder, validation=0, vocab_size=largest + 1)
    with pytest.raises(ValueError, match=sentence):  # of the files that are there
        tokenize(path, tokenizer, folder, validation=0, vocab_size=largest)
