"""Check what messages are written as."""

# ruff: noqa: RUF001 - the tokens of DeepSeek have full-width bars

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tokcache.chat import (
    ChatError,
    ChatTemplate,
    chat_format,
    chat_formats,
    render,
    turns,
)

from .data import DATA

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENIZERS = DATA / "tokenizers"

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Zürich?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Zürich"}'},
            }
        ],
    },
    {"role": "tool", "content": "18 °C", "tool_call_id": "1"},
    {"role": "assistant", "content": "18 °C."},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_plain_format_writes_each_role() -> None:
    assert render(TALK[:2], "qwen3", add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWeather in Zürich?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(TALK, "deepseek_v4") == (
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Weather in Zürich?<｜Assistant｜>"
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
        '{"city": "Zürich"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>18 °C<｜tool▁output▁end｜>"
        "<｜tool▁outputs▁end｜><｜Assistant｜>18 °C.<｜end▁of▁sentence｜>"
    )


def test_tools_join_the_system_message_or_are_one() -> None:
    line = json.dumps(TOOLS[0])
    assert f"Be brief.\n\n# Tools\n\n{line}<|im_end|>" in render(
        TALK, "qwen3", tools=TOOLS
    )
    assert render(TALK[1:2], "qwen3", tools=TOOLS).startswith(
        f"<|im_start|>system\n# Tools\n\n{line}<|im_end|>\n<|im_start|>user"
    )


def test_contents_may_be_null_or_text_parts_and_arguments_an_object() -> None:
    messages: list[dict[str, Any]] = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "a"}, {"text": "b"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"name": "f", "arguments": {"ü": 1}}],
        },
    ]
    assert render(messages, "llama3") == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nab<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        '{"name": "f", "parameters": {"ü": 1}}<|eot_id|>'
    )


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "robot", "content": "x"}, "no role 'robot' in the chat format phi2"),
        ({"content": "x"}, "no role None"),
        ({"role": "user", "content": 3}, "content must be a string"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "got 'image_url'"),
        ({"role": "user", "content": [7]}, "only text parts"),
        ({"role": "assistant", "tool_calls": [{}]}, "no function name"),
        ({"role": "assistant", "tool_calls": [None]}, "no function name"),
    ],
)
def test_a_message_that_cannot_be_written_is_named(
    message: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ChatError, match=complaint):
        render([message], "phi2")


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(ChatError, match=r"'nope' \(known: .*deepseek_v4.*qwen3\)"):
        chat_format("nope")


@pytest.mark.parametrize("name", sorted(chat_formats()))
def test_a_longer_conversation_begins_with_a_shorter_one(name: str) -> None:
    shorter = render(TALK[:2], name)
    assert render(TALK, name).startswith(shorter)
    prompt = render(TALK[:2], name, add_generation_prompt=True)
    assert prompt == shorter + chat_format(name).generation
    for message in TALK:
        assert message["content"] in render(TALK, name)


def test_plain_formats_agree_with_the_shared_ones() -> None:
    path = TOKENIZERS / "chat_formats.json"
    if not path.is_file():
        pytest.skip("no shared data")
    shared = json.loads(path.read_text("utf-8"))
    shared["kimi_k2"] = shared["kimi_k2_tiktoken"]
    for name, ours in chat_formats().items():
        assert ours.bos == shared[name]["bos"], name
        assert ours.generation == shared[name]["generation"], name
        for role, around in ours.roles.items():
            assert list(around) == shared[name][role], name


def test_turns_are_the_prompts_before_each_answer_and_the_whole() -> None:
    assert [
        (len(each.messages), each.add_generation_prompt) for each in turns(TALK)
    ] == [
        (2, True),
        (4, True),
        (5, False),
    ]
    assert list(turns([])) == []
    # An answer to nothing had no prompt.
    assert [len(each.messages) for each in turns(TALK[2:4])] == [2]


def test_a_template_gets_what_transformers_gives_it() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ eos_token is defined }}|{{ tools }}|{{ documents }}|"
        "{{ add_generation_prompt }}|{{ flag }}|{{ {'k': '<é>'} | tojson }}|"
        "{{ {'k': 1} | tojson(indent=1) }}|{{ strftime_now('%Y') | length }}",
        bos_token="<s>",  # noqa: S106 - no password
    )
    assert template.render([], flag=7) == (
        '<s>False|None|None|False|7|{"k": "<é>"}|{\n "k": 1\n}|4'
    )


def test_template_blocks_take_their_line_with_them_and_loops_can_be_left() -> None:
    template = ChatTemplate(
        "{% for m in messages %}\n"
        "    {% if m.role == 'tool' %}\n"
        "        {% continue %}\n"
        "    {% endif %}\n"
        "{{ m.role }}\n"
        "    {% if m.role == 'user' %}{% break %}{% endif %}\n"
        "{% endfor %}\n"
    )
    assert template.render(TALK) == "system\nuser\n"


def test_a_generation_block_keeps_its_text() -> None:
    template = ChatTemplate("a{% generation %}{{ 1 + 1 }}{% endgeneration %}b")
    assert template.render([]) == "a2b"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("\n{% if %}", "chat template, line 2: "),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[9].content.x }}", "chat template: "),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_a_failing_template_says_why(source: str, complaint: str) -> None:
    with pytest.raises(ChatError, match=complaint):
        ChatTemplate(source).render(TALK)


def test_arguments_are_a_string_or_an_object_as_the_template_wants() -> None:
    call = "messages[2].tool_calls[0].function.arguments"
    as_string = ChatTemplate(f"{{{{ 'args: ' + {call} }}}}")
    assert as_string.render(TALK) == 'args: {"city": "Zürich"}'
    as_object = ChatTemplate(
        f"{{% for k, v in {call}.items() %}}{{{{ k }}}}={{{{ v }}}}{{% endfor %}}"
    )
    assert as_object.render(TALK) == "city=Zürich"


def test_render_takes_a_template() -> None:
    assert render(TALK[:1], ChatTemplate(CHATML)) == render(TALK[:1], "qwen3")


def test_without_jinja_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from tokcache.chat import ChatTemplate, render\n"
        "render([{'role': 'user', 'content': 'plain formats work'}], 'qwen3')\n"
        "ChatTemplate('x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: chat templates need jinja2: pip install 'tokcache[cli]'"
    )


def _unpacked(family: str, file: str) -> str | None:
    path = TOKENIZERS / family / file
    return gzip.decompress(path.read_bytes()).decode() if path.is_file() else None


def _real_template(family: str) -> ChatTemplate:
    source = _unpacked(family, "chat_template.jinja.gz")
    config = json.loads(_unpacked(family, "tokenizer_config.json.gz") or "{}")
    source = source or config.get("chat_template")
    if source is None:
        pytest.skip(f"no chat template of {family} here")
    bos = config.get("bos_token")
    return ChatTemplate(source, bos_token=bos["content"] if bos else None)


QWEN3 = (
    "<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call one or more functions to"
    " assist with the user query.\n\nYou are provided with function signatures within"
    " <tools></tools> XML tags:\n<tools>\n"
    '{"type": "function", "function": {"name": "weather", "parameters": {}}}\n'
    "</tools>\n\nFor each function call, return a json object with function name and"
    " arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    "<|im_end|>\n<|im_start|>user\nWeather in Zürich?<|im_end|>\n"
    '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments":'
    ' {"city": "Zürich"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n<tool_response>\n18 °C\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n"
)
DEEPSEEK_R1 = (
    "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Weather in Zürich?<｜Assistant｜>"
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
    '```json\n{"city": "Zürich"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    "<｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>18 °C"
    "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
)
GLM_4_7_FLASH_END = (
    "<|system|>Be brief.<|user|>Weather in Zürich?<|assistant|></think>"
    "<tool_call>weather<arg_key>city</arg_key><arg_value>Zürich</arg_value></tool_call>"
    "<|observation|><tool_response>18 °C</tool_response><|assistant|><think>"
)


@pytest.mark.parametrize(
    ("family", "matches", "expected"),
    [
        ("qwen3", str.__eq__, QWEN3),
        ("deepseek_r1", str.__eq__, DEEPSEEK_R1),
        ("glm_4_7_flash", str.endswith, GLM_4_7_FLASH_END),
    ],
)
def test_real_templates(
    family: str, matches: Callable[[str, str], bool], expected: str
) -> None:
    prompt = _real_template(family).render(
        TALK[:4], tools=TOOLS, add_generation_prompt=True
    )
    assert matches(prompt, expected), prompt
