"""Prompts to measure with: real text, real tokenizers, the same in every run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tests import data

if TYPE_CHECKING:
    from collections.abc import Iterator

SEGMENTS = 200
CHARACTERS_A_MESSAGE = 600


def family() -> str:
    """Name the tokenizer that is measured: DeepSeek-V4 where it can be had."""
    known = data.families()
    return "deepseek_v4" if "deepseek_v4" in known else known[0]


def _messages() -> Iterator[data.Message]:
    """Yield real messages, endlessly, from the source with the longest talks."""
    files = data.conversation_files()
    source = next((file for file in files if file.startswith("tau_")), files[0])
    while True:
        for talk in data.conversations(source):
            yield from talk


@functools.cache
def chat(segments: int = SEGMENTS) -> str:
    """Return a chat prompt with so many boundaries and, by default, some 60 kB."""
    form = data.chat_format(family())
    parts = [form.bos]
    for i, message in zip(range(segments), _messages(), strict=False):
        before, after = form.around[("user", "assistant")[i % 2]]
        text = message["content"][:CHARACTERS_A_MESSAGE]
        parts += (before, text, after)
    return "".join(parts)
