"""How a hit grows: with the prompt's length, and with what else is cached.

The walker is driven with made-up ids: no tokenizer could fill a cache with 100,000
conversations in reasonable time.
"""

from __future__ import annotations

import functools
import itertools
import random
from typing import TYPE_CHECKING

import pytest

from benchmarks import driven, notes

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from tokcache._walker import Walker

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
NUMBERS = (1, 100, 10_000, 100_000)
SEGMENTS = 10
BATCH = 64  # their texts together, 128 kB, stay in the processor's second cache


@functools.lru_cache(maxsize=1)  # 100,000 of them take 700 MB
def filled(number: int) -> Walker:
    walker = driven.walker()
    for text in driven.conversations(number):
        driven.encode(walker, text)
    return walker


@pytest.mark.benchmark(group="hit by length of the prompt")
@pytest.mark.parametrize("length", LENGTHS)
def test_length(benchmark: BenchmarkFixture, length: int) -> None:
    """Take segments of 300 characters, as in the chat prompt."""
    walker = driven.walker()
    segments = max(1, length // 300)
    text = driven.conversation(0, segments, length)
    ids = driven.encode(walker, text)
    assert walker.lookup(text, False) == ids  # noqa: FBT003 - by position only
    benchmark(walker.lookup, text, False)  # noqa: FBT003
    benchmark.extra_info["segments"] = segments
    notes.per(benchmark, "segment", segments)
    notes.per(benchmark, "byte moved", notes.bytes_moved(text, len(ids)))


@pytest.mark.benchmark(group="the same hit of 10 segments among other conversations")
@pytest.mark.parametrize("number", NUMBERS)
def test_same_prompt(benchmark: BenchmarkFixture, number: int) -> None:
    walker = filled(number)
    text = driven.conversation(number // 2)
    benchmark(walker.lookup, text, False)  # noqa: FBT003 - by position only
    benchmark.extra_info["resident MB"] = walker.trie.usage()[3] / 1e6
    notes.per(benchmark, "segment", SEGMENTS)


@pytest.mark.benchmark(
    group="any of the conversations, nothing of it in the CPU's caches"
)
@pytest.mark.parametrize("number", NUMBERS)
def test_random_prompt(benchmark: BenchmarkFixture, number: int) -> None:
    """Look up a batch at a time; the texts are new, as they come from a request."""
    walker = filled(number)
    source = random.Random(0)

    def setup() -> tuple[tuple[list[str]], dict[str, object]]:
        numbers = (source.randrange(number) for _ in range(BATCH))
        return ([driven.conversation(i) for i in numbers],), {}

    def batch(texts: list[str]) -> None:
        for text in texts:
            walker.lookup(text, False)  # noqa: FBT003 - by position only

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        batch, setup=setup, rounds=100, warmup_rounds=2
    )
    notes.per(benchmark, "segment", SEGMENTS * BATCH)


@pytest.mark.benchmark(group="two conversations in turn, among other conversations")
@pytest.mark.parametrize("number", NUMBERS[1:])
def test_two_in_turn(benchmark: BenchmarkFixture, number: int) -> None:
    """The child used last is the wrong one each time, at the root."""
    walker = filled(number)
    texts = itertools.cycle([driven.conversation(i) for i in range(2)])
    benchmark(lambda: walker.lookup(next(texts), False))  # noqa: FBT003
    notes.per(benchmark, "segment", SEGMENTS)
