"""Conversations of every kind that templates distinguish."""

SYSTEM = {"role": "system", "content": "You are helpful."}
USER = {"role": "user", "content": "Hello <|im_end|> \u00e9\u4f60\U0001f600"}
ANSWER = {"role": "assistant", "content": "Hi."}
PROPERTIES = {
    "city": {"type": "string", "description": "A city"},
    "days": {"type": "integer"},
    "unit": {"type": "string", "enum": ["C", "F"]},
}
WEATHER = {
    "name": "get_weather",
    "description": 'Weather of a "city".',
    "parameters": {"type": "object", "properties": PROPERTIES, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": WEATHER}]


def call(arguments, content: str | None = "") -> dict:
    function = {"name": "get_weather", "arguments": arguments}
    calls = [{"id": "abc123456", "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abc123456", "content": "22 degrees"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nAnswer", "reasoning_content": "hm"}
PICTURE = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image"}]}
PARTS = [
    {"role": "system", "content": [{"type": "text", "text": "sys"}]},
    {"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]},
]
EMPTY = [{"role": "user", "content": ""}, {"role": "assistant", "content": None}, USER]

CONVERSATIONS = {
    "a question": {"messages": [USER]},
    "a system's words": {"messages": [SYSTEM, USER]},
    "several turns": {"messages": [SYSTEM, USER, ANSWER, USER, ANSWER, USER]},
    "an answer at the end": {"messages": [USER, ANSWER], "prompt": False},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS},
    "a call": {"messages": [USER, call({"city": "Paris", "days": 2}), RESULT], "tools": TOOLS},
    "a call and no content": {"messages": [USER, call({"city": "a\n"}, None), RESULT], "tools": TOOLS},
    "a call as text": {
        "messages": [SYSTEM, USER, call('{"city": "Paris"}'), RESULT, ANSWER, USER],
        "tools": TOOLS,
    },
    "a thought": {"messages": [USER, THOUGHT, USER]},
    "thoughts by other names": {
        "messages": [
            USER,
            {"role": "assistant", "content": "b", "thinking": "t"},
            USER,
            {"role": "assistant", "reasoning": "r", "thinking": None, "content": "c"},
            USER,
        ],
    },
    "a picture": {"messages": [PICTURE]},
    "parts": {"messages": PARTS},
    "empty content": {"messages": EMPTY},
    "no message": {"messages": []},
    "no thinking": {"messages": [SYSTEM, USER], "enable_thinking": False},
    "two questions": {"messages": [USER, USER]},
}
