"""Check that the cache never trusts a list of added tokens that is not what is matched.

Every test runs on every version of the library; where those before 0.23 do something
else, it is said.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer, models, normalizers

from tokcache import CachedTokenizer
from tokcache.backends.added_tokens import (
    NOT_AGAIN,
    OVERLAPS,
    exact_copy,
    lists_are_true,
)

from .checks import assert_same, raw_ids
from .toys import plain, special, token_id, toy

if TYPE_CHECKING:
    from collections.abc import Callable

BEFORE_0_23 = not lists_are_true()


def off_reason(tokenizer: Tokenizer) -> str | None:
    """Return why the cache is off for a tokenizer, if it is."""
    return CachedTokenizer(tokenizer).explain().reason


# -- tokens that normalize to nothing: with one, any encode may panic or never return

VANISHING: dict[str, tuple[str, normalizers.Normalizer]] = {
    "stripped": (" ", normalizers.Strip()),
    "replaced": ("<x>", normalizers.Replace("<x>", "")),
    "in a sequence": (
        "x ",
        normalizers.Sequence([normalizers.Replace("x", ""), normalizers.Strip()]),
    ),
    "cleaned": ("\0", normalizers.BertNormalizer()),
}


@pytest.mark.parametrize("name", VANISHING)
def test_a_token_that_normalizes_to_nothing_turns_the_cache_off(name: str) -> None:
    content, normalizer = VANISHING[name]
    vanishes = f"the added token {content!r} normalizes to nothing"
    tokenizer = toy(special("<s>"), plain(content), normalizer=normalizer)
    assert off_reason(tokenizer) != vanishes  # it is looked for as it is written
    tokenizer = toy(
        special("<s>"), plain(content, normalized=True), normalizer=normalizer
    )
    cached = CachedTokenizer(tokenizer)
    assert cached.explain().reason == vanishes
    for text in ("", "<s>", "<s><s>"):  # the library can do these
        assert cached.encode(text).ids == raw_ids(tokenizer, text)
    stats = cached.cache_stats()
    assert (stats.hits, stats.misses, stats.entries) == (0, 0, 0)


def test_nothing_is_encoded_to_find_it() -> None:
    class Counting:
        calls = 0

        def normalize(self, text: Any) -> None:
            Counting.calls += 1
            text.replace("<x>", "")

    tokenizer = toy(special("<s>"))
    tokenizer.normalizer = normalizers.Normalizer.custom(Counting())
    tokenizer.add_tokens([plain("<x>", normalized=True)])
    Counting.calls = 0
    cached = CachedTokenizer(tokenizer, trust_custom=True)
    assert not cached.explain().enabled
    assert Counting.calls == 1


def test_a_normalizer_that_fails_on_a_token_does_not_fail_the_constructor() -> None:
    class Failing:
        works = True

        def normalize(self, _: object) -> None:
            if not self.works:
                raise ValueError("no")

    tokenizer = toy(special("<s>"))
    failing = Failing()
    tokenizer.normalizer = normalizers.Normalizer.custom(failing)
    tokenizer.add_tokens([plain("<x>", normalized=True)])
    failing.works = False
    cached = CachedTokenizer(tokenizer, trust_custom=True)
    assert_same(cached, tokenizer, "<s>hello")


# -- tokens that are matched in another way than they are listed


def added_again(first: Any, *again: Any) -> Tokenizer:
    """Add a special token, one that overlaps it, and the first again."""
    tokenizer = toy(first)
    tokenizer.add_tokens(list(again))
    return tokenizer


def with_a_lost_id() -> Tokenizer:
    """Make two added tokens of one id, of which only the second is listed."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<x>": 7}, "a"))
    tokenizer.add_tokens([special("<s>"), special("<x>")])
    assert token_id(tokenizer, "<s>") == 2
    tokenizer.model = models.WordLevel({"a": 0, "<y>": 2}, "a")
    tokenizer.add_tokens([special("<y>")])
    return tokenizer


def with_an_old_form() -> Tokenizer:
    """Leave a token in the form that a former normalizer gave it."""
    tokenizer = toy(normalizer=normalizers.Lowercase())
    tokenizer.add_tokens([special("<A>", normalized=True), special("<s>")])
    tokenizer.normalizer = normalizers.Sequence([])
    return tokenizer


FLAGGED = "added tokens are not matched as they are listed"
HIDDEN: dict[str, tuple[Callable[[], Tokenizer], str]] = {
    "a special token, now looked for later": (
        lambda: added_again(
            special("<s>"), special("s>x"), special("<s>", normalized=True)
        ),
        FLAGGED,
    ),
    "a special token, now looked for earlier": (
        lambda: added_again(
            special("<s>", normalized=True), special("s>x"), special("<s>")
        ),
        FLAGGED,
    ),
    "in both phases": (
        lambda: added_again(
            plain("<s>"), plain("x<s", normalized=True), plain("<s>", normalized=True)
        ),
        FLAGGED,
    ),
    "a lost id": (with_a_lost_id, "share an id"),
    "an old form": (with_an_old_form, FLAGGED),
}
TEXTS = (
    *("<s>a", "<s><s> a", "x<s>a", "x<s><s>", "x<s>b<s>a", "<x>", "<y><s>", "<x>a<s>"),
    *("<s>x", "a<s>x<s>x", "<s><s>xa", "<A>a", "<a>a<s>", "<A><a><s>", "a<s><a>"),
)


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_not_matched_as_listed_turns_the_cache_off(name: str) -> None:
    build, reason = HIDDEN[name]
    tokenizer, raw = build(), build()
    cached = CachedTokenizer(tokenizer)
    found = cached.explain().reason
    if BEFORE_0_23:
        assert found is not None
        assert reason in found
    for text in TEXTS * 2:
        assert_same(cached, raw, text)


def test_a_token_that_is_added_again_and_overlaps_nothing_is_a_boundary() -> None:
    """Whichever phase it is in, no text shows a difference."""
    tokenizer = added_again(
        special("<s>"), special("x|"), special("<s>", normalized=True)
    )
    cached = CachedTokenizer(tokenizer)
    assert set(cached.explain().boundary_tokens) == {"<s>", "x|"}
    for text in ("<s>a", "x|<s>a", "x<s>a"):
        assert_same(cached, tokenizer, text)


@pytest.mark.skipif(not BEFORE_0_23, reason="from 0.23 on the list is what is matched")
def test_overlaps_that_show_nothing_make_no_boundary() -> None:
    """A refused match of a single_word token keeps others away in its own phase."""
    tokenizer = toy(
        special("<s>"), special("x<", single_word=True), special("[a]"), plain("]b")
    )
    explained = CachedTokenizer(tokenizer).explain()
    assert explained.boundary_tokens == ("[a]", "]b")
    assert explained.refused_tokens["<s>"] == OVERLAPS


@pytest.mark.skipif(not BEFORE_0_23, reason="from 0.23 on the list is what is matched")
def test_a_normalizer_must_show_the_phase_of_a_token() -> None:
    """Lowercase changes <S>; nothing that it does tells where <1> is looked for."""
    tokenizer = toy(special("<S>"), special("<1>"), normalizer=normalizers.Lowercase())
    assert CachedTokenizer(tokenizer).explain().boundary_tokens == ("<S>",)


@pytest.mark.skipif(not BEFORE_0_23, reason="from 0.23 on the list is what is matched")
def test_ids_that_were_taken_out_of_order_cannot_be_compared() -> None:
    tokenizer = toy(special("<s>"))
    tokenizer.model = models.BPE({"a": 0}, [])
    assert off_reason(tokenizer) == NOT_AGAIN
    assert exact_copy(tokenizer, normalizes=False) is None


def test_a_copy_is_exact() -> None:
    tokenizer = toy(special("<s>"), plain("x<s", normalized=True))
    copy = exact_copy(tokenizer, normalizes=False)
    assert copy is not None
    assert raw_ids(copy, "x<s>hello") == raw_ids(tokenizer, "x<s>hello")


@pytest.mark.parametrize("name", HIDDEN)
def test_a_copy_is_exact_or_none(name: str) -> None:
    tokenizer = HIDDEN[name][0]()
    copy = exact_copy(tokenizer, normalizes=False)
    if copy is None:
        assert BEFORE_0_23 or name == "a lost id"
        return
    for text in TEXTS:
        assert raw_ids(copy, text) == raw_ids(tokenizer, text)


def test_whatever_is_added_again_the_ids_are_the_tokenizers() -> None:
    rng = random.Random(5)
    contents = ("<s>", "x<s>", "<s", "s>x", "<", ">x", "x<", "xs", " <s>", "s> ")
    pieces = (*contents, "x", "s", " ", ">", "hello", "<S>")
    flags = (
        "normalized",
        "normalized",
        "normalized",
        "rstrip",
        "lstrip",
        "single_word",
    )
    on = 0
    for _ in range(400):
        tokenizers = (toy(), toy())
        chosen = rng.sample(contents, rng.randint(1, 4))
        chosen += rng.choices(chosen, k=rng.randint(0, 3))
        odd = rng.choice((0.0, 0.1, 0.3))
        for content in chosen:
            names: Any = {name: True for name in flags if rng.random() < odd}
            token = rng.choice((special, plain))(content, **names)
            for tokenizer in tokenizers:
                tokenizer.add_tokens([token])
        cached = CachedTokenizer(tokenizers[0])
        on += cached.explain().enabled
        for _ in range(25):
            assert_same(cached, tokenizers[1], "".join(rng.choices(pieces, k=6)))
    assert 100 < on < 400


@pytest.mark.parametrize(
    ("normalizer", "pair"),
    [
        (normalizers.NFD(), ("\u00e9", "e\u0301")),
        (normalizers.Lowercase(), ("<A>", "<a>")),
    ],
)
def test_two_tokens_with_one_normal_form_turn_the_cache_off(
    normalizer: normalizers.Normalizer, pair: tuple[str, str]
) -> None:
    """Which of them is matched differs from one copy of a tokenizer to the next."""
    tokenizer = toy(special("<s>"))
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens([plain(content, normalized=True) for content in pair])
    cached = CachedTokenizer(tokenizer)
    assert "left to chance" in str(cached.explain().reason)
    for text in ("<s>" + "".join(pair) * 3, *pair):
        for _ in range(2):
            assert cached.encode(text).ids == tokenizer.encode(text).ids
    # In phase 1 each is looked for as it is written.
    apart = toy(special("<s>"), *map(plain, pair))
    apart.normalizer = normalizer
    assert CachedTokenizer(apart).explain().enabled
