"""Check that a wrapper is copied and pickled by its configuration."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from tests.checks import assert_same
from tests.toys import special, toy
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

TEXTS = ["<s>hello</s>", "<s>hello</s>foo", "hello"]


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"), template="<s> $A")


def observer() -> None:
    """Stand for a user's own."""


COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda cached: pickle.loads(pickle.dumps(cached)),  # noqa: S301
]


@pytest.mark.parametrize("make", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_copy_has_the_settings_and_an_empty_cache(
    make: Callable[[Any], Any],
) -> None:
    cached = CachedTokenizer(
        build(),
        ["</s>"],
        max_memory_bytes=4096,
        max_resident_bytes=99_999,
        extend_on_hit=False,
        cache_tails=False,
        verify=0.5,
        on_hit=observer,
    )
    for text in TEXTS:
        cached.encode(text)
    made = make(cached)
    assert type(made) is CachedTokenizer
    stats = made.cache_stats()
    assert (stats.entries, stats.hits, stats.misses) == (0, 0, 0)
    assert (stats.max_memory_bytes, stats.max_resident_bytes) == (4096, 99_999)
    assert made.explain() == cached.explain()
    assert made.__reduce__()[1][3] == cached.__reduce__()[1][3]
    for text in TEXTS * 2:
        assert_same(made, build(), text, special=True)
    assert cached.cache_stats().entries


def test_a_copy_shares_the_tokenizer_and_a_deep_copy_does_not() -> None:
    cached = CachedTokenizer(build())
    assert copy.copy(cached).inner is cached.inner
    assert copy.deepcopy(cached).inner is not cached.inner


def test_a_subclass_is_copied_without_its_constructor() -> None:
    made = copy.deepcopy(Named("x"))
    assert type(made) is Named
    assert made.label == "x"
    assert_same(made, build(), TEXTS[0])


class Named(CachedTokenizer):
    def __init__(self, label: str) -> None:
        super().__init__(build())
        self.label = label


class Tagged(CachedTokenizer):
    """Keep a field of its own, set before there is a tokenizer."""

    tag: str

    def __init__(self, inner: Tokenizer, tag: str) -> None:
        self.tag = tag
        super().__init__(inner)


@pytest.mark.parametrize("make", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_field_set_before_the_constructor_is_kept(
    make: Callable[[Any], Any],
) -> None:
    copied = make(Tagged(build(), "tenant"))
    assert type(copied) is Tagged
    assert copied.tag == "tenant"
    assert_same(copied, build(), TEXTS[0])
