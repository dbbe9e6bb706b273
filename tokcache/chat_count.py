"""The text of messages that are to be counted."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokcache.chat import ChatTemplate, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokcache.chat import Message, Renderer


def rendered(
    sequence: str | None,
    messages: Sequence[Message] | None,
    template: str | Renderer | None,
    tools: Sequence[Any] | None,
    add_generation_prompt: bool,  # noqa: FBT001 - all of one call
) -> str:
    """Return the prompt of messages; ``TypeError`` if it is not clear which."""
    if sequence is not None:
        raise TypeError("count takes a text or messages, not both")
    if messages is None:
        raise TypeError("count needs messages with a template or tools")
    if isinstance(messages, (str, bytes)):
        msg = f"messages must be a list of messages, got {type(messages).__name__}"
        raise TypeError(msg)
    if template is None:
        raise TypeError(
            "count needs a template for messages: the name of a format, a Jinja chat "
            "template, or what has a method render"
        )
    return render(
        messages,
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
