"""Hits of every kind that are ready in a moment: for profilers, which slow all down.

The wrapper is the real one; its cache is filled with made-up ids, because a real
tokenizer takes minutes to load under valgrind.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import driven
from tests.toys import special, token_id, toy
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENTS = 200
CHARACTERS = 62_000


@dataclass(frozen=True)
class Hit:
    """Hold one kind: calling it once makes one hit."""

    name: str
    call: Callable[[], object]


def wrapper(*texts: str) -> CachedTokenizer:
    """Return a wrapper that has these texts in its cache."""
    inner = toy(special(driven.MARKER))
    cached = CachedTokenizer(inner)
    walker = cached._state.walker
    walker.scanner.trust(0)
    marker_id = token_id(inner, driven.MARKER)
    for text in texts:
        for _ in range(2):
            driven.encode(walker, text, marker_id)
    return cached


def long_text() -> str:
    return driven.conversation(0, SEGMENTS, CHARACTERS)


def short_text() -> str:
    """Return 200 characters: two segments and a tail."""
    return driven.conversation(0, 2, 160) + "a" * 40


def _of(name: str, text: str) -> Hit:
    cached = wrapper(text)
    return Hit(name, lambda: cached.encode(text))


def hits() -> list[Hit]:
    """Make all kinds."""
    text = long_text()
    wide = text + "😀"
    plain = wrapper(text)
    forks = [text[: CHARACTERS // 2] + first + text for first in "xy"]
    forked = wrapper(*forks)
    turns = itertools.cycle(forks)
    return [
        _of("200 segments, ASCII", text),
        _of("200 segments, two bytes a character", text.replace("a", "中")),
        _of("200 segments, four bytes a character", text.replace("a", "😀")),
        Hit("200 segments, as a list", lambda: plain.encode(text).ids),
        Hit("200 segments, counted", lambda: plain.count(text)),
        _widened(text, wide),
        Hit("300 segments, two forks in turn", lambda: forked.encode(next(turns))),
        _of("3 segments, 200 characters", short_text()),
    ]


def _widened(text: str, wide: str) -> Hit:
    """Compare segments that were stored in one byte a character with a wider text."""
    cached = wrapper(text, wide)
    return Hit("200 ASCII segments in a wider text", lambda: cached.encode(wide))
