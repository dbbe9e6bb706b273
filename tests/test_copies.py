"""Check that a wrapper is copied and pickled by its configuration."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from tests.checks import assert_same
from tests.toys import special, toy
from tokcache import CachedTokenizer, FlatIds
from tokcache.subclass_fields import OWN_FIELDS

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


@pytest.mark.parametrize("make", COPIES, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("texts", [[], [""], TEXTS])
def test_the_ids_of_a_batch_are_copied(
    make: Callable[[Any], Any], texts: list[str]
) -> None:
    flat = CachedTokenizer(build()).encode_batch_flat(texts)
    made = make(flat)
    assert type(made) is FlatIds
    assert made == flat
    assert (made.offsets.format, made.offsets.readonly) == ("q", True)


class Slotted(CachedTokenizer):
    """Keep fields of all kinds, some set before there is a tokenizer."""

    __slots__ = ("__hidden", "limit", "unset")

    def __init__(self, inner: Tokenizer) -> None:
        self._early = "early"
        self.limit = 7
        super().__init__(inner)
        self._late = ["late"]
        self.__hidden = "slot"

    def fields(self) -> list[Any]:
        return [self._early, self._late, self.limit, self.__hidden]


class Twice(Slotted):
    """Have a slot of its own, and a name that is taken in the class below."""

    __slots__ = ("__hidden",)

    def __init__(self, inner: Tokenizer) -> None:
        super().__init__(inner)
        self.__hidden = "another"

    def fields(self) -> list[Any]:
        return [*super().fields(), self.__hidden]


def test_own_fields_are_known() -> None:
    """What is not listed would be copied as a subclass's."""
    cached = CachedTokenizer(build())
    cached.encode_batch(TEXTS)
    cached.enable_truncation(3)
    cached.invalidate()
    assert vars(cached).keys() == OWN_FIELDS


@pytest.mark.parametrize("make", COPIES, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("kind", [Slotted, Twice])
def test_private_fields_and_slots_are_copied(
    make: Callable[[Any], Any], kind: type[Slotted]
) -> None:
    cached = kind(build())
    cached.encode(TEXTS[0])
    copied = make(make(cached))
    assert type(copied) is kind
    assert copied.fields() == cached.fields()
    assert not hasattr(copied, "unset")
    assert copied.cache_stats().entries == 0
    copied._late.append("its own list" if make is not copy.copy else "the same list")
    assert (copied._late == cached._late) is (make is copy.copy)
    assert_same(copied, build(), TEXTS[0])
