"""Check upstream's lower level: match, populate, extend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toys import special, toy
from tokcache import L1Cache, TokenIds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BUDGET = 2**20
PARTS = ["<s>", "<e>", "hello", "foo", " hello", "x"]


def build() -> Tokenizer:
    return toy(special("<s>"), special("<e>"))


def raw(text: str) -> list[int]:
    ids: list[int] = build().encode(text, add_special_tokens=False).ids
    return ids


def test_nothing_matches_before_something_was_cached() -> None:
    cache = L1Cache(BUDGET)
    assert cache.longest_prefix_match("<s>hello") is None
    assert len(cache) == 0
    assert cache.stats().misses == 1


def test_a_match_has_the_ids_the_end_and_the_deepest_boundary() -> None:
    cache, tokenizer = L1Cache(BUDGET), build()
    assert cache.populate_and_encode("<s>hello<e>", tokenizer).ids == raw("<s>hello<e>")
    text = "<s>hello<e>foo<s>x"
    match = cache.longest_prefix_match(text)
    assert match is not None
    ids, end, deepest = match
    assert isinstance(ids, TokenIds)
    assert ids == raw("<s>hello<e>")
    assert (text[:end], text[:deepest]) == ("<s>hello<e>", "<s>hello<e>foo<s>")
    assert cache.extend_after_match(text, *match, tokenizer) == raw(text)
    again = cache.longest_prefix_match(text)
    assert again is not None
    assert again[1] == deepest
    assert (len(cache), cache.stats().hits, cache.stats().misses) == (3, 2, 0)


def test_a_match_is_never_the_whole_text_and_never_a_tail() -> None:
    cache, tokenizer = L1Cache(BUDGET), build()
    cache.insert_at_boundaries("<s>hello<e>x", tokenizer)
    whole = cache.longest_prefix_match("<s>hello<e>")
    assert whole is not None
    assert whole[1] == len("<s>")
    tail = cache.longest_prefix_match("<s>hello<e>x")
    assert tail is not None
    assert tail[1] == len("<s>hello<e>")
    assert cache.longest_prefix_match("<s>") is None


@given(texts=st.lists(st.lists(st.sampled_from(PARTS), max_size=6), max_size=8))
def test_matched_and_extended_or_populated_the_ids_are_the_same(
    texts: list[list[str]],
) -> None:
    cache, tokenizer = L1Cache(BUDGET), build()
    for text in map("".join, texts):
        match = cache.longest_prefix_match(text)
        if match is None:
            ids = cache.populate_and_encode(text, tokenizer)
        else:
            assert match[0] == raw(text[: match[1]])
            assert 0 < match[1] < len(text)
            ids = cache.extend_after_match(text, *match, tokenizer)
        assert ids == raw(text)
    stats = cache.stats()
    assert stats.hits + stats.misses == len(texts)


def test_observers_hear_of_matches_only() -> None:
    cache, tokenizer = L1Cache(BUDGET), build()
    told: list[str] = []
    cache.set_observer(lambda: told.append("hit"), lambda: told.append("miss"))
    cache.longest_prefix_match("<s>hello")
    cache.populate_and_encode("<s>hello", tokenizer)
    cache.longest_prefix_match("<s>hello")
    assert told == ["miss", "hit"]


def test_another_tokenizer_is_refused_and_nothing_lost() -> None:
    cache, tokenizer = L1Cache(BUDGET), build()
    cache.insert_at_boundaries("<s>hello", tokenizer)
    with pytest.raises(ValueError, match="another tokenizer"):
        cache.populate_and_encode("<s>hello", build())
    assert len(cache) == 1
    assert cache.longest_prefix_match("<s>hello") is not None


@pytest.mark.parametrize(
    ("ids", "offset", "deepest", "problem"),
    [
        ([0, 1], 3, 3, "not those"),
        ([], 4, 3, "does not hold"),
        ([], -1, 3, "does not hold"),
        ([], 3, 99, "does not hold"),
    ],
)
def test_what_was_never_matched_is_refused(
    ids: list[int], offset: int, deepest: int, problem: str
) -> None:
    cache, tokenizer = L1Cache(BUDGET), build()
    cache.insert_at_boundaries("<s>hello", tokenizer)
    with pytest.raises(ValueError, match=problem):
        cache.extend_after_match("<s>hello", TokenIds(ids), offset, deepest, tokenizer)
    assert cache.populate_and_encode("<s>hello", tokenizer) == raw("<s>hello")


def test_clear_and_bad_arguments() -> None:
    cache, tokenizer = L1Cache(BUDGET, ["<s>"]), build()
    cache.insert_at_boundaries("<s>hello<e>x", tokenizer)
    assert len(cache) == 1  # <e> is not in the list
    cache.clear()
    assert (len(cache), cache.stats().misses) == (0, 0)
    assert cache.longest_prefix_match("<s>hello") is None
    bad: Any = 7
    with pytest.raises(TypeError, match="must be a str"):
        cache.longest_prefix_match(bad)
    with pytest.raises(TypeError, match="must be a str"):
        cache.populate_and_encode(bad, tokenizer)
    with pytest.raises(ValueError, match="max_memory_bytes"):
        L1Cache(-1)


def test_an_empty_list_leaves_it_inert() -> None:
    cache, tokenizer = L1Cache(BUDGET, []), build()
    assert cache.populate_and_encode("<s>hello", tokenizer) == raw("<s>hello")
    assert cache.longest_prefix_match("<s>hello") is None
    assert len(cache) == 0


def test_a_text_of_a_subclass_is_a_text() -> None:
    class Prompt(str):
        __slots__ = ()

    inner = toy(special("<s>"))
    cache = L1Cache(1000)
    cache.populate_and_encode(Prompt("hello<s>"), inner)
    match = cache.longest_prefix_match(Prompt("hello<s>foo"))
    assert match is not None
    text = Prompt("hello<s>foo")
    assert cache.extend_after_match(text, *match, inner) == inner.encode(text).ids
