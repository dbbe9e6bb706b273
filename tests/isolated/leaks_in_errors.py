"""What goes wrong in a cache, again and again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from tests.allocator import Allocator
from tests.isolated.growth import Operation, leaves_nothing
from tests.isolated.traffic import (
    SMALL,
    TEXT,
    Plain,
    build,
    new_number,
    new_text,
    wrapper,
)
from tokcache import CachedTokenizer, SharedTokenizerCache, TokenIds
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker


class Odd:
    """Be no id, and no list of them."""

    def __index__(self) -> int:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


@leaves_nothing()
def wrong_arguments() -> Operation:
    cached: Any = wrapper()
    shared: Any = SharedTokenizerCache()
    number: Any = 5

    def operation() -> None:
        for call in (
            lambda: cached.encode(5),
            lambda: cached.encode(TEXT, add_special_tokens="yes"),
            lambda: cached.encode(TEXT, no_such_option=1),
            lambda: cached.encode_batch("text"),
            lambda: cached.encode_batch([TEXT, None]),
            lambda: cached.encode_batch_flat([5]),
            lambda: cached.count(None),
            lambda: cached.encode_segments([5]),
            lambda: cached.no_such_attribute,
            lambda: CachedTokenizer(object()),
            lambda: CachedTokenizer(cached.inner, ["<none>"]),
            lambda: CachedTokenizer(cached.inner, max_memory_bytes=-1),
            lambda: CachedTokenizer.with_cache(cached.inner, None, shared, number),
        ):
            with suppress(TypeError, ValueError, AttributeError):
                call()

    return operation


class Failing(Plain):
    """Raise in the middle of an encode, or return nonsense."""

    def __init__(self) -> None:
        self.result: Any = None

    def encode(self, text: str) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return super().encode(text) if self.result is None else self.result


@leaves_nothing(rounds=10)  # making a wrapper of an unknown library takes long
def inner_errors() -> Operation:
    inner = Failing()

    def operation() -> None:
        # A new one: it turns off after eight answers that cannot be.
        cached = CachedTokenizer(inner, ["<s>", "</s>"], max_memory_bytes=SMALL)
        cached.encode(TEXT)
        assert cached.cache_stats().entries
        for result in (
            RuntimeError("inner"),
            5,
            ["not an id"],
            [1, Odd()],
            [2**40],
            [-1],
            b"123",
            np.array([1.5]),
        ):
            inner.result = result
            with suppress(Exception):
                cached.encode(new_text())
            with suppress(Exception):
                cached.encode_batch([new_text(), TEXT])
        inner.result = None
        cached.encode(new_text())

    return operation


@leaves_nothing(rounds=20)
def refused_memory() -> Operation:
    allocator = Allocator()
    inner = build()
    walker = Walker(
        Trie(SMALL // 8, 10**6, hash_seed=1), None, Scanner([("#", 9, 1, True)])
    )
    walker.scanner.trust(0)

    def work() -> None:
        cached = CachedTokenizer(inner, max_memory_bytes=SMALL)
        cached.encode(TEXT)
        cached.encode(TEXT + "foo</s>")
        cached.encode_batch([TEXT, new_text()])
        TokenIds([1, 2, 3])[1:].tolist()
        plan = walker.lookup(f"a#{new_number()}#", False)
        if isinstance(plan, Plan):
            plan.feed(0, [9 if c == "#" else ord(c) for c in plan.run_text(0)])
            plan.finish()

    def operation() -> None:
        for after in range(0, 60, 3):
            allocator.fail(after)
            with suppress(MemoryError), allocator.armed():
                work()
        assert allocator.failed
        allocator.fail_no_more()

    return operation
