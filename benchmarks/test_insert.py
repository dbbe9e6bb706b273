"""What it costs to store a new conversation: with room, and under pressure.

The walker is driven with ids that are ready, so the index is measured and no tokenizer:
walk, scan, hash, link, and under pressure one eviction for each new segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import driven, notes
from tokcache._plan import Plan

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from tokcache._walker import Walker

SEGMENTS = 10
ROUNDS = 3000
WARMUP = 100
# What some hundred conversations of 10 segments and 500 ids hold.
PRESSED = 200_000


def insert(benchmark: BenchmarkFixture, walker: Walker, texts: Iterator[str]) -> None:
    """Time one conversation a round; what its encode would return is made untimed."""

    def setup() -> tuple[tuple[str, list[array[int]]], dict[str, object]]:
        text = next(texts)
        return (text, [driven.ids_of(text)]), {}

    def store(text: str, ids: list[array[int]]) -> None:
        plan = walker.lookup(text, False)  # noqa: FBT003 - by position only
        assert isinstance(plan, Plan)
        for i in range(plan.n_runs):
            plan.feed(i, ids[i])
        plan.finish()

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        store, setup=setup, rounds=ROUNDS, warmup_rounds=WARMUP
    )
    notes.per(benchmark, "segment", SEGMENTS)


@pytest.mark.benchmark(group="store a conversation of 10 segments, 2 kB")
def test_with_room(benchmark: BenchmarkFixture) -> None:
    insert(benchmark, driven.walker(), driven.conversations(2 * ROUNDS))


@pytest.mark.benchmark(group="store a conversation of 10 segments, 2 kB")
@pytest.mark.parametrize("budget", [PRESSED, 100 * PRESSED])
def test_under_pressure(benchmark: BenchmarkFixture, budget: int) -> None:
    """Fill the budget first; each further conversation evicts as much as it brings."""
    walker = driven.walker(budget)
    texts = driven.conversations(10**9)
    for _ in range(budget // 1000):  # each brings 2 kB of ids
        driven.encode(walker, next(texts))
    insert(benchmark, walker, texts)
    evictions = walker.trie.usage()[5]
    benchmark.extra_info["evictions"] = evictions
    assert evictions > 0
