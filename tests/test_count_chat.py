"""Check that messages are counted as the prompt that they are rendered to."""

from __future__ import annotations

from typing import Any

import pytest

from tokcache import CachedTokenizer
from tokcache.chat import ChatError, ChatTemplate, chat_format, chat_formats, render

from . import data
from .toys import special, toy

MESSAGES = [
    {"role": "system", "content": "hello"},
    {"role": "user", "content": "foo hello"},
    {"role": "assistant", "content": "hello\n\n"},
]
TOOLS = [{"type": "function", "function": {"name": "foo", "parameters": {}}}]
JINJA = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build() -> Any:
    return toy(
        special("<s>"),
        special("<|im_start|>"),
        special("<|im_end|>"),
        template="<s> $A",
    )


@pytest.mark.parametrize("name", sorted(chat_formats()))
def test_a_named_format(name: str) -> None:
    cached = CachedTokenizer(build())
    for tools in (None, TOOLS):
        for generation in (False, True):
            text = render(MESSAGES, name, tools=tools, add_generation_prompt=generation)
            want = len(build().encode(text, add_special_tokens=False).ids)
            for _ in range(2):
                got = cached.count(
                    messages=MESSAGES,
                    template=name,
                    tools=tools,
                    add_generation_prompt=generation,
                )
                assert got == want


def test_a_jinja_template_and_a_renderer() -> None:
    cached = CachedTokenizer(build())
    own = ChatTemplate(JINJA)
    for template in (JINJA, own, chat_format("qwen3")):
        text = render(MESSAGES, own if template == JINJA else template)
        want = len(build().encode(text, add_special_tokens=False).ids)
        assert cached.count(messages=MESSAGES, template=template) == want
    text = own.render(MESSAGES, tools=TOOLS, add_generation_prompt=True)
    assert cached.count(
        messages=MESSAGES, template=JINJA, tools=TOOLS, add_generation_prompt=True
    ) == len(build().encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("template", ["qwen3", JINJA])
def test_messages_may_come_one_after_another(template: str) -> None:
    cached = CachedTokenizer(build())
    settings: dict[str, Any] = {"template": template, "tools": TOOLS}
    want = cached.count(messages=MESSAGES, **settings)
    assert cached.count(messages=iter(MESSAGES), **settings) == want


def test_special_tokens_are_added_if_asked_for() -> None:
    """A template writes its own, so by default they are not, as in transformers."""
    cached = CachedTokenizer(build())
    bare = cached.count(messages=MESSAGES, template="qwen3")
    for flag in (True, False):
        got = cached.count(messages=MESSAGES, template="qwen3", add_special_tokens=flag)
        assert got == bare + flag
    text = render(MESSAGES, "qwen3")
    assert cached.count(text) == bare + 1


def test_a_history_that_is_trimmed() -> None:
    """The job of an agent: drop the oldest turns until the rest fits."""
    family = data.families()[0]
    cached = CachedTokenizer(data.load_family(family))
    raw = data.load_family(family)
    talk = list(data.conversations("own", 1)[0])
    budget = cached.count(messages=talk, template="qwen3") // 2
    while (n := cached.count(messages=talk, template="qwen3")) > budget:
        want = raw.encode(render(talk, "qwen3"), add_special_tokens=False).ids
        assert n == len(want)
        talk = talk[1:]
    assert talk


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "sequence must be a str, or messages"),
        ({"add_generation_prompt": True}, "sequence must be a str, or messages"),
        ({"sequence": "a", "add_generation_prompt": True}, "takes a text, or messages"),
        ({"sequence": "a", "messages": MESSAGES}, "takes a text, or messages"),
        (
            {"sequence": "a", "messages": [], "template": "qwen3"},
            "takes a text, or messages",
        ),
        ({"sequence": "a", "template": "qwen3"}, "takes a text, or messages"),
        ({"template": "qwen3"}, "sequence must be a str, or messages"),
        ({"tools": TOOLS}, "sequence must be a str, or messages"),
        ({"messages": MESSAGES}, "needs a template"),
        ({"messages": "hello", "template": "qwen3"}, "got str"),
        ({"messages": MESSAGES[0], "template": "qwen3"}, "got dict"),
        ({"messages": 5, "template": "qwen3"}, "got int"),
        ({"messages": MESSAGES, "template": 5}, "method render, got int"),
    ],
)
def test_what_is_to_be_counted_must_be_clear(
    arguments: dict[str, Any], message: str
) -> None:
    cached = CachedTokenizer(build())
    with pytest.raises(TypeError, match=message):
        cached.count(**arguments)
    assert cached.cache_stats().misses == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"messages": MESSAGES, "template": "no such format"}, "unknown chat format"),
        ({"messages": MESSAGES, "template": "{% if %}"}, "line 1"),
        ({"messages": [{"role": "x"}], "template": "qwen3"}, "no role 'x'"),
        ({"messages": [*MESSAGES, 1], "template": "qwen3"}, "message 4 is not"),
        ({"messages": ["hello"], "template": "qwen3", "tools": TOOLS}, "message 1"),
        ({"messages": [1], "template": "{{ messages[0].role.x }}"}, "no attribute"),
        (
            {"messages": MESSAGES, "template": "{{ raise_exception('no') }}"},
            "no",
        ),
    ],
)
def test_what_cannot_be_rendered(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ChatError, match=message):
        CachedTokenizer(build()).count(**arguments)
