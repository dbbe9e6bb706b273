"""Check that a verified hit catches what no cheaper check can see."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers

from tests.checks import InnerCalls, assert_same
from tests.toys import special, toy
from tokcache import CachedTokenizer, CacheTokenUsage, TokenIds

TEXT = "<s>hello</s>Hello"


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"))


def break_it(tokenizer: Tokenizer) -> None:
    """Change it in a way that a fully cached prompt does not show."""
    tokenizer.normalizer = normalizers.Lowercase()


def test_a_changed_tokenizer_is_caught_and_the_cache_turned_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = build()
    cached = CachedTokenizer(inner, verify=1.0)
    cached.encode(TEXT)
    break_it(inner)
    with caplog.at_level(logging.WARNING, "tokcache"):
        for _ in range(3):
            assert cached.encode(TEXT).ids == inner.encode(TEXT).ids
    [record] = caplog.records
    assert "hello" not in record.getMessage().lower()
    assert "verified" in record.getMessage()
    assert not cached.explain().enabled
    stats = cached.cache_stats()
    assert stats.self_check_failures == 1
    assert (stats.entries, stats.pass_throughs) == (0, 2)
    cached.invalidate()
    assert cached.explain().enabled
    assert cached.encode(TEXT).ids == inner.encode(TEXT).ids


@pytest.mark.parametrize("call", ["encode", "count", "encode_batch"])
def test_every_kind_of_call_is_verified(call: str) -> None:
    inner = build()
    cached = CachedTokenizer(inner, verify=1)
    cached.encode(TEXT)
    break_it(inner)
    want: Any = inner.encode(TEXT).ids
    if call == "encode_batch":
        [found] = cached.encode_batch([TEXT])
        assert found.ids == want
    elif call == "count":
        assert cached.count(TEXT) == len(want)
    else:
        assert cached.encode(TEXT).ids == want
    assert not cached.explain().enabled


def test_a_partial_hit_and_a_truncated_one_are_verified() -> None:
    for truncate in (False, True):
        inner = build()
        cached = CachedTokenizer(inner, verify=1.0)
        cached.encode("Hello" + TEXT)
        if truncate:
            inner.enable_truncation(9)
            # Before tokenizers 0.23 only one that matches as listed is served so.
            cached.encode("foo")
        break_it(inner)
        text = "Hello" + TEXT + "</s>foo"
        assert cached.encode(text).ids == inner.encode(text).ids
        assert not cached.explain().enabled


def test_the_stated_share_of_hits_is_verified() -> None:
    cached = CachedTokenizer(build(), verify=0.25)
    cached.encode(TEXT)
    calls = InnerCalls(cached)
    for _ in range(4000):
        cached.encode(TEXT)
    # Ten standard deviations on either side.
    assert 725 < len(calls) < 1275


def test_usage_of_a_call_that_was_caught_is_that_of_its_ids() -> None:
    told: list[CacheTokenUsage] = []
    inner = build()
    cached = CachedTokenizer(inner, verify=1.0, on_tokens=told.append)
    cached.encode(TEXT)
    break_it(inner)
    ids = cached.encode(TEXT)
    assert told[-1] == CacheTokenUsage(0, len(ids))


def test_a_setting_switched_by_the_verifying_call_is_no_difference() -> None:
    inner = build()
    cached = CachedTokenizer(inner, verify=1.0)
    cached.encode(TEXT)
    lengths = [2]

    def switch(_: str) -> None:
        while lengths:
            inner.enable_truncation(lengths.pop())

    InnerCalls(cached, before=switch)
    assert cached.encode(TEXT).ids == inner.encode(TEXT).ids
    assert cached.explain().enabled
    assert not lengths
    inner.no_truncation()
    assert_same(cached, build(), TEXT)


@pytest.mark.parametrize("moment", ["before", "within"])
@pytest.mark.parametrize("through", ["wrapper", "inner"])
def test_special_tokens_that_become_plain_text_are_no_difference(
    moment: str, through: str
) -> None:
    inner = build()
    cached = CachedTokenizer(inner, verify=1.0)
    cached.encode(TEXT)

    def switch(_: str) -> None:
        (cached if through == "wrapper" else inner).encode_special_tokens = True

    if moment == "within":
        InnerCalls(cached, before=switch)
        cached.encode(TEXT)
    else:
        # Another thread switches between the lookup and the comparison.
        found = cached._state.walker.lookup(TEXT, True)
        inner.encode_special_tokens = True
        assert isinstance(found, TokenIds)
        cached._watched(cached._state, TEXT, True, found)
    assert cached.explain().enabled
    assert cached.cache_stats().self_check_failures == 0


def test_a_part_set_between_a_hit_and_its_comparison_is_no_difference(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cached = CachedTokenizer(build(), verify=1.0)
    cached.encode(TEXT)
    state = cached._state
    found = state.walker.lookup(TEXT, True)
    assert isinstance(found, TokenIds)
    cached.normalizer = normalizers.Lowercase()
    ids = cached._watched(state, TEXT, True, found)
    assert ids.ids == cached.inner.encode(TEXT).ids
    assert not caplog.records
    assert cached.cache_stats().self_check_failures == 0


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", True, float("nan"), None])
def test_a_share_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="verify must be a number from 0 to 1"):
        CachedTokenizer(build(), verify=value)
