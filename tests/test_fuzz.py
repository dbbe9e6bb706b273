"""A bounded part of the fuzz campaign, a small world searched whole, and mutants."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tests.fuzz import shrinking
from tests.fuzz.cases import random_case
from tests.fuzz.mutants import CONTROL, MUTANTS, Mutant
from tests.fuzz.shrinking import reproduction, shrink
from tests.fuzz.side_by_side import run_case
from tests.fuzz.totals import Totals
from tests.toys import Flags, plain, special, toy
from tokcache import CachedTokenizer
from tokcache.backends._added_tokens import lists_are_true

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20_240_611
CASES = 2500  # some 20 seconds
MUTANT_SEED = 3
MUTANT_CASES = 3000  # the slowest to be seen takes some hundreds

PIECES = ("<s>", "<|", "<|a|>", "hello", " ", "\n", "é")
PRE_TOKENIZERS = {
    "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "bytes, prefix": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "metaspace first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "metaspace always": pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
    "metaspace never": pre_tokenizers.Metaspace(prepend_scheme="never"),
}
NORMALIZERS = {
    "none": None,
    "llama": normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    ),
    "strip": normalizers.Strip(),
}
FLAGS: tuple[Flags, ...] = (
    {},
    {"rstrip": True},
    {"lstrip": True},
    {"single_word": True},
    {"normalized": True},
)


@pytest.fixture(autouse=True)
def quick_panics(monkeypatch: pytest.MonkeyPatch) -> None:
    # A panic is an answer to compare; its backtrace takes a millisecond.
    monkeypatch.setenv("RUST_BACKTRACE", "0")


def test_random_tokenizers_and_texts_give_the_raw_ids() -> None:
    totals = Totals()
    for number in range(CASES):
        case = random_case(SEED, number)
        wrong = run_case(case, totals)
        if wrong:
            small = shrink(case)
            pytest.fail(reproduction(small, run_case(small, Totals()) or wrong))
    # A fuzzer that leaves the cache cold proves nothing.
    assert totals["cases"] == CASES
    # Before tokenizers 0.23 it is off where nothing shows how tokens are matched.
    assert totals.cache_on_ratio > (0.6 if lists_are_true() else 0.45)
    assert totals.token_hit_ratio > 0.3
    assert totals["full_hits"] > 2 * CASES
    assert totals["evictions"] > CASES
    assert totals["oversized"] > CASES


def small_world() -> Iterator[str]:
    """List every text of up to four pieces."""
    for size in range(5):
        for pieces in itertools.product(PIECES, repeat=size):
            yield "".join(pieces)


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: next(iter(flags), "plain"))
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_text_of_a_small_world(pre: str, normalizer: str, flags: Flags) -> None:
    def build() -> Tokenizer:
        return toy(
            special("<s>", **flags),
            plain("<|"),
            special("<|a|>"),
            pre=PRE_TOKENIZERS[pre],
            normalizer=NORMALIZERS[normalizer],
            template="<s> $A",
        )

    raw, roomy = build(), CachedTokenizer(build())
    tight = CachedTokenizer(build(), max_memory_bytes=200, max_resident_bytes=4000)
    for text, add_special_tokens in zip(
        small_world(), itertools.cycle((True, False, False)), strict=False
    ):
        wanted = raw.encode(text, add_special_tokens=add_special_tokens).ids
        for cached in (roomy, tight):
            ids = cached.encode(text, add_special_tokens=add_special_tokens)
            assert ids == wanted, (text, add_special_tokens)
    if lists_are_true():  # else the cache may have to be off for such overlaps
        assert roomy.cache_stats().hits > 300
        assert tight.cache_stats().evictions > 300


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_rule_that_is_off_is_missed(mutant: Mutant) -> None:
    if "rstrip" in mutant.name and not lists_are_true():
        pytest.skip("before 0.23 another rule refuses such tokens first")
    assert mutant.first_wrong(MUTANT_SEED, MUTANT_CASES) is not None


def test_the_rules_alone_are_enough() -> None:
    assert CONTROL.first_wrong(MUTANT_SEED, 400) is None


def test_a_failure_is_reported_small_and_as_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shrinking, "SHRINK_SECONDS", 3)
    anchorless = next(mutant for mutant in MUTANTS if "anchor" in mutant.name)
    number = anchorless.first_wrong(MUTANT_SEED, MUTANT_CASES)
    assert number is not None
    with anchorless():
        case = random_case(MUTANT_SEED, number)
        small = shrink(case)
        assert len(small.steps) <= 3 < len(case.steps)
        exec(reproduction(small, "found"), {})  # noqa: S102 - our own program
    assert "wanted " in capsys.readouterr().out
