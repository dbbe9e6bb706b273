"""Check a cache over an object that is known by a list of its tokens alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import gigatoken
import pytest
import tiktoken

from tokcache import CachedTokenizer

from .encodings import small_encoding
from .test_backend_generic import (
    SPECIALS,
    AnotherPathForPlainText,
    Counting,
    Flagged,
    Words,
    slices,
)
from .toys import special, toy

if TYPE_CHECKING:
    from collections.abc import Callable


def wrapped(inner: Any, **settings: Any) -> Any:
    """Wrap an object, by default without trying long texts."""
    return CachedTokenizer(inner, list(SPECIALS), **{"max_chars": 5000, **settings})


CONVERSATION = [f"<a>hello user {turn} it's me<b>well 42 " for turn in range(8)]


def test_a_conversation_is_encoded_turn_by_turn() -> None:
    for kind in (Words, Flagged):
        cached = wrapped(kind())
        for n in range(1, len(CONVERSATION) + 1):
            text = "".join(CONVERSATION[:n])
            for _ in range(2):
                assert cached.encode(text) == kind().encode(text)
                assert cached.count(text) == len(kind().encode(text))
        stats = cached.cache_stats()
        assert stats.misses == 1
        assert stats.self_check_failures == 0


def test_the_default_of_the_flag_is_the_objects_own() -> None:
    class Quiet(Flagged):
        def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> Any:
            return super().encode(text, add_special_tokens)

    class Undecided(Flagged):
        def encode(
            self, text: str, add_special_tokens: bool | None = None, **_: Any
        ) -> Any:
            return super().encode(text, add_special_tokens is not False)

    for kind in (Quiet, Undecided, Flagged):
        inner: Any = kind()
        cached = wrapped(inner)
        for _ in range(2):
            assert cached.encode("<a>hello") == inner.encode("<a>hello")
            for flag in (True, False):
                assert cached.encode("<a>hello", add_special_tokens=flag) == (
                    inner.encode("<a>hello", flag)
                )


def _giga() -> gigatoken.Tokenizer:
    return gigatoken.Tokenizer.from_json(toy(*map(special, SPECIALS)).to_str())


def _allowing() -> Any:
    return small_encoding(*SPECIALS)


@pytest.mark.parametrize("build", [Words, _giga, _allowing])
def test_where_a_tokenizer_adds_nothing_the_flag_changes_nothing(
    build: Callable[[], Any],
) -> None:
    """It is the cache's own option: one call will do for tokenizers of all libraries.

    tiktoken itself, and whatever else has no such option, would take none of it.
    """
    raw, cached = build(), wrapped(build(), max_chars=None)
    is_tiktoken = isinstance(raw, tiktoken.Encoding)
    options = {"allowed_special": "all"} if is_tiktoken else {}
    with pytest.raises(TypeError):
        raw.encode("<a>hello", add_special_tokens=False)
    for text in ("<a>hello<b>hello", "hello", "<a>hello<b>") * 2:
        want = list(raw.encode(text, **options))
        for flag in (None, True, False):
            given = {**options, "add_special_tokens": flag}
            assert cached.encode(text, **given) == want
            assert cached.count(text, **given) == len(want)
            assert cached.encode_batch([text], **given) == [want]
            assert asyncio.run(cached.aencode(text, **given)) == want
    stats = cached.cache_stats()
    assert stats.hits > stats.misses
    assert stats.pass_throughs == 0


@pytest.mark.parametrize("kind", [AnotherPathForPlainText, slices(1000), Counting])
def test_what_does_not_split_passes_through(kind: Callable[[], Words]) -> None:
    cached = wrapped(kind())
    for n in range(1, len(CONVERSATION) + 1):
        text = "".join(CONVERSATION[:n]) * 20
        assert cached.encode(text) == kind().encode(text)
    assert cached.cache_stats().entries == 0
    assert not cached.explain().enabled


def test_texts_longer_than_what_was_tried_pass_through() -> None:
    cached = wrapped(slices(5000)())
    for n_words in (100, 2000, 100, 2000):
        text = "<a>" + "hello " * n_words + "<b>" + "foo bar " * n_words
        assert cached.encode(text) == slices(5000)().encode(text)
    stats = cached.cache_stats()
    assert stats.pass_throughs == 2
    assert stats.hits == 1


def test_options_of_its_own_are_passed_on() -> None:
    inner = Flagged()
    cached = wrapped(inner)
    assert cached.encode("<a>hello", padding=True) == inner.encode("<a>hello")
    assert isinstance(cached.encode("<a>hello", padding=True), list)


class Panic(BaseException):
    """Stand for what compiled code throws past every ``except Exception``."""


@pytest.mark.parametrize("error", [KeyError, Panic])
def test_a_failing_part_fails_the_call_and_stores_nothing(
    error: type[BaseException],
) -> None:
    class Failing(Words):
        fails = False

        def encode(self, text: str) -> Any:
            if self.fails and "third" in text:
                raise error
            return super().encode(text)

    inner = Failing()
    cached = wrapped(inner)
    text = "<a>first<b>second<a>third<b>fourth<a>fifth"
    assert cached.encode("<a>first<b>") == inner.encode("<a>first<b>")
    before = cached.cache_stats()
    inner.fails = True
    for _ in range(2):
        with pytest.raises(error):
            cached.encode(text)
    assert cached.cache_stats() == before
    inner.fails = False
    for _ in range(2):
        assert cached.encode(text) == Words().encode(text)
    assert cached.cache_stats().hits == before.hits + 2


def test_what_goes_wrong_later_is_noticed_and_turns_the_cache_off() -> None:
    """The list is the caller's word; behind it stands the check of every encode."""

    class Lying(Words):
        def encode(self, text: str) -> Any:
            ids = super().encode(text)
            return [each for each in ids if each != 1] if "never" in text else ids

    cached = wrapped(Lying())
    for n in range(12):
        text = f"<a>never {n}<b>more<a>x"
        assert cached.encode(text) == Lying().encode(text)
    assert cached.cache_stats().self_check_failures >= 8
    assert "8 prompts failed the self-check" in str(cached.explain().reason)
    assert cached.encode("<a>hello<b>") == Words().encode("<a>hello<b>")


def test_an_attribute_that_an_instance_alone_has_is_the_inner_ones() -> None:
    class Folding:
        def __init__(self) -> None:
            self.lowers = False

        def encode(self, text: str) -> list[int]:
            shown = text.lower() if self.lowers else text
            return [1 if c == "|" else 2 + ord(c) for c in shown]

        def decode(self, ids: list[int]) -> str:
            return "".join("|" if i == 1 else chr(i - 2) for i in ids)

    inner = Folding()
    cached = CachedTokenizer(inner, ["|"])
    cached.encode("A|B|")
    cached.lowers = True
    assert inner.lowers
    assert cached.encode("A|B|").ids == inner.encode("A|B|")
