"""Check lists of trusted and untrusted parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.checks import assert_same
from tests.toys import plain, special, toy
from tokcache import CachedTokenizer, EncodeSegment, TokenIds

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def build() -> Tokenizer:
    return toy(special("<im>"), special("<s>"), plain("foo"), template="<s> $A")


def trusted(text: str) -> list[int]:
    ids: list[int] = build().encode(text, add_special_tokens=False).ids
    return ids


def untrusted(text: str) -> list[int]:
    tokenizer = build()
    tokenizer.encode_special_tokens = True
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def test_a_users_marker_is_no_marker() -> None:
    cached = CachedTokenizer(build())
    found = cached.encode_segments(
        [EncodeSegment("<im>", allow_special=True), EncodeSegment("<im>", False)]
    )
    assert isinstance(found, TokenIds)
    assert found == trusted("<im>") + untrusted("<im>")
    assert found != trusted("<im><im>")


def test_lists_and_plain_texts_never_meet_in_the_cache() -> None:
    """In both orders, and the same text in other parts: nothing joins them."""
    lists = [
        [("<im>hello<s>", True)],
        [("<im>hello<s>", False)],
        [("<im>", True), ("hello<s>", False)],
        [("<im>hel", True), ("lo<s>", True)],
        [("", True), ("<im>hello<s>", True), ("", False)],
    ]
    for order in (lists, lists[::-1]):
        cached = CachedTokenizer(build())
        for _ in range(2):
            for parts in order:
                want = [
                    token
                    for text, allow in parts
                    for token in (trusted if allow else untrusted)(text)
                ]
                assert cached.encode_segments(parts) == want
                assert_same(cached, build(), "".join(text for text, _ in parts))
        # Only the plain text was cached.
        assert cached.cache_stats().entries == 2


def test_an_added_token_that_is_not_special_is_still_matched() -> None:
    found = CachedTokenizer(build()).encode_segments([("foo", False)])
    assert found == [build().token_to_id("foo")]


def test_settings_of_the_tokenizer_do_not_reach_into_a_part() -> None:
    inner = build()
    cached = CachedTokenizer(inner)
    parts = [("<im>hello hello", True), ("<s>hello foo", False)]
    want = trusted(parts[0][0]) + untrusted(parts[1][0])
    inner.enable_truncation(2)
    inner.enable_padding(length=30)
    inner.encode_special_tokens = True
    assert cached.encode_segments(parts) == want
    assert inner.truncation is not None
    assert inner.encode_special_tokens


def test_a_token_added_on_the_tokenizer_itself_is_seen() -> None:
    inner, changed = build(), build()
    cached = CachedTokenizer(inner)
    text = "hello" * 200
    cached.encode_segments([(text, False)])
    for tokenizer in (inner, changed):
        tokenizer.add_tokens([plain("ell")])
    changed.encode_special_tokens = True
    want = changed.encode(text, add_special_tokens=False).ids
    assert cached.encode_segments([(text, False)]) == want


@pytest.mark.parametrize(
    "segments",
    ["<im>", [("<im>",)], [("<im>", 1)], [(1, True)], [["<im>", True]], [None], 7],
)
def test_what_is_no_list_of_segments(segments: Any) -> None:
    cached = CachedTokenizer(build())
    with pytest.raises(TypeError):
        cached.encode_segments(segments)
    assert_same(cached, build(), "<im>hello")


def test_an_inner_method_of_that_name_is_asked() -> None:
    class Segmented(CachedTokenizer):
        """Stand for a tokenizer with a method of its own."""

    asked: list[Any] = []

    def encode_segments(parts: Any) -> list[int]:
        asked.append(parts)
        return [1, 2]

    cached = Segmented(build())
    cached._inner = type(
        "Inner", (), {"encode_segments": staticmethod(encode_segments)}
    )
    assert cached.encode_segments([("<im>", True)]) == [1, 2]
    assert asked == [[EncodeSegment("<im>", allow_special=True)]]
