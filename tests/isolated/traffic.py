"""Make small caches, and texts for them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.toys import special, toy
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXT = "<s>hello</s>foo"
SMALL = 2048
_numbers = itertools.count(10_000)


class Plain:
    """Be a tokenizer in Python: between two bytecodes a thread may be stopped."""

    def encode(self, text: str) -> Any:
        marks = {"<s>": 1, "</s>": 2}
        for mark in marks:
            text = text.replace(mark, f"\0{mark}\0")
        ids: list[int] = []
        for part in text.split("\0"):
            ids += [marks[part]] if part in marks else map(ord, part)
        return ids

    def decode(self, ids: list[int]) -> str:
        return str(ids)


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"), template="<s> $A")


def new_number() -> int:
    """Return a number that no text had yet."""
    return next(_numbers)


def new_text() -> str:
    """Return a text that was never seen."""
    return f"<s>hello{new_number()}</s>foo<s>{new_number()}"


def wrapper(**settings: Any) -> CachedTokenizer:
    """Make one that is full after a few texts."""
    return CachedTokenizer(build(), max_memory_bytes=SMALL, **settings)


def warm(cached: CachedTokenizer) -> CachedTokenizer:
    """Fill it, so that only what comes in goes out."""
    for _ in range(200):
        cached.encode(new_text())
    assert cached.cache_stats().evictions
    return cached
