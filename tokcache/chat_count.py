"""The text of messages that are to be counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tokcache.chat import ChatTemplate, render


def rendered(sequence: str | None, options: dict[str, Any]) -> str:
    """Return the prompt of messages; ``TypeError`` if it is not clear which.

    What it needs is taken out of the options of the call.
    """
    messages = options.pop("messages", None)
    template = options.pop("template", None)
    tools = options.pop("tools", None)
    add_generation_prompt = options.pop("add_generation_prompt", False)
    if sequence is not None:
        raise TypeError("count takes a text, or messages with what belongs to them")
    if messages is None:
        raise TypeError("sequence must be a str, or messages and a template given")
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(
        messages, Iterable
    ):
        msg = f"messages must be a list of messages, got {type(messages).__name__}"
        raise TypeError(msg)
    if template is None:
        raise TypeError(
            "count needs a template for messages: the name of a format, a Jinja chat "
            "template, or what has a method render"
        )
    if not isinstance(template, str) and not hasattr(template, "render"):
        msg = (
            "template must be the name of a format, a Jinja chat template, or have a "
            f"method render, got {type(template).__name__}"
        )
        raise TypeError(msg)
    return render(
        list(messages),
        _compiled(template)
        if isinstance(template, str) and is_jinja(template)
        else template,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
    )


def is_jinja(template: str) -> bool:
    """Tell a Jinja template from the name of a format."""
    return "{%" in template or "{{" in template


@lru_cache(maxsize=16)
def _compiled(source: str) -> ChatTemplate:
    """Return a template, compiled once: that takes longer than most prompts."""
    return ChatTemplate(source)
