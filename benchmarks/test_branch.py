"""What a branch costs: a known prefix, then another known way, or a new one.

Two conversations that share all but their last turns alternate, so that at the fork the
child used last is always the wrong one, and the walk must look the right one up.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from benchmarks import notes, prompts
from tests import data

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture
    from tokenizers import Tokenizer

    from tokcache import CachedTokenizer

FORK = prompts.SEGMENTS // 2


def branches(number: int) -> list[str]:
    """Return prompts that fork after half of the segments, then go on equally long."""
    of = prompts.family()
    whole = prompts.chat()
    fork = prompts.scanner(of).boundaries(whole)[FORK - 1][0]
    before, _ = data.chat_format(of).around["user"]
    return [f"{whole[:fork]}branch {i}{before}{whole[fork:]}" for i in range(number)]


@pytest.mark.benchmark(group="200 segments, forking after 100")
@pytest.mark.parametrize("number", [1, 2, 100])
def test_known_branches_in_turn(
    benchmark: BenchmarkFixture, raw: Tokenizer, cached: CachedTokenizer, number: int
) -> None:
    texts = branches(number)
    for text in texts:
        for _ in range(2):
            assert cached.encode(text) == raw.encode(text).ids
    turns = itertools.cycle(texts)
    benchmark(lambda: cached.encode(next(turns)))
    notes.per(benchmark, "segment", prompts.SEGMENTS)


@pytest.mark.benchmark(group="one new branch, the rest known under another path")
def test_new_branch(
    benchmark: BenchmarkFixture, raw: Tokenizer, cached: CachedTokenizer
) -> None:
    """All segments but one are known elsewhere: one short inner call, 100 new nodes."""
    cached.encode(branches(1)[0])
    text = branches(2)[1]
    assert cached.encode(text) == raw.encode(text).ids
    turns = iter(branches(3000)[2:])
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: cached.encode(next(turns)), rounds=2000, warmup_rounds=10
    )


@pytest.mark.benchmark(group="one new branch, the rest known under another path")
def test_raw_new_branch(benchmark: BenchmarkFixture, raw: Tokenizer) -> None:
    benchmark(raw.encode, branches(1)[0])
