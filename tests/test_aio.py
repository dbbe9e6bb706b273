"""Check that an event loop lives on while long prompts are encoded."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tokcache import CachedTokenizer, TokenIds
from tokcache.aio import MIN_CHARS

from . import data
from .checks import InnerCalls, raw_ids
from .toys import special, toy

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LONG = "<s>" + "foo hello " * MIN_CHARS
TEXTS = ["<s>hello", "hello", "", LONG, LONG + "<s>a", "x " * MIN_CHARS, "<s>hello<s>"]


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"), template="<s> $A")


class Threads:
    """Note in which thread each text is encoded."""

    def __init__(self, cached: CachedTokenizer) -> None:
        self.of: dict[str, threading.Thread] = {}
        InnerCalls(cached, before=self._note)

    def _note(self, text: str) -> None:
        self.of[text] = threading.current_thread()


def test_the_ids_are_those_of_encode() -> None:
    async def check() -> None:
        cached, raw = CachedTokenizer(build()), build()
        for flag in (None, True, False, None):
            for text in TEXTS * 2:
                got = await cached.aencode(text, add_special_tokens=flag)
                assert isinstance(got, TokenIds)
                assert got.ids == raw_ids(raw, text, special=flag is not False)
        stats, other = cached.cache_stats(), CachedTokenizer(build())
        for flag in (None, True, False, None):
            for text in TEXTS * 2:
                other.encode(text, add_special_tokens=flag)
        assert stats == other.cache_stats()

    asyncio.run(check())


def test_what_is_long_is_encoded_in_a_thread_and_what_is_cached_is_not() -> None:
    async def check() -> None:
        cached = CachedTokenizer(build())
        threads = Threads(cached)
        await cached.aencode("<s>hello")
        assert set(threads.of.values()) == {threading.main_thread()}
        for text in (LONG, "y " * MIN_CHARS):
            threads.of.clear()
            await cached.aencode(text)
            found = set(threads.of.values())
            assert found
            assert threading.main_thread() not in found
        for _ in range(2):
            await cached.aencode(LONG)  # a long tail is kept at its second sighting
        threads.of.clear()
        await cached.aencode(LONG)
        assert not threads.of
        await cached.aencode(LONG.replace("foo", "<s>", 1))
        assert threading.main_thread() not in threads.of.values()

    asyncio.run(check())


def test_the_loop_runs_on_while_an_encode_is_under_way() -> None:
    """B69: the encode ends only after the loop has run other work: without a clock."""

    async def check() -> None:
        cached = CachedTokenizer(build())
        beats = threading.Semaphore(0)
        seen: list[bool] = []

        def wait(_: str) -> None:
            seen.extend(beats.acquire(timeout=60) for _ in range(20))

        await cached.aencode("<s>a")  # its first trial has calls of its own
        InnerCalls(cached, before=wait)

        async def beat() -> None:
            while True:
                await asyncio.sleep(0)
                beats.release()

        heart = asyncio.create_task(beat())
        ids = await cached.aencode(LONG)
        heart.cancel()
        assert ids == raw_ids(build(), LONG, special=True)
        assert seen
        assert all(seen)

    asyncio.run(check())


@pytest.mark.parametrize("family", data.families()[:2])
def test_many_at_once(family: str) -> None:
    """Prompts that share prefixes, all under way together, each its own ids."""
    raw = data.load_family(family)
    cached = CachedTokenizer(data.load_family(family))
    prompts = [
        data.render(family, talk[: end + 1]) * 4
        for talk in data.conversations("own", 5)
        for end in range(len(talk))
    ]

    async def check() -> None:
        for _ in range(2):
            found: Any = await asyncio.gather(*map(cached.aencode, prompts))
            for text, ids in zip(prompts, found, strict=True):
                assert ids.ids == raw.encode(text).ids

    asyncio.run(check())


def test_options_and_live_settings() -> None:
    """What passes through, and what is cut, has the inner tokenizer's answer."""

    async def check() -> None:
        raw, inner = build(), build()
        cached = CachedTokenizer(inner, verify=1.0)
        got: Any = await cached.aencode(LONG, pair="a")
        assert got.ids == raw.encode(LONG, "a").ids
        for tokenizer in (raw, inner):
            tokenizer.enable_truncation(9)
        for text in TEXTS:
            assert (await cached.aencode(text)).ids == raw.encode(text).ids
        with pytest.raises(TypeError, match="no_such_option"):
            await cached.aencode(LONG, no_such_option=1)
        with pytest.raises(TypeError, match="must be a str"):
            await cached.aencode(7)  # type: ignore[arg-type]

    asyncio.run(check())


def test_an_encode_that_fails_stores_nothing() -> None:
    async def check() -> None:
        cached = CachedTokenizer(build())
        with pytest.raises(Exception) as want:  # noqa: PT011 - whatever it is
            cached.encode(LONG + "\ud800")
        with pytest.raises(type(want.value)):
            await cached.aencode(LONG + "\ud800")
        assert cached.cache_stats().entries == 0
        got = await cached.aencode(LONG)
        assert got == raw_ids(build(), LONG, special=True)

    asyncio.run(check())


def test_who_is_cancelled_leaves_the_cache_whole() -> None:
    async def check() -> None:
        cached = CachedTokenizer(build())
        started, go = threading.Event(), threading.Event()

        def wait(text: str) -> None:
            if len(text) >= MIN_CHARS:
                started.set()
                go.wait(60)

        InnerCalls(cached, before=wait)
        task = asyncio.create_task(cached.aencode(LONG))
        await asyncio.to_thread(started.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        for _ in range(2):
            ids = await cached.aencode(LONG)
            assert ids == raw_ids(build(), LONG, special=True)

    asyncio.run(check())


def test_observers_are_told() -> None:
    async def check() -> None:
        told: list[tuple[int, int]] = []
        cached = CachedTokenizer(
            build(),
            on_tokens=lambda use: told.append((use.cached_tokens, use.uncached_tokens)),
        )
        for text in ("<s>hello", LONG, "<s>hello"):
            ids: Any = await cached.aencode(text)
            assert sum(told[-1]) == len(ids)
        assert len(told) == 3
        assert told[-1][1] == 0

    asyncio.run(check())


def test_the_flag_is_checked_and_given_as_in_encode() -> None:
    class WithAnOption:
        """Know an option, but no ``add_special_tokens``."""

        def encode(self, text: str, *, upper: bool = False) -> list[int]:
            return [ord(letter) for letter in (text.upper() if upper else text)]

        def decode(self, ids: list[int]) -> str:
            return "".join(map(chr, ids))

    async def check() -> None:
        cached = CachedTokenizer(build())
        for text in (TEXTS[0], LONG):
            for wrong in (1, 0, "yes"):
                with pytest.raises(TypeError, match="add_special_tokens must be"):
                    await cached.aencode(text, add_special_tokens=wrong)  # type: ignore[arg-type]
        assert not cached.cache_stats().misses
        generic = CachedTokenizer(WithAnOption(), ["#"])
        assert await generic.aencode("a#b", upper=True) == generic.encode(
            "a#b", upper=True
        )

    asyncio.run(check())
