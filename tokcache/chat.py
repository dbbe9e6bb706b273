"""Turn messages into the prompts that a chat model is sent.

Two kinds of renderer with the same ``render`` method:

- :class:`ChatFormat`: a plain format, a prefix and a suffix for each role. It has the
  special tokens of a model family at the right places, without Jinja; it stands in
  for the family's own template in measurements and tests.
- :class:`ChatTemplate`: a model's own Jinja chat template, run in a sandbox with the
  filters and functions that ``transformers`` gives it. Needs ``jinja2``.

>>> print(render([{"role": "user", "content": "Hi"}], "qwen3"))
<|im_start|>user
Hi<|im_end|>
<BLANKLINE>
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

if TYPE_CHECKING:
    from jinja2 import Environment, nodes
    from jinja2.parser import Parser

__all__ = [
    "ChatError",
    "ChatFormat",
    "ChatTemplate",
    "Message",
    "Renderer",
    "Turn",
    "chat_format",
    "chat_formats",
    "render",
    "turns",
]

Message = Mapping[str, Any]
"""One message in OpenAI's form: ``role``, ``content``, perhaps ``tool_calls``."""

# Other names that APIs use for the roles of a format.
_ROLE_ALIASES = {"developer": "system", "function": "tool"}


class ChatError(ValueError):
    """Say why messages, a format or a template cannot be rendered."""


class Renderer(Protocol):
    """Make prompts of messages."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """Return the prompt's text."""
        ...


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Write messages in a plain format: fixed text around the content of each role."""

    name: str
    bos: str
    roles: Mapping[str, tuple[str, str]]
    tool_call: tuple[str, str, str]
    generation: str

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """Return the prompt's text.

        Tools follow the system message's content, one JSON object a line. Tool calls
        follow the assistant's content.
        """
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping):
                error = f'message {index + 1} is not an object with a "role"'
                raise ChatError(error)
        if tools:
            messages = _with_tools(messages, tools)
        parts = [self.bos]
        for message in messages:
            prefix, suffix = self._around(message)
            parts += (prefix, _text_of(message), *self._calls(message), suffix)
        if add_generation_prompt:
            parts.append(self.generation)
        return "".join(parts)

    def _around(self, message: Message) -> tuple[str, str]:
        role = message.get("role")
        around = self.roles.get(_ROLE_ALIASES.get(str(role), str(role)))
        if around is None:
            known = ", ".join(self.roles)
            error = f"no role {role!r} in the chat format {self.name} (known: {known})"
            raise ChatError(error)
        return around

    def _calls(self, message: Message) -> Iterator[str]:
        before, between, after = self.tool_call
        for call in message.get("tool_calls") or ():
            try:
                function = call.get("function", call)
                name, arguments = function["name"], function.get("arguments", "")
            except (AttributeError, KeyError, TypeError):
                error = "a tool call has no function name"
                raise ChatError(error) from None
            if not isinstance(arguments, str):
                arguments = _to_json(arguments)
            yield f"{before}{name}{between}{arguments}{after}"


def chat_formats() -> Mapping[str, ChatFormat]:
    """Return the plain formats that come with the package, by name."""
    return _formats()


def chat_format(name: str) -> ChatFormat:
    """Return the plain format of that name.

    Raises :class:`ChatError` with the known names if there is none.
    """
    try:
        return _formats()[name]
    except KeyError:
        known = ", ".join(_formats())
        error = f"unknown chat format {name!r} (known: {known})"
        raise ChatError(error) from None


def render(
    messages: Sequence[Message],
    format: str | Renderer,  # noqa: A002 - the word that users and the CLI have for it
    *,
    tools: Sequence[Any] | None = None,
    add_generation_prompt: bool = False,
) -> str:
    """Return the prompt's text in a format given by name, or by a renderer."""
    renderer = chat_format(format) if isinstance(format, str) else format
    return renderer.render(
        messages, tools=tools, add_generation_prompt=add_generation_prompt
    )


class Turn(NamedTuple):
    """Hold the messages of one prompt, and whether the model's answer is asked for."""

    messages: Sequence[Message]
    add_generation_prompt: bool


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """Yield the growing prompts of a conversation.

    One for each assistant message, as it was sent to the model to get that answer (the
    history and the generation prompt), and a last one with the whole conversation.
    An assistant message that begins the conversation had no prompt.
    """
    for index, message in enumerate(messages):
        if index and message.get("role") == "assistant":
            yield Turn(messages[:index], add_generation_prompt=True)
    if messages:
        yield Turn(messages, add_generation_prompt=False)


class ChatTemplate:
    """Write messages with a model's Jinja chat template.

    The template runs in Jinja's immutable sandbox: it can reach neither files nor
    modules, and it cannot change the messages.
    """

    def __init__(
        self, source: str, *, bos_token: str | None = None, eos_token: str | None = None
    ) -> None:
        environment = _environment()
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - an optional extra

        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as problem:
            error = f"chat template, line {problem.lineno}: {problem.message}"
            raise ChatError(error) from problem
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        # A token that the tokenizer lacks stays undefined, as templates test for it.
        self._tokens = {name: token for name, token in tokens.items() if token}

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        **variables: object,
    ) -> str:
        """Return the prompt's text.

        APIs give a tool call's arguments as a JSON string. Some templates want the
        string, others the object in it: they get the string, and the object if they
        fail on the string.
        """
        variables = {
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._tokens,
            **variables,
        }
        try:
            return self._render(messages, variables)
        except ChatError:
            decoded = [_with_decoded_arguments(message) for message in messages]
            if decoded == list(messages):
                raise
            return self._render(decoded, variables)

    def _render(
        self, messages: Sequence[Message], variables: Mapping[str, object]
    ) -> str:
        try:
            return self._template.render(messages=messages, **variables)
        except Exception as problem:
            error = f"chat template: {problem}"
            raise ChatError(error) from problem


@lru_cache(maxsize=1)
def _formats() -> Mapping[str, ChatFormat]:
    text = files(__package__).joinpath("chat_formats.json").read_text("utf-8")
    formats = {}
    for name, entry in json.loads(text).items():
        formats[name] = ChatFormat(
            name,
            entry["bos"],
            MappingProxyType(
                {
                    role: (entry[role][0], entry[role][1])
                    for role in ("system", "user", "assistant", "tool")
                }
            ),
            tuple(entry["tool_call"]),
            entry["generation"],
        )
    return MappingProxyType(formats)


def _with_tools(messages: Sequence[Message], tools: Sequence[Any]) -> Sequence[Message]:
    listing = "# Tools\n\n" + "\n".join(_to_json(tool) for tool in tools)
    if messages and messages[0].get("role") in ("system", "developer"):
        content = f"{_text_of(messages[0])}\n\n{listing}"
        return [{**messages[0], "content": content}, *messages[1:]]
    return [{"role": "system", "content": listing}, *messages]


def _text_of(message: Message) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(map(_text_of_part, content))
    error = f"content must be a string, a list of parts or null, got {content!r:.60}"
    raise ChatError(error)


def _text_of_part(part: object) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    error = f"only text parts can be rendered, got {kind!r:.60}"
    raise ChatError(error)


def _with_decoded_arguments(message: Message) -> Message:
    if not isinstance(message, Mapping):  # a template can read any object
        return message
    calls = message.get("tool_calls")
    if not isinstance(calls, Sequence):
        return message
    return {**message, "tool_calls": [_decoded(call) for call in calls]}


def _decoded(call: object) -> object:
    if not isinstance(call, Mapping):
        return call
    if "function" in call:
        return {**call, "function": _decoded(call["function"])}
    try:
        return {**call, "arguments": json.loads(call["arguments"])}
    except (KeyError, TypeError, ValueError):
        return call


def _to_json(
    value: object,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Return the environment that chat templates are written for."""
    try:
        from jinja2 import TemplateError, nodes  # noqa: PLC0415 - an optional extra
        from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        error = "chat templates need jinja2: pip install 'tokcache[cli]'"
        raise ModuleNotFoundError(error, name=problem.name) from problem

    class GenerationTag(Extension):
        """Accept ``{% generation %}``, which marks training data, and keep its text."""

        tags = {"generation"}  # noqa: RUF012 - so declared in Jinja

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def strftime_now(pattern: str) -> str:
        return datetime.now().astimezone().strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    # Not Jinja's own ``tojson``, which escapes for HTML.
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
