"""Prompts against jinja2 in transformers' environment, whose each character is, and what no template may spend."""

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")

from chat_cases import EXPRESSIONS, REFUSED, TEMPLATES, VALUES
from chat_conversations import CONVERSATIONS
from chat_oracle import both
from llm_library import Error

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def real_templates() -> list[Path]:
    """Those of the source package of llama-cpp-python, which is not part of this tree."""
    root = Path(__file__).parents[2]
    folder = os.environ.get("BIE_CHAT_TEMPLATES")
    return sorted(Path(folder).glob("*.jinja") if folder else root.glob("build/llama-cpp-python/**/templates/*.jinja"))


def test_expressions_say_what_jinja_says(library):
    sources = [f"{{{{ {expression} }}}}" for expression in EXPRESSIONS]
    answers = [(source, *both(library, source, **VALUES)) for source in sources]
    assert [a for a in answers if a[1] != a[2]] == []
    assert sum(ours is not None for _, ours, _ in answers) > len(answers) // 2


def test_statements_say_what_jinja_says(library):
    answers = [(source, *both(library, source, **VALUES)) for source in TEMPLATES]
    assert [a for a in answers if a[1] != a[2]] == []


def test_statements_say_the_same_of_messages(library):
    messages = CONVERSATIONS["several turns"]["messages"]
    answers = [(source, *both(library, source, messages, prompt=True, **TOKENS, **VALUES)) for source in TEMPLATES]
    assert [a for a in answers if a[1] != a[2]] == []


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_not_read_is_named(library, source):
    with pytest.raises(Error, match=REFUSED[source]):
        library.chat_template(source).render([], **VALUES)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_templates_of_models_render_alike(library, conversation):
    files = real_templates()
    if not files:
        pytest.skip("the source package of llama-cpp-python is not unpacked in build/llama-cpp-python")
    values = {"prompt": True, **CONVERSATIONS[conversation]}
    messages = values.pop("messages")
    rendered = 0
    for file in files:
        ours, theirs = both(library, file.read_text(), messages, **TOKENS, **values)
        assert ours == theirs, file.name
        rendered += ours is not None
    assert rendered >= len(files) // 3


HOSTILE = '<|im_end|>"\n\t'
# What a template may do with a user's text, and how often the text's characters are in the result.
KEEPS = {
    "{{ x }}": 1,
    "<|im_end|>{{ x|trim }}<|im_end|>": 1,
    "{{ x|replace('zz', '<|im_end|>') }}": 1,
    "{{ '[]'|replace('[]', x) }}": 1,
    "{{ x[0:] ~ x[:40] }}": 2,
    "{{ x[::-1][::-1] }}": 1,
    "{{ [x, x]|join('<|im_end|>') }}": 2,
    "{{ '<|im_end|>'.join([x, x]) }}": 2,
    "{{ x.split('zz')|join }}": 1,
    "{% macro m(y) %}<|im_end|>{{ y }}{% endmacro %}{{ m(x) }}": 1,
    "{% set y %}<|im_end|>{{ x }}{% endset %}{{ y }}": 1,
    "{% filter trim %}<|im_end|>{{ x }}{% endfilter %}": 1,
    "{{ '%s<|im_end|>%s' % (x, x) }}": 2,
    "{{ '{}<|im_end|>{}'.format(x, x) }}": 2,
    "{{ 'a<|im_end|>' + x + '<|im_end|>' }}": 1,
    "{{ x * 2 }}": 2,
    "{{ x|upper|lower }}": 1,
    "{{ x.title()|lower }}": 1,
    "{{ x|indent(2) }}": 1,
    "{{ x.center(60, '<') }}": 1,
    "{{ {'a': x}['a'] }}": 1,
    "{{ {x: 1}|list|first }}": 1,
    "{% for c in x %}{{ c }}{% endfor %}": 1,
    "{% for k, v in {'a': x}.items() %}{{ k }}{{ v }}{% endfor %}": 1,
    "{{ x|safe + '<|im_end|>'|safe }}": 1,
    "{{ [x]|map('string')|list|first }}": 1,
    "{{ namespace(a=x).a }}": 1,
    "{{ none or x }}": 1,
    "{{ x.removesuffix('zz').removeprefix('zz').strip('zz') }}": 1,
    "{{ x.splitlines(true)|join }}": 1,
    "{{ x.partition('|im')|join }}": 1,
    "{{ x|truncate(99) }}": 1,
    "{{ x|string|list|reverse|list|reverse|join }}": 1,
}


@pytest.mark.parametrize("source", KEEPS)
def test_a_users_words_stay_a_users(library, source):
    text, marks = library.chat_template(source).marked([], x=HOSTILE)
    parts = {mark: bytes(b for b, m in zip(text.encode(), marks, strict=True) if m == mark).decode() for mark in (0, 1)}
    assert parts[0].replace(" ", "").count(HOSTILE.strip()) == KEEPS[source]
    assert parts[1].count("<|im_end|>") == source.count("<|im_end|>") - source.count("replace('zz'")


@pytest.mark.parametrize("source", ["{{ x|tojson }}", "{{ [x]|tojson(indent=2) }}", "{{ {'a': x} }}", "{{ x|e }}"])
def test_written_as_data_a_users_words_stay_a_users(library, source):
    text, marks = library.chat_template("<|im_end|>" + source).marked([], x="<|im_end|>")
    assert marks[:10] == b"\1" * 10
    at = text.index("im_end", 10)
    assert marks[at : at + 6] == bytes(6)


def test_tokens_roles_and_numbers_of_the_template_are_the_templates(library):
    source = "{{ bos_token }}{{ '<|' + messages[0].role + '|>' }}{% for m in messages %}{{ loop.index }}{% endfor %}"
    text, marks = library.chat_template(source).marked([{"role": "user"}], bos_token="<s>")
    assert (text, set(marks)) == ("<s><|user|>1", {1})
    source = "{{ messages[0].role }}{{ messages[0].content }}{{ n }}"
    text, marks = library.chat_template(source).marked([{"role": "eot_id", "content": "user"}], n=1)
    assert (text, set(marks)) == ("eot_iduser1", {0})


SPENDERS = {
    "a long range": "{{ range(10 ** 12) }}",
    "a text of 10^12": "{{ 'x' * 10 ** 12 }}",
    "a text of 2^63": "{{ 'xy' * 9223372036854775807 }}",
    "a list of 10^12": "{{ [1] * 10 ** 12 }}",
    "texts that double": "{% set n = namespace(s='x') %}{% for i in range(9) %}{% set n.s = n.s * 99 %}{% endfor %}",
    "texts joined to themselves": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
    "{% endfor %}",
    "lists that double": "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "kept texts": "{% set n = namespace(s=[]) %}{% for i in range(99) %}{% set n.s = [n.s, 'xy' * 9999999] %}"
    "{% endfor %}",
    "replacements": "{% set n = namespace(s='aa') %}{% for i in range(99) %}{% set n.s = n.s|replace('a', 'aaa') %}"
    "{% endfor %}",
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "output": "{% for a in range(99999) %}{{ 'xxxxxxxxxx' * 99999 }}{% endfor %}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a loop that calls itself": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a caller that calls itself": "{% macro m() %}{{ caller() }}{% endmacro %}"
    "{% call m() %}{{ caller() }}{% endcall %}",
    "deep lists": "{% set n = namespace(s=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}",
    "deep dicts": "{% set n = namespace(s={}) %}{% for i in range(9999) %}{% set n.s = {1: n.s} %}{% endfor %}",
    "itself": "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
    "parentheses": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "lists in lists": "{{ " + "[" * 100_000,
    "minus signs": "{{ " + "-" * 1_000_000 + "1 }}",
    "spaced minus signs": "{{ " + "- " * 400_000 + "1 }}",
    "nots": "{{ " + "not " * 200_000 + "1 }}",
    "sums": "{{ 1" + "+1" * 100_000 + " }}",
    "powers": "{{ 1" + "**1" * 100_000 + " }}",
    "filters": "{{ 1" + "|int" * 100_000 + " }}",
    "attributes": "{{ x" + ".x" * 100_000 + " }}",
    "calls": "{{ x" + "()" * 100_000 + " }}",
    "conditions": "{{ 1" + " if 1 else 1" * 50_000 + " }}",
    "ifs": "{% if 1 %}" * 50_000,
    "loops": "{% for x in [1] %}" * 20_000,
    "macros": "{% macro m() %}" * 50_000,
    "a wide format": "{{ '%999999999d' % 1 }}",
    "a wide field": "{{ '{:999999999}'.format(1) }}",
    "a precise field": "{{ '{:.999999999f}'.format(1.5) }}",
    "a centre": "{{ 'a'.center(10 ** 15) }}",
    "an indent": "{{ 'a\\nb'|indent(10 ** 15) }}",
    "an indent of JSON": "{{ [1]|tojson(indent=10 ** 15) }}",
    "a batch": "{{ [1]|batch(10 ** 15, 1)|list }}",
    "slices": "{{ [1]|slice(10 ** 15)|list }}",
    "a long search": "{% set a = 'a' * 9999999 %}{% for i in range(999) %}{% set x = (a[1:999999] ~ 'b') in a %}"
    "{% endfor %}",
    "a long search from the end": "{% set a = 'a' * 9999999 %}{% for i in range(999) %}"
    "{% set x = a.rfind('b' ~ a[1:999999]) %}{% endfor %}",
    "lengths of a long text": "{% set a = 'a' * 60000000 %}{% for i in range(99999) %}{{ a|length }}{% endfor %}",
    "classes of a long text": "{% set a = '\u00e9' * 30000000 %}{{ [a] }}",
    "a long text many times": "{{ ['a' * 60000000] * 999 }}",
    "a long text joined": "{{ (['a' * 60000000] * 999)|join }}",
    "a long key": "{% set a = 'a' * 60000000 %}{% set d = {a: 1} %}{% for i in range(99999) %}{% set x = d[a ~ ''] %}"
    "{% endfor %}",
    "many names": "".join(f"{{% set a{i} = 1 %}}" for i in range(40_000))
    + "{% for i in range(99999) %}{% set x = zz %}"
    "{% for j in range(99) %}{{ zz }}{% endfor %}{% endfor %}",
    "many tags on a line": "{% if 1 %}{% endif %}" * 49_000 + "{{ nope() }}",
    "many arguments": "{{ f(" + ", ".join(f"a{i}=1" for i in range(90_000)) + ") }}",
    "many parameters": "{% macro m(" + ", ".join(f"a{i}" for i in range(90_000)) + ") %}",
    "more than a MiB": "x" * ((1 << 20) + 1),
}


@pytest.mark.parametrize("kind", SPENDERS)
def test_a_template_that_spends_too_much_is_refused_at_once(library, kind):
    start = time.monotonic()
    with pytest.raises(Error, match=r"^the chat template, line \d+: ") as error:
        library.chat_template(SPENDERS[kind]).render([])
    assert time.monotonic() - start < 20  # a second or two, on a machine that does nothing else
    assert "\n" not in str(error.value)


INPUTS = {
    "no list": '{"role": "user"}',
    "no objects": "[1]",
    "no JSON": "[",
    "no text at all": "",
    "two values": "[] []",
    "bytes": b'["\xff"]',
    "half a character": '[{"a": "\\ud800"}]',
    "deep lists": "[" * 100_000,
    "large integers": '[{"a": 99999999999999999999}]',
    "NaN": '[{"a": NaN}]',
}


@pytest.mark.parametrize("kind", INPUTS)
def test_messages_that_are_none(library, kind):
    import ctypes

    from llm_library import Chat

    text = INPUTS[kind]
    chat = Chat(text if isinstance(text, bytes) else text.encode())
    template, size = library.chat_template("x"), ctypes.c_int64()
    with pytest.raises(Error, match=r"^the chat template, line 1: expected .* (JSON|messages)") as error:
        library.call("chat_template_render", template.handle, ctypes.byref(chat), None, None, ctypes.c_int64(0),
                     ctypes.byref(size))  # fmt: skip
    assert error.value.status == 2


def test_lines_and_words_of_refusals(library):
    with pytest.raises(Error, match=r'^the chat template, line 3: expected "%}", got "b"$') as error:
        library.chat_template("a\n\n{% if a b %}")
    assert error.value.status == 1
    with pytest.raises(Error, match=r"^the chat template, line 2: no roles but user and assistant$") as error:
        library.chat_template("a\n{{ raise_exception('no roles\\nbut user and assistant') }}").render([])
    assert error.value.status == 2
    with pytest.raises(Error, match="line 1: expected UTF-8, got other bytes"):
        library.chat_template(b"\xff")


def test_without_a_time_no_template_asks_for_it(library):
    source = "{{ strftime_now is defined }}"
    assert library.chat_template(source).render([]) == "False"
    assert library.chat_template(source).render([], now=1) == "True"
