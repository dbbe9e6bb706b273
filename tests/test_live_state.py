"""Check settings of the tokenizer that change what a call returns."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, processors

from tests.checks import InnerCalls, assert_same
from tests.toys import plain, special, token_id, toy
from tokcache import CachedTokenizer, CacheTokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = [
    "",
    "hello",
    "<s>",
    "<s>hello",
    "<s>hello</s>",
    "<s>hello</s><s>foo hello",
    "foo<s>hello hello foo</s>x<s><s>hello",
]


def build(template: str | None = "<s> $A </s>") -> Tokenizer:
    return toy(special("<s>"), special("</s>"), template=template)


def outcome(call: Callable[[], Any]) -> object:
    """Return the ids of a call, or what it raised."""
    try:
        found = call()
    except BaseException as error:  # noqa: BLE001 - a panic is none of Exception
        return type(error).__name__, str(error)
    return [each.ids for each in found] if isinstance(found, list) else found.ids


truncations = st.fixed_dictionaries(
    {
        "max_length": st.integers(0, 9),
        "stride": st.integers(0, 3),
        "strategy": st.sampled_from(["longest_first", "only_first", "only_second"]),
        "direction": st.sampled_from(["left", "right"]),
    }
)
paddings = st.fixed_dictionaries(
    {
        "length": st.none() | st.integers(0, 12),
        "pad_to_multiple_of": st.none() | st.integers(1, 5),
        "pad_id": st.integers(0, 7),
        "direction": st.sampled_from(["left", "right"]),
    }
)


@given(
    truncation=st.none() | truncations,
    padding=st.none() | paddings,
    template=st.sampled_from([None, "<s> $A", "$A </s>", "<s> $A </s>"]),
    texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=5),
    flag=st.booleans(),
    at_first=st.booleans(),
)
def test_truncation_and_padding_are_those_of_the_tokenizer(  # noqa: C901, PLR0913, PLR0917
    truncation: dict[str, Any] | None,
    padding: dict[str, Any] | None,
    template: str | None,
    texts: list[str],
    flag: bool,
    at_first: bool,
) -> None:
    """Every setting, cold and warm, single and batch, errors included."""

    def switch(tokenizer: Tokenizer) -> None:
        if truncation is not None:
            tokenizer.enable_truncation(**truncation)
        if padding is not None:
            tokenizer.enable_padding(**padding)

    raw, inner = build(template), build(template)
    try:
        switch(raw)
    except BaseException:  # noqa: BLE001 - refused by the library itself
        return
    if at_first:
        switch(inner)
    cached = CachedTokenizer(inner)
    if not at_first:
        for text in texts[::2]:
            cached.encode(text)
        switch(inner)
    for text in texts * 2:
        assert outcome(
            lambda: cached.encode(text, add_special_tokens=flag)  # noqa: B023
        ) == outcome(lambda: raw.encode(text, add_special_tokens=flag))  # noqa: B023
    assert outcome(
        lambda: cached.encode_batch(texts, add_special_tokens=flag)
    ) == outcome(lambda: raw.encode_batch(texts, add_special_tokens=flag))
    for tokenizer in (raw, inner):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    for text in texts:
        assert_same(cached, raw, text, special=flag)


def test_a_truncated_prompt_is_served_from_the_cache() -> None:
    inner, raw = build(), build()
    cached = CachedTokenizer(inner)
    for tokenizer in (inner, raw):
        tokenizer.enable_truncation(5)
        tokenizer.enable_padding(length=9)
    text = TEXTS[-1]
    cached.encode(text)
    calls = InnerCalls(cached)
    assert_same(cached, raw, text, special=True)
    assert not len(calls)
    assert cached.cache_stats().pass_throughs == 0


@pytest.mark.parametrize("direction", ["left", "right"])
def test_the_usage_of_a_truncated_prompt_adds_up_to_its_ids(direction: str) -> None:
    told: list[CacheTokenUsage] = []
    inner = build()
    cached = CachedTokenizer(inner, on_tokens=told.append)
    cached.encode("<s>hello</s>")
    inner.enable_truncation(4, direction=direction)
    inner.enable_padding(length=7)
    before = cached.cache_stats()
    lengths = [len(cached.encode(text)) for text in TEXTS[2:] * 2]
    sums = [usage.cached_tokens + usage.uncached_tokens for usage in told[1:]]
    assert sums == lengths
    after = cached.cache_stats()
    assert after.cached_tokens - before.cached_tokens == sum(
        usage.cached_tokens for usage in told[1:]
    )
    assert after.uncached_tokens - before.uncached_tokens == sum(
        usage.uncached_tokens for usage in told[1:]
    )


def test_only_ids_that_stay_count_as_uncached() -> None:
    told: list[CacheTokenUsage] = []
    inner = build(None)
    cached = CachedTokenizer(inner, on_tokens=told.append)
    cached.encode("<s>")
    inner.enable_truncation(3)
    cached.encode("<s>foo</s>hello hello hello hello")
    assert told[-1] == CacheTokenUsage(1, 2)


# -- changes behind the wrapper's back ------------------------------------------------


def test_a_token_added_to_the_tokenizer_itself_is_seen_by_the_next_insert() -> None:
    inner, raw = build(), build()
    cached = CachedTokenizer(inner)
    assert_same(cached, raw, "<s>hello</s>")
    for tokenizer in (inner, raw):
        tokenizer.add_tokens([plain("ell")])
    # Only a prompt that is all cached cannot show it.
    assert_same(cached, raw, "<s>hello</s>hello")
    assert_same(cached, raw, "<s>hello</s>")


def test_flags_changed_on_the_tokenizer_itself_are_seen_by_the_next_insert() -> None:
    inner, raw = build(), build()
    cached = CachedTokenizer(inner)
    assert_same(cached, raw, "<s> hello</s>")
    for tokenizer in (inner, raw):
        tokenizer.add_special_tokens([special("<s>", rstrip=True)])
    text = "<s> hello</s>foo"
    assert_same(cached, raw, text)
    assert_same(cached, raw, "<s> hello</s>")


def test_flags_of_one_of_many_tokens_are_seen_after_enough_text() -> None:
    more = [special(f"<{i}>") for i in range(40)]
    inner, raw = toy(special("<s>"), *more), toy(special("<s>"), *more)
    cached = CachedTokenizer(inner)
    assert_same(cached, raw, "<s> hello<0>")
    for tokenizer in (inner, raw):
        tokenizer.add_special_tokens([special("<s>", rstrip=True)])
    text = "<s> hello<0>" + "hello " * 120
    assert_same(cached, raw, text)
    assert_same(cached, raw, "<s> hello<0>")


def test_another_template_on_the_tokenizer_itself_is_seen_at_once() -> None:
    inner, raw = build(), build()
    cached = CachedTokenizer(inner)
    assert_same(cached, raw, "<s>hello</s>", special=True)
    for tokenizer in (inner, raw):
        bos = token_id(tokenizer, "<s>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", bos)]
        )
    for flag in (True, False):
        assert_same(cached, raw, "<s>hello</s>", special=flag)


def test_dropout_set_on_the_tokenizer_itself_is_seen_at_once() -> None:
    inner = build()
    cached = CachedTokenizer(inner)
    cached.encode("<s>hello</s>")
    assert isinstance(inner.model, models.BPE)
    inner.model.dropout = 1.0
    raw = inner.encode("<s>hello</s>").ids
    assert cached.encode("<s>hello</s>").ids == raw
    assert len(raw) > len(build().encode("<s>hello</s>").ids)


@given(data=st.data())
def test_mutations_between_calls(data: st.DataObject) -> None:
    """Any change through the wrapper, at any place: the next call knows it."""
    cached, raw = CachedTokenizer(build()), build()
    changes: list[Callable[[Any], object]] = [
        lambda t: t.add_tokens([plain("ell")]),
        lambda t: t.add_tokens([plain("<b>", single_word=True)]),
        lambda t: t.add_special_tokens([special("<s>", rstrip=True)]),
        lambda t: t.add_special_tokens([special("x</s>")]),
        lambda t: t.enable_truncation(4, direction="left"),
        lambda t: t.no_truncation(),
        lambda t: t.enable_padding(length=6),
        lambda t: t.no_padding(),
        lambda t: setattr(t, "encode_special_tokens", True),
        lambda t: setattr(t, "encode_special_tokens", False),
    ]
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            change = data.draw(st.sampled_from(changes))
            change(cached)
            change(raw)
        text = data.draw(st.sampled_from(TEXTS))
        assert_same(cached, raw, text, special=data.draw(st.booleans()))


def test_counters_outlive_an_invalidation() -> None:
    cached = CachedTokenizer(build())
    for _ in range(3):
        cached.encode("<s>hello</s>")
    cached.add_tokens([plain("ell")])
    stats = cached.cache_stats()
    assert (stats.hits, stats.misses, stats.entries) == (2, 1, 0)


def test_every_live_setting_at_once_is_the_tokenizers() -> None:
    inner, raw = build(), build()
    cached = CachedTokenizer(inner)
    for est, dropout in itertools.product((True, False), (None, 0.0)):
        for tokenizer in (inner, raw):
            tokenizer.encode_special_tokens = est
            tokenizer.enable_truncation(4)
            assert isinstance(tokenizer.model, models.BPE)
            tokenizer.model.dropout = dropout
        for text in TEXTS:
            assert_same(cached, raw, text)
