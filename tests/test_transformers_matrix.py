"""Check that accelerated tokenizers have the same results for every option."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from . import data
from .hf_tokenizers import (
    outcome,
    plain_tokenizer,
    small,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from tokcache.transformers import accelerate, cached_tokenizer

# One of each kind: byte-level, WordPiece, Metaspace, Unigram, and one whose file has
# truncation and padding on.
WANTED = (
    "qwen3",
    "bert_uncased",
    "roberta_base",
    "t5_small",
    "mistral_v3_metaspace",
    "minilm_trunc_pad",
)
FAMILIES = [f for f in WANTED if f in data.families()] or list(data.families())[:4]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"add_special_tokens": False},
    {"padding": True},
    {"padding": True, "padding_side": "left", "return_tensors": "np"},
    {"padding": "max_length", "max_length": 40, "truncation": True},
    {"padding": True, "pad_to_multiple_of": 8, "add_special_tokens": False},
    {"truncation": True, "max_length": 9},
    {"truncation": "only_first", "max_length": 9, "add_special_tokens": False},
    {"truncation": "only_second", "max_length": 9},
    {"truncation": True, "max_length": 1},
    {"max_length": 9},
    {"stride": 2},
    {
        "truncation": True,
        "max_length": 9,
        "stride": 3,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
        "padding": True,
    },
    {"return_offsets_mapping": True},
    {"return_special_tokens_mask": True, "return_length": True, "padding": True},
    {"return_token_type_ids": True, "return_attention_mask": False},
    {"split_special_tokens": True},
    {"no_such_option": 1},
]


def calls(texts: list[str], options: dict[str, Any]) -> Iterator[Callable[[Any], Any]]:
    """Yield the ways to call a tokenizer with some options."""
    for text in texts:
        yield lambda t, text=text: t(text, **options)  # type: ignore[misc]
    yield lambda t: t(texts, **options)
    yield lambda t: t(tuple(texts[:3]), **options)
    yield lambda t: t(texts[0], texts[1], **options)
    yield lambda t: t(texts[:3], texts[1:4], **options)
    yield lambda t: t(texts[0].split(), is_split_into_words=True, **options)
    yield lambda t: t.encode(texts[0], **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_option_has_the_same_results(family: str) -> None:
    """Cold, warm, with what other calls left switched on in the shared backend."""
    raw = plain_tokenizer(family)
    fast = accelerate(copy.deepcopy(raw))
    texts = texts_of(family)
    n_compared = 0
    for is_warm in (False, True):
        for options in OPTIONS:
            for call in calls(texts, options):
                got = outcome(lambda c=call: c(fast), deep=is_warm)  # type: ignore[misc]
                want = outcome(lambda c=call: c(raw), deep=is_warm)  # type: ignore[misc]
                assert got == want, options
                n_compared += 1
    assert n_compared > 400
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits > stats.misses or not cached_tokenizer(fast).explain().enabled


@pytest.mark.parametrize("family", FAMILIES)
def test_other_ways_to_encode(family: str) -> None:
    """Chat templates, tokens, and both sides of truncation and padding."""
    raw = copy.deepcopy(plain_tokenizer(family))
    fast = accelerate(copy.deepcopy(raw))
    talk = data.conversations("own", 1)[0]
    for side in ("left", "right"):
        for each in (raw, fast):
            each.truncation_side = each.padding_side = side
        for end in (*range(1, len(talk)), len(talk)):
            for options in ({}, {"max_length": 12, "truncation": True}):
                got, want = (
                    outcome(
                        lambda t=t, n=end, o=options: t.apply_chat_template(  # type: ignore[misc]
                            talk[:n], tokenize=True, add_generation_prompt=True, **o
                        ),
                        deep=True,
                    )
                    for t in (fast, raw)
                )
                assert got == want
        text = texts_of(family)[0]
        assert fast.tokenize(text) == raw.tokenize(text)
        for options in OPTIONS:
            got, want = (
                outcome(lambda t=t, o=options, x=text: t([x, "a"], **o), deep=True)  # type: ignore[misc]
                for t in (fast, raw)
            )
            assert got == want
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits or not cached_tokenizer(fast).explain().enabled


def test_a_length_without_truncation() -> None:
    """Version 5 truncates then, version 4 does not; the same is done here."""
    raw, fast = small(), accelerate(small())
    for _ in range(3):
        for options in ({"max_length": 3}, {}, {"max_length": 2, "truncation": True}):
            for text in ("<im>hello hello hello<im>", "hello hello hello"):
                assert fast.encode(text, **options) == raw.encode(text, **options)
