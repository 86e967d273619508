"""bie serve answers clients that others wrote, by OpenAI's responses and Anthropic's messages."""

import contextlib
import json

import pytest
from interfaces import CHANCES, MESSAGES, SAMPLED, THINKS, THINKS_BETWEEN, said
from serving import (
    COMPLETIONS,
    GREEDY,
    choice,
    spelled,
    user,
)
from small_models import letters, write_model


@pytest.fixture(scope="module")
def client_of():
    """Makes a client of a package for a server; all are closed in the end."""
    with contextlib.ExitStack() as opened:

        def make(package, server, key: str = "none"):
            base = f"http://127.0.0.1:{server.port}"
            if package.__name__ == "openai":
                return opened.enter_context(package.OpenAI(base_url=base + "/v1", api_key=key, max_retries=0))
            return opened.enter_context(package.Anthropic(base_url=base, api_key=key, max_retries=0))

        yield make


@pytest.fixture
def anthropic():
    return pytest.importorskip("anthropic", reason="anthropic is not installed")


@pytest.fixture
def openai():
    return pytest.importorskip("openai", reason="openai is not installed")


@pytest.fixture
def claude(anthropic, client_of, server):
    return client_of(anthropic, server)


@pytest.fixture
def gpt(openai, client_of, server):
    return client_of(openai, server)


def checked(made):
    """What a client made of JSON without looking at it, once it has all fields that its type promises."""
    type(made).model_validate(made.to_dict())
    return made


# Anthropic's client


def blocks_of(message) -> list[tuple[str, str]]:
    return [(each.type, each.thinking if each.type == "thinking" else each.text) for each in message.content]


def told_blocks(events) -> list[tuple[str, str]]:
    """The blocks of raw events, whose order is checked."""
    kinds = [checked(event).type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert events[0].message.content == [] and events[0].message.stop_reason is None
    blocks, is_open = [], False
    for event in events[1:-2]:
        assert event.index == len(blocks) - is_open
        if event.type == "content_block_start":
            assert not is_open
            blocks.append([event.content_block.type, ""])
        elif event.type == "content_block_delta":
            assert is_open and event.delta.type == blocks[-1][0] + "_delta"
            blocks[-1][1] += event.delta.thinking if event.delta.type == "thinking_delta" else event.delta.text
        else:
            assert event.type == "content_block_stop"
        is_open = event.type != "content_block_stop"
    assert not is_open
    return [tuple(block) for block in blocks]


def ask_claude(client, messages, most: int = 12, **more):
    """A message, once its stream and the client's own sum of it are found to say the same."""
    typed = {name: more.pop(name) for name in ("system", "stop_sequences", "thinking") if name in more}
    fields = {"model": "any", "max_tokens": most, "messages": messages, "extra_body": more} | typed
    whole = checked(client.messages.create(**fields))
    with client.messages.stream(**fields) as stream:
        texts = "".join(stream.text_stream)
        final = checked(stream.get_final_message())
    events = list(client.messages.create(**fields, stream=True))
    assert told_blocks(events) == blocks_of(final) == blocks_of(whole)
    assert texts == "".join(text for kind, text in blocks_of(whole) if kind == "text")
    end = events[-2]
    for other in (final, end.delta):
        assert (other.stop_reason, other.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    for usage in (final.usage, end.usage):
        assert usage.output_tokens == whole.usage.output_tokens
        assert read_tokens(usage) == read_tokens(whole.usage)
    return whole


def read_tokens(usage) -> int:
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


@pytest.mark.parametrize("fields", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_anthropic_is_told_what_a_chat_is_told(claude, server, served_model, fields):
    talk = [*user("Hi"), {"role": "assistant", "content": "Yo"}, *user("Who?")]
    found = ask_claude(claude, talk, **fields)
    wanted = server.chat(talk, max_tokens=12, **fields)
    assert blocks_of(found) == [("text", choice(wanted)["message"]["content"])]
    assert (found.role, found.type, found.model) == ("assistant", "message", served_model.stem)
    assert (found.stop_reason, found.stop_sequence) == ("max_tokens", None)
    assert (read_tokens(found.usage), found.usage.output_tokens) == (wanted["usage"]["prompt_tokens"], 12)
    assert found.id.startswith("msg_")
    assert claude.messages.create(model="any", max_tokens=1, messages=talk).id != found.id


def test_anthropic_says_what_the_system_says(claude, server):
    wanted = said(server, [{"role": "system", "content": "Be good"}, *user("Hi you")], max_tokens=12, **GREEDY)
    assert wanted != said(server, user("Hi you"), max_tokens=12, **GREEDY)
    blocks = [
        {"type": "text", "text": "Be "},
        {"type": "text", "text": "good", "cache_control": {"type": "ephemeral"}},
    ]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": " you"}]}]
    for system, messages in (("Be good", user("Hi you")), (blocks, parts)):
        assert blocks_of(ask_claude(claude, messages, system=system, **GREEDY)) == [("text", wanted)]


def test_anthropic_is_told_which_stop_ended_the_text(claude, server):
    whole = said(server, user("Hi"), max_tokens=40, **GREEDY)
    stop = whole[7:9]
    found = ask_claude(claude, user("Hi"), 40, stop_sequences=["\x01", stop], **GREEDY)
    assert blocks_of(found) == [("text", whole[: whole.index(stop)])]
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", stop)
    nothing = ask_claude(claude, user("Hi"), 40, stop_sequences=[whole[0]], **GREEDY)
    assert (blocks_of(nothing), nothing.stop_reason) == ([], "stop_sequence")


def test_anthropic_is_told_why_the_text_ended(claude, serve, anthropic, client_of, server, tmp_path):
    full = ask_claude(claude, user("a" * 400), 10_000, **SAMPLED)
    assert full.stop_reason == "model_context_window_exceeded"
    text = said(server, user("Hi"), max_tokens=40, **GREEDY)
    end = next(i for i in range(3, 40) if text[i] not in text[:i])
    write_model(tmp_path / "ends.gguf", "llama", "Q8_0", end=spelled(text[end])[0])
    ended = ask_claude(client_of(anthropic, serve(tmp_path / "ends.gguf")), user("Hi"), 40, **GREEDY)
    assert (ended.stop_reason, ended.stop_sequence) == ("end_turn", None)
    assert blocks_of(ended) == [("text", text[:end])]


def test_anthropic_is_told_thoughts_apart(anthropic, client_of, thinker):
    wanted = choice(thinker.chat(user("why"), max_tokens=20, **THINKS))["message"]
    assert wanted["reasoning_content"] and wanted["content"]
    client = client_of(anthropic, thinker)
    found = ask_claude(client, user("why"), 20, **THINKS)
    assert blocks_of(found) == [("thinking", wanted["reasoning_content"]), ("text", wanted["content"])]
    again = [*user("why"), {"role": "assistant", "content": found.content}, *user("so?")]
    as_text = [*user("why"), {"role": "assistant", "content": wanted["content"]}, *user("so?")]
    assert read_tokens(ask_claude(client, again, **THINKS).usage) == len(
        thinker.answer("/apply-template", {"messages": as_text})["tokens"]
    )
    in_thought = ask_claude(client, user("why"), 2, **GREEDY)
    assert [kind for kind, _ in blocks_of(in_thought)] == ["thinking"]


def test_anthropic_lets_a_model_think_or_not(anthropic, client_of, thinker):
    client = client_of(anthropic, thinker)
    free = blocks_of(ask_claude(client, user("why"), **SAMPLED))
    on = ask_claude(client, user("why"), thinking={"type": "enabled", "budget_tokens": 1024}, **SAMPLED)
    off = ask_claude(client, user("why"), thinking={"type": "disabled"}, **SAMPLED)
    assert blocks_of(on) == free and free[0][0] == "thinking"
    assert blocks_of(off) == [("text", said(thinker, user("why"), max_tokens=12, enable_thinking=False, **SAMPLED))]


def test_anthropic_sums_a_thought_in_the_middle_as_the_whole_answer(anthropic, client_of, thinker):
    found = ask_claude(client_of(anthropic, thinker), user("Hi"), 40, **THINKS_BETWEEN)
    assert {kind for kind, _ in blocks_of(found)} == {"thinking", "text"}


def test_anthropic_counts_the_tokens_that_are_read(anthropic, client_of, serve, served_model):
    fresh = serve(served_model)
    client = client_of(anthropic, fresh)
    for messages, more in ((user("Many " * 50), {}), (user("How many?"), {"system": "Count"})):  # which begin unlike
        count = client.messages.count_tokens(model="any", messages=messages, **more).input_tokens
        usage = client.messages.create(model="any", max_tokens=1, messages=messages, **more).usage
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (count, 0)
        again = client.messages.create(model="any", max_tokens=1, messages=messages, **more).usage
        assert again.cache_read_input_tokens > 0 and read_tokens(again) == count
        system = [{"role": "system", "content": more["system"]}] if more else []
        asked = {"messages": [*system, *messages]}
        assert count == len(fresh.answer("/apply-template", asked)["tokens"])


def test_anthropic_counts_as_the_model_thinks(anthropic, client_of, thinker):
    client = client_of(anthropic, thinker)
    counts = []
    for kind in ({"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}):
        fields = {"model": "any", "messages": user("why"), "thinking": kind}
        counts.append(client.messages.count_tokens(**fields).input_tokens)
        assert read_tokens(client.messages.create(max_tokens=1, **fields).usage) == counts[-1]
    assert counts[0] == counts[1] + len("<think>")


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
CALL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
REFUSED = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens: expected a whole number from 1, got"),
    "no room": ({"max_tokens": 0}, "max_tokens: expected a whole number from 1"),
    "an answer that begins": (
        {"messages": [*user("Hi"), {"role": "assistant", "content": "Yo"}]},
        "messages: expected the last one to be the user's.*got the assistant's",
    ),
    "a picture": ({"messages": user([PICTURE])}, r"messages\[0\].content: expected parts of text alone"),
    "a tool": ({"tools": [CALL]}, "tools: this server does not call tools"),
    "a prompt too long": ({"messages": user("a" * 513)}, "messages: expected at most 512 tokens"),
    "a role that is none": ({"messages": [{"role": "system", "content": "Be"}]}, r"messages\[0\]: expected"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_anthropic_raises_what_is_refused(anthropic, claude, kind):
    wrong, sentence = REFUSED[kind]
    fields = {"model": "any", "max_tokens": 5, "messages": user("Hi")} | wrong
    for more in ({"stream": True}, {}) if fields["max_tokens"] else ({"stream": True},):
        with pytest.raises(anthropic.BadRequestError, match=sentence) as refused:
            claude.messages.create(**fields, **more)
        assert refused.value.body["error"]["type"] == "invalid_request_error"


def test_anthropic_sends_its_key(anthropic, client_of, keyed):
    fields = {"model": "any", "max_tokens": 3, "messages": user("Hi")}
    for call in ("create", "count_tokens"):
        asked = fields if call == "create" else {name: fields[name] for name in ("model", "messages")}
        with pytest.raises(anthropic.AuthenticationError, match=r"expected .*got another one") as refused:
            getattr(client_of(anthropic, keyed, "wrong").messages, call)(**asked)
        assert refused.value.body["error"]["type"] == "authentication_error"
        assert getattr(client_of(anthropic, keyed, "right").messages, call)(**asked)
    assert not any("right" in json.dumps(line) for line in keyed.log())
    bearer = keyed.post(MESSAGES, fields, headers={"Authorization": "Bearer right"})
    assert bearer.status == 200


def test_anthropic_raises_that_a_request_is_too_large(anthropic, client_of, keyed):
    with pytest.raises(anthropic.RequestTooLargeError, match="expected a body of at most 2048 bytes") as refused:
        client_of(anthropic, keyed, "right").messages.create(model="any", max_tokens=1, messages=user("a" * 3000))
    assert refused.value.body["error"]["type"] == "request_too_large"


def test_anthropic_chooses_the_model(anthropic, client_of, both):
    client = client_of(anthropic, both)
    fields = {"max_tokens": 8, "messages": user("Hi")}
    texts = set()
    for name in ("small", "other/2"):
        found = client.messages.create(model=name, **fields, extra_body=SAMPLED)
        assert found.model == name
        texts.add(found.content[0].text)
        assert client.messages.count_tokens(model=name, messages=fields["messages"]).input_tokens > 0
    assert len(texts) == 2
    for call in (client.messages.create, client.messages.count_tokens):
        asked = fields if call == client.messages.create else {"messages": fields["messages"]}
        with pytest.raises(
            anthropic.NotFoundError, match='model: expected one of "small", "other/2", got "none"'
        ) as no:
            call(model="none", **asked)
        assert no.value.body["error"]["type"] == "not_found_error"


# OpenAI's client


def items_of(response) -> list[dict]:
    """The items of an answer without their names, which are new each time."""
    items = [each.to_dict() for each in response.output]
    assert len({each.pop("id") for each in items}) == len(items), "each item has a name of its own"
    return items


def facts_of(response) -> dict:
    facts = response.to_dict(mode="json")
    facts["usage"] = {name: facts["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")}
    return {name: fact for name, fact in facts.items() if name not in ("id", "created_at", "output")}


def told_items(events) -> list[dict]:
    """The items that the events of a response tell piece by piece, whose order and numbers are checked."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [checked(event).type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert all(event.response.status == "in_progress" and event.response.output == [] for event in events[:2])
    items, at = [], iter(events[2:-1])
    for added in at:
        assert added.type == "response.output_item.added"
        assert (added.output_index, added.item.status, added.item.content) == (len(items), "in_progress", [])
        part = next(at)
        assert (part.type, part.part.text) == ("response.content_part.added", "")
        kind = "response." + {"message": "output_text", "reasoning": "reasoning_text"}[added.item.type]
        text, chances = "", []
        for event in at:
            assert (event.item_id, event.output_index) == (added.item.id, len(items))
            assert event.content_index == part.content_index == 0
            if event.type != kind + ".delta":
                break
            text += event.delta
            chances += getattr(event, "logprobs", [])
        assert (event.type, event.text) == (kind + ".done", text)
        assert [each.to_dict() for each in getattr(event, "logprobs", [])] == [each.to_dict() for each in chances]
        part_done, done = next(at), next(at)
        assert (part_done.type, part_done.part.text) == ("response.content_part.done", text)
        assert [each.to_dict() for each in getattr(part_done.part, "logprobs", [])] == [e.to_dict() for e in chances]
        assert (done.type, done.output_index, done.item.id) == (
            "response.output_item.done",
            len(items),
            added.item.id,
        )
        assert [each.to_dict() for each in done.item.content] == [part_done.part.to_dict()]
        items.append(done.item.to_dict())
    return items


def ask_gpt(client, asked, most: int | None = 12, **more):
    """A response, once its stream and the client's own sum of it are found to say the same."""
    names = ("seed", "logit_bias", "enable_thinking", "stop")
    extra = {"seed": 1} | {name: more.pop(name) for name in names if name in more}
    fields = {"model": "any", "input": asked, "extra_body": extra, "max_output_tokens": most} | more
    whole = checked(client.responses.create(**fields))
    events = list(client.responses.create(**fields, stream=True))
    final = events[-1].response
    assert told_items(events) == [each.to_dict() for each in final.output]
    assert items_of(final) == items_of(whole)
    assert facts_of(checked(final)) == facts_of(whole)
    assert events[-1].type == f"response.{whole.status}"
    with client.responses.stream(**fields) as stream:
        texts = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        summed = stream.get_final_response() if whole.status == "completed" else final
    assert summed.output_text == whole.output_text == texts
    return whole


@pytest.mark.parametrize("fields", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_openai_is_told_in_responses_what_a_chat_is_told(gpt, server, served_model, fields):
    found = ask_gpt(gpt, "Hi", **fields)
    wanted = server.chat(user("Hi"), max_tokens=12, **fields)
    assert found.output_text == choice(wanted)["message"]["content"]
    assert (found.object, found.model, found.temperature) == ("response", served_model.stem, fields["temperature"])
    usage = wanted["usage"]
    assert (found.usage.input_tokens, found.usage.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert (found.usage.total_tokens, found.usage.output_tokens_details.reasoning_tokens) == (usage["total_tokens"], 0)
    (item,) = found.output
    assert (item.type, item.role) == ("message", "assistant")
    assert found.id.startswith("resp_") and item.id.startswith("msg_")


def test_openai_sends_items(gpt, server):
    first = gpt.responses.create(model="any", input="Hi", max_output_tokens=6, **GREEDY)
    talk = [
        {"role": "system", "content": "Be good"},
        *user("Hi"),
        {"role": "assistant", "content": first.output_text},
        *user("Who?"),
    ]
    wanted = said(server, talk, max_tokens=12, **GREEDY)
    parts = [{"type": "input_text", "text": "Wh"}, {"type": "input_text", "text": "o?"}]
    rest = [*user("Hi"), *first.output, {"type": "message", "role": "user", "content": parts}]
    for fields in (
        {"asked": talk},
        {"asked": talk[1:], "instructions": "Be good"},
        {"asked": [{"role": "developer", "content": "Be good"}, *rest]},
        {"asked": rest, "instructions": "Be good", "metadata": {"a": "b"}},
    ):
        found = ask_gpt(gpt, **fields, **GREEDY)
        assert found.output_text == wanted
        assert (found.instructions, found.metadata) == (fields.get("instructions"), fields.get("metadata", {}))


def test_openai_is_told_why_a_response_ended(gpt, server):
    whole = said(server, user("Hi"), max_tokens=12, **GREEDY)
    cut = ask_gpt(gpt, "Hi", 5, **GREEDY)
    assert (cut.status, cut.incomplete_details.reason, cut.output[0].status) == (
        "incomplete",
        "max_output_tokens",
        "incomplete",
    )
    assert cut.output_text == whole[:5] and cut.max_output_tokens == 5
    stopped = ask_gpt(gpt, "Hi", stop=[whole[7]], **GREEDY)
    assert (stopped.status, stopped.incomplete_details, stopped.output[0].status) == ("completed", None, "completed")
    assert stopped.output_text == whole[: whole.index(whole[7])]


def test_openai_is_told_that_nothing_was_said(gpt, server):
    """The events have an item where the whole answer has one."""
    whole = said(server, user("Hi"), max_tokens=12, **GREEDY)
    assert ask_gpt(gpt, "Hi", stop=[whole[0]], **GREEDY).output_text == ""


def test_openai_is_told_log_probabilities_in_responses(gpt, server):
    fields = {"max_tokens": 12, "logprobs": True, "top_logprobs": 3} | SAMPLED
    wanted = choice(server.chat(user("Hi"), **fields))
    found = ask_gpt(gpt, "Hi", include=CHANCES, top_logprobs=3, **SAMPLED)
    (part,) = found.output[0].content
    assert [each.to_dict() for each in part.logprobs] == wanted["logprobs"]["content"]
    bare = ask_gpt(gpt, "Hi", include=CHANCES, **SAMPLED).output[0].content[0].logprobs
    assert [each.to_dict() for each in bare] == [each | {"top_logprobs": []} for each in wanted["logprobs"]["content"]]
    assert not ask_gpt(gpt, "Hi", top_logprobs=3, **SAMPLED).output[0].content[0].logprobs


def test_openai_is_told_log_probabilities_of_text_that_was_held_back(gpt, server):
    """The deltas have those of all tokens, also of one that might have begun a stop text."""
    whole = said(server, user("Hi"), max_tokens=12, **SAMPLED)
    stops = [whole[0] + "\x01", whole[5] + "\x01"]
    part = ask_gpt(gpt, "Hi", include=CHANCES, stop=stops, **SAMPLED).output[0].content[0]
    assert "".join(each.token for each in part.logprobs) == part.text == whole


def test_openai_is_told_thoughts_in_an_item_of_their_own(openai, client_of, thinker):
    client = client_of(openai, thinker)
    wanted = thinker.chat(user("why"), max_tokens=20, **THINKS)
    message = choice(wanted)["message"]
    assert message["reasoning_content"] and message["content"]
    found = ask_gpt(client, "why", 20, **THINKS)
    thought, item = found.output
    assert (thought.type, thought.content[0].text) == ("reasoning", message["reasoning_content"])
    assert item.content[0].text == found.output_text == message["content"]
    reasoning = wanted["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert found.usage.output_tokens_details.reasoning_tokens == reasoning == len(message["reasoning_content"]) + 1
    again = client.responses.create(model="any", input=[*user("why"), *found.output, *user("so?")], max_output_tokens=1)
    talk = [*user("why"), {"role": "assistant", "content": message["content"]}, *user("so?")]
    assert again.usage.input_tokens == len(thinker.answer("/apply-template", {"messages": talk})["tokens"])


def test_openai_is_told_that_a_thought_was_cut(openai, client_of, thinker):
    found = ask_gpt(client_of(openai, thinker), "why", 2, **GREEDY)
    (thought,) = found.output
    assert (found.status, thought.type, thought.status) == ("incomplete", "reasoning", "incomplete")
    assert (found.output_text, found.usage.output_tokens_details.reasoning_tokens) == ("", 2)


def test_openai_is_told_log_probabilities_of_what_is_said_alone(openai, client_of, thinker):
    found = ask_gpt(client_of(openai, thinker), "why", 20, include=CHANCES, **THINKS)
    (part,) = found.output[-1].content
    assert "".join(each.token for each in part.logprobs) == part.text


def test_openai_sums_a_thought_in_the_middle_as_the_whole_answer(openai, client_of, thinker):
    found = ask_gpt(client_of(openai, thinker), "Hi", 40, **THINKS_BETWEEN)
    assert {each.type for each in found.output} == {"reasoning", "message"}


def test_openai_raises_what_responses_refuse(openai, gpt):
    for field, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True)):
        with pytest.raises(openai.BadRequestError, match="this server keeps no answers") as refused:
            gpt.responses.create(model="any", input="Hi", **{field: value})
        assert refused.value.param == field
    with pytest.raises(openai.BadRequestError, match="tools: this server does not call tools"):
        gpt.responses.create(model="any", input="Hi", tools=[{"type": "web_search"}])
    with pytest.raises(openai.BadRequestError, match="expected at most 512 tokens") as refused:
        gpt.responses.create(model="any", input="a" * 513, stream=True)
    assert (refused.value.param, refused.value.code) == ("input", "context_length_exceeded")
    for call in (gpt.responses.retrieve, gpt.responses.delete):
        with pytest.raises(openai.NotFoundError):
            call("resp_1")


def test_openai_lists_and_chooses_models(openai, client_of, both):
    client = client_of(openai, both)
    assert [each.id for each in client.models.list()] == ["small", "other/2"]
    assert [each.id for each in map(client.models.retrieve, ("other/2", "small"))] == ["other/2", "small"]
    calls = [
        lambda name: client.responses.create(model=name, input="Hi", max_output_tokens=3),
        lambda name: client.chat.completions.create(model=name, messages=user("Hi"), max_tokens=3),
        lambda name: client.completions.create(model=name, prompt="Hi", max_tokens=3),
    ]
    for call in calls:
        assert [call(name).model for name in ("small", "other/2")] == ["small", "other/2"]
    for call in (client.models.retrieve, *calls):
        with pytest.raises(openai.NotFoundError, match='expected one of "small", "other/2", got "none"') as refused:
            call("none")
        assert (refused.value.param, refused.value.code) == ("model", "model_not_found")


# Clients that are tested where they are installed


def test_langchain_asks_openais_interface(server):
    package = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    base = {"model": "any", "base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "none", "max_retries": 0}
    prompts = ["Hi", "Who?", "Water", "a"]
    wanted = [said(server, user(prompt), max_tokens=12, **SAMPLED) for prompt in prompts]
    assert len(set(wanted)) == 4
    for through_responses in (False, True):
        extra = {"extra_body": {"seed": 3}} if through_responses else {"seed": 3}
        chat = package.ChatOpenAI(**base, **extra, temperature=0.9, max_tokens=12, use_responses_api=through_responses)
        assert [chat.invoke(prompt).text for prompt in prompts] == wanted
        assert "".join(piece.text for piece in chat.stream("Hi")) == wanted[0]
        assert [each.text for each in chat.batch(prompts, config={"max_concurrency": 4})] == wanted


def test_langchain_asks_anthropics_interface(server):
    package = pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")
    chat = package.ChatAnthropic(
        model="any",
        base_url=f"http://127.0.0.1:{server.port}",
        api_key="none",
        max_retries=0,
        max_tokens=12,
        temperature=0,
    )
    wanted = said(server, [{"role": "system", "content": "Be"}, *user("Hi")], max_tokens=12, **GREEDY)
    asked = [("system", "Be"), ("user", "Hi")]
    assert chat.invoke(asked).text == wanted
    assert "".join(piece.text for piece in chat.stream(asked)) == wanted


def write_letters_tokenizer(folder) -> None:
    """A folder from which transformers reads the tokenizer of the small models."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: i for i, token in enumerate(letters())}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.add_special_tokens(["<|end|>"])
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))


@pytest.mark.parametrize("side_by_side", [1, 4])
def test_lm_eval_scores_and_asks(server, served_model, answer, tmp_path, monkeypatch, side_by_side):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    pytest.importorskip("tenacity", reason="tenacity is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    write_letters_tokenizer(tmp_path / "tokenizer")
    asked = LocalCompletionsAPI(
        model="any",
        base_url=f"http://127.0.0.1:{server.port}{COMPLETIONS}",
        tokenizer=str(tmp_path / "tokenizer"),
        tokenizer_backend="huggingface",
        max_length=512,
        num_concurrent=side_by_side,
        batch_size=2,
        max_retries=1,
    )
    questions = [
        {"context": f"q{'abcdefgh'[i:]}x", "choices": [f"x{c * (i + 1)}" for c in "aXq7"], "answer": i % 4}
        for i in range(8)
    ]
    lines = tmp_path / "task.jsonl"
    lines.write_text("\n".join(map(json.dumps, questions)))
    task = ConfigurableTask(
        config={
            **{"task": "local", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(lines)}}},
            **{"output_type": "multiple_choice", "test_split": "test", "target_delimiter": " "},
            **{"doc_to_text": "{{context}}", "doc_to_choice": "{{choices}}", "doc_to_target": "answer"},
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        }
    )
    found = lm_eval.evaluate(asked, {"local": task}, bootstrap_iters=0)["results"]["local"]
    spaced = [each | {"choices": [f" {one}" for one in each["choices"]]} for each in questions]
    lines.write_text("\n".join(map(json.dumps, spaced)))
    assert found["acc,none"] == answer("evaluate", served_model, "--choices", lines)["accuracy"]

    greedy = choice(server.complete("Water", max_tokens=5, **GREEDY))["text"]
    pairs = [("Water", greedy), ("Water", greedy[:-1] + "#"), ("Ice", "berg")]
    scores = asked.loglikelihood([Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)])
    assert [is_greedy for _, is_greedy in scores] == [True, False, False]
    for (score, _), (context, continuation) in zip(scores, pairs, strict=True):
        told = choice(server.complete(context + continuation, echo=True, logprobs=1, max_tokens=0))["logprobs"]
        assert score == pytest.approx(sum(told["token_logprobs"][len(context) :]), abs=1e-9)
    asks = [(prompt, {"until": ["\x01"], "max_gen_toks": 9}) for prompt in ("Water", "Ice", "a")]
    texts = asked.generate_until([Instance("generate_until", {}, each, i) for i, each in enumerate(asks)])
    assert texts == [choice(server.complete(prompt, max_tokens=9, **GREEDY))["text"] for prompt, _ in asks]
