"""Check bad input, failing inner tokenizers and failing observers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from tokcache import CachedTokenizer

from .checks import InnerCalls, assert_same, raw_ids
from .toys import plain, special, toy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer


def build() -> Tokenizer:
    """Make a tokenizer with two specials."""
    return toy(special("<s>"), special("<im>"), template="<s> $A")


def assert_usable(cached: CachedTokenizer) -> None:
    """Check that a wrapper works as if nothing had happened."""
    for _ in range(3):
        for text in ("a<s>b", "a<s>b<im>hello", "<im>foo", "foo", ""):
            assert_same(cached, build(), text)
            assert_same(cached, build(), text, special=True)
    stats = cached.cache_stats()
    assert stats.entries == 3


class NoAnswerError(BaseException):
    """Stand for a panic: it is no Exception."""


def fail_on(nth: int, error: BaseException) -> Callable[[str], None]:
    """Raise at the n-th inner call, counted from one."""
    left = nth

    def before(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise error

    return before


def fail_at(word: str, error: BaseException) -> Callable[[str], None]:
    """Raise where the text to encode has a word."""

    def before(text: str) -> None:
        if word in text:
            raise error

    return before


@pytest.mark.parametrize("value", [None, b"<s>hello", 7, ["<s>", "hello"], ("a", "b")])
@pytest.mark.parametrize("call", ["encode", "count"])
def test_what_is_no_text_is_refused_by_name(call: str, value: object) -> None:
    """A TypeError that names the argument; nothing is stored or counted."""
    cached: Any = CachedTokenizer(build())
    with pytest.raises(TypeError, match="sequence"):
        getattr(cached, call)(value)
    stats = cached.cache_stats()
    assert (stats.hits, stats.misses, stats.entries) == (0, 0, 0)
    assert_usable(cached)


@pytest.mark.parametrize("value", [None, "<s>hello", 7, [None], [b"a"], ["a", 7]])
def test_what_is_no_batch_is_refused(value: object) -> None:
    """As by the inner tokenizer; nothing of the batch is stored."""
    cached: Any = CachedTokenizer(build())
    raw: Any = build()
    wanted: type[Exception] = TypeError
    try:
        raw.encode_batch(value)
    except Exception as error:  # noqa: BLE001 - whatever the library raises
        wanted = type(error)
    else:  # before tokenizers 0.21 a text is a batch of its characters
        assert isinstance(value, str)
    with pytest.raises(wanted):
        cached.encode_batch(value)
    assert_usable(cached)


@pytest.mark.parametrize("at", ["cold", "in the tail", "in a segment", "no boundary"])
def test_a_lone_surrogate(at: str) -> None:
    """B37: the inner tokenizer's own exception, nothing stored, the next call right."""
    text = {
        "cold": "a<s>\ud800b",
        "in the tail": "a<s>b\udfff",
        "in a segment": "a<s>b\ud800<im>hello",
        "no boundary": "hello \udc80",
    }[at]
    cached: Any = CachedTokenizer(build())
    raw: Any = build()
    if at != "cold":
        assert_same(cached, raw, "a<s>b<im>")
    before = cached.cache_stats()
    for call in (cached.encode, cached.count):
        with pytest.raises(Exception) as want:  # noqa: PT011 - whatever the library raises
            raw.encode(text)
        with pytest.raises(type(want.value)):
            call(text)
    after = cached.cache_stats()
    assert (after.entries, after.tails) == (before.entries, before.tails)
    assert after.resident_bytes == before.resident_bytes
    assert (after.cached_tokens, after.uncached_tokens) == (
        before.cached_tokens,
        before.uncached_tokens,
    )
    assert_usable(cached)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "a\0b<s>\0<im>\0",
        "<s>",
        "<s><im><s>",
        "\ufffe\uffff<s>\U0010ffff",
        " ",
    ],
)
def test_odd_texts(text: str) -> None:
    """NUL, nothing, specials only, non-characters: as without the cache."""
    cached = CachedTokenizer(build())
    for _ in range(3):
        assert_same(cached, build(), text)
        assert_same(cached, build(), text, special=True)
    assert_usable_after(cached)


def assert_usable_after(cached: CachedTokenizer) -> None:
    """Check that other texts are right, whatever has been stored."""
    for text in ("a<s>b", "a<s>b<im>hello", "<im>foo", "foo"):
        assert_same(cached, build(), text)


def test_a_text_of_a_class_of_its_own() -> None:
    """A subclass of str is the str that it is, whatever it overrides."""

    class Text(str):
        __slots__ = ()

        def __len__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    cached = CachedTokenizer(build())
    for text in ("a<s>b<im>", "a<s>foo"):
        for _ in range(2):
            ids = cached.encode(Text(text)).ids
            assert ids == raw_ids(build(), text, special=True)
    assert_usable_after(cached)


@pytest.mark.parametrize("marker", ["", "<s>", "é<s>"])
@pytest.mark.parametrize("listed", [None, ["<s>"]])
def test_texts_of_ten_megabytes(marker: str, listed: list[str] | None) -> None:
    """They are encoded as without the cache, and stored only where they fit."""

    def tokenizer() -> Tokenizer:
        # So long a token keeps the ids, and the time, few.
        return toy(special("<s>"), plain("x" * 1000))

    text = marker + ("x" * 1000 + "hello ") * 10_000
    want = raw_ids(tokenizer(), text)
    cached = CachedTokenizer(tokenizer(), listed, max_memory_bytes=2**20)
    for _ in range(3):
        assert cached.encode(text, add_special_tokens=False).ids == want
    stats = cached.cache_stats()
    assert stats.resident_bytes <= stats.max_resident_bytes
    assert stats.memory_bytes <= stats.max_memory_bytes
    if listed and marker:  # one tail, larger than the budget
        assert stats.tails == 0
        assert stats.oversized
    for short in ("a<s>b", "a<s>b<s>hello", "foo"):
        for _ in range(2):
            assert_same(cached, tokenizer(), short)


@pytest.mark.parametrize("name", ["max_memory_bytes", "max_resident_bytes"])
@pytest.mark.parametrize("value", [-1, -(2**70), 1.5, "64", float("nan"), True])
def test_a_budget_that_is_none_is_refused(name: str, value: object) -> None:
    """A ValueError with the name and the value, and no half-made wrapper."""
    options: Any = {name: value}
    with pytest.raises(ValueError, match=name) as raised:
        CachedTokenizer(build(), **options)
    assert str(value) in str(raised.value)


def test_a_budget_beyond_all_memory() -> None:
    """It bounds nothing, and overflows nothing."""
    cached = CachedTokenizer(
        build(), max_memory_bytes=2**70, max_resident_bytes=2**63 - 1
    )
    assert_usable(cached)


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_for_nothing(budget: int) -> None:
    """Everything works, nothing is stored, no division by zero."""
    cached = CachedTokenizer(build(), max_memory_bytes=budget)
    assert cached.cache_stats().hit_rate == 0
    assert cached.cache_stats().token_hit_rate == 0
    for _ in range(3):
        for text in ("<s>hello", "<s>hello<im>foo<s>", "foo", ""):
            assert_same(cached, build(), text)
            assert_same(cached, build(), text, special=True)
    stats = cached.cache_stats()
    assert (stats.entries, stats.memory_bytes, stats.hits) == (0, 0, 0)
    assert stats.misses
    assert stats.hit_rate == 0


@pytest.mark.parametrize("budget", [0, 1, 200, 600, 1200])
def test_bytes_for_next_to_nothing(budget: int) -> None:
    """The same for the bound on all memory, which counts empty tables too."""
    cached = CachedTokenizer(build(), max_resident_bytes=budget)
    for text in ("<s>hello<im>foo", "<s>", "a<s>b<im>", "<s>" + "x" * 99) * 3:
        assert_same(cached, build(), text)
        assert cached.cache_stats().resident_bytes <= budget
    stats = cached.cache_stats()
    if budget < 1000:
        assert (stats.entries, stats.tails) == (0, 0)


@pytest.mark.parametrize(
    "error", [NoAnswerError("panic"), MemoryError("no"), KeyError(1)]
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_inner_tokenizer_that_fails_at_some_call(
    error: BaseException, nth: int
) -> None:
    """B39: the error passes through, no half entry is left, the next call is right."""
    cached = CachedTokenizer(build())
    # Each token's first sight makes calls too: over with before the count begins.
    assert_same(cached, build(), "x<s>x<im>x")
    cached.clear_cache()
    InnerCalls(cached, fail_on(nth, error))
    failed: list[BaseException] = []
    for text in ("a<s>b", "a<s>b<im>hello", "<im>foo", "foo"):
        before = cached.cache_stats()
        try:
            cached.encode(text)
        except BaseException as caught:  # noqa: BLE001 - whatever passes through
            failed.append(caught)
            assert cached.cache_stats() == before
    assert failed == [error]
    assert_usable(cached)


def test_an_inner_tokenizer_that_fails_in_a_middle_segment() -> None:
    """B40: counted as neither hit nor miss, told to no observer; later it is right."""
    events: list[str] = []
    cached = CachedTokenizer(
        build(),
        on_hit=lambda *_: events.append("hit"),
        on_miss=lambda *_: events.append("miss"),
        on_tokens=lambda _: events.append("tokens"),
    )
    assert_same(cached, build(), "x<s>x<im>x")
    assert_same(cached, build(), "a<s>")
    before = cached.cache_stats()
    del events[:]
    poison = True
    error = RuntimeError("poison")

    def fail(text: str) -> None:
        if poison and "poison" in text:
            raise error

    InnerCalls(cached, fail)
    text = "a<s>b<im>poison<s>c<im>d<s>"
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            cached.encode(text)
        assert caught.value is error
    assert cached.cache_stats() == before
    assert events == []
    poison = False
    for _ in range(2):
        assert_same(cached, build(), text, special=True)
    assert events[:2] == ["hit", "tokens"]


def test_a_failing_item_of_a_batch() -> None:
    """The batch fails as a whole, as without the cache; later it is right."""
    cached = CachedTokenizer(build())
    assert_same(cached, build(), "x<s>x<im>x")
    poison = True

    def fail(text: str) -> None:
        if poison and "poison" in text:
            msg = "poison"
            raise RuntimeError(msg)

    InnerCalls(cached, fail)
    texts = ["a<s>b", "a<s>poison<im>", "hello<s>"]
    with pytest.raises(RuntimeError, match="poison"):
        cached.encode_batch(texts)
    poison = False
    for _ in range(2):
        got = [ids.ids for ids in cached.encode_batch(texts)]
        assert got == [raw_ids(build(), text, special=True) for text in texts]


@pytest.mark.parametrize("observer", ["on_hit", "on_miss", "on_tokens"])
def test_an_observer_that_raises(
    observer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The ids and counters are right; it is reported once, and counted each time."""
    told = 0

    def fail(*_: object) -> None:
        nonlocal told
        told += 1
        msg = "no secret text here"
        raise ValueError(msg)

    options: Any = {observer: fail}
    cached = CachedTokenizer(build(), **options)
    with caplog.at_level(logging.DEBUG):
        for text in ("secret<s>b", "secret<s>b", "<s>", "secret<s>b<im>foo") * 2:
            assert cached.encode(text).ids == raw_ids(build(), text, special=True)
    assert told > 1
    stats = cached.cache_stats()
    assert stats.observer_errors == told
    assert stats.hits == 6
    assert stats.misses == 2
    warned = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert warned[0].name.startswith("tokcache")
    assert "secret<s>" not in caplog.text


def test_an_observer_that_is_told_from_within_an_observer() -> None:
    """Observers run outside the lock: they may use the cache themselves."""
    seen: list[int] = []
    cached = CachedTokenizer(build())

    def on_tokens(usage: Any) -> None:
        seen.append(usage.uncached_tokens)
        if len(seen) == 1:
            cached.encode("other<s>text")
            cached.clear_cache()

    assert cached.with_token_observer(on_tokens) is cached
    for _ in range(2):
        assert_same(cached, build(), "a<s>b", special=True)
    assert seen


def test_a_tokenizer_that_breaks_the_rules_is_never_stored() -> None:
    """Ids that are not what the text's tokens say: returned as they are, kept never."""
    cached = CachedTokenizer(build())
    assert_same(cached, build(), "x<s>x<im>x")
    cached.clear_cache()
    backend: Any = cached._backend
    run, whole = backend.encode_run, backend.encode_whole
    # Markers near to this word are taken for text, as by an engine with two code paths.
    odd = build()
    odd.encode_special_tokens = True

    def encode_run(text: str) -> list[int]:
        ids: list[int] = odd.encode(text, add_special_tokens=False).ids
        return ids if "odd" in text else list(run(text))

    def encode_whole(text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = odd.encode(text, add_special_tokens=add_special_tokens).ids
        return ids if "odd" in text else list(whole(text, add_special_tokens))

    backend.encode_run, backend.encode_whole = encode_run, encode_whole
    text = "a<s>odd<im>hello<s>"
    for i in range(1, 4):
        assert cached.encode(text).ids == odd.encode(text).ids
        stats = cached.cache_stats()
        assert stats.entries == 0
        assert stats.self_check_failures >= i
    assert_usable(cached)
    assert cached.explain().notes
