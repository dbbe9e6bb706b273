"""The trie beside other indexes over the same boundaries.

Each finds the longest cached prefix of a text that is cached to its end, from the same
boundaries. The others are given the boundaries; the trie finds them by itself and
compares every character, while a hash is trusted. ``hash_whole`` hashes the text once
in one call: no scheme that hashes every prefix can be faster.

A sorted list of whole prefixes needs few comparisons for a text that is all cached, but
holds every character once for each boundary behind it: 600 MB for 2,000 boundaries. So
beside its time its bytes are noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sortedcontainers import SortedDict

from benchmarks import driven, notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

blake3 = pytest.importorskip("blake3").blake3

NUMBERS = (20, 200, 2_000)
CHARACTERS_A_SEGMENT = 300
GROUP = "longest of {} cached prefixes of 300 bytes each"

numbers = pytest.mark.parametrize("number", NUMBERS)


def ends_of(text: str) -> list[int]:
    return [end for end, _ in driven.walker().scanner.boundaries(text)]


def text_and_ends(number: int) -> tuple[str, list[int]]:
    text = driven.conversation(0, number, number * CHARACTERS_A_SEGMENT)
    ends = ends_of(text)
    assert len(ends) == number
    return text, ends


def cached_texts(text: str, ends: list[int]) -> Iterator[str]:
    """Yield two texts that fork off in the middle, sorting around it, then it."""
    fork = text[: ends[len(ends) // 2]]
    for first in "!~":
        yield fork + first + driven.conversation(1)
    yield text


def grouped(benchmark: BenchmarkFixture, number: int) -> None:
    benchmark.group = GROUP.format(number)


def prefix_hashes(text: str, ends: list[int]) -> list[bytes]:
    """Hash every prefix incrementally, as upstream does."""
    data = memoryview(text.encode())
    hasher = blake3()
    digests = []
    start = 0
    for end in ends:  # ASCII: an offset in characters is one in bytes
        hasher.update(data[start:end])
        digests.append(hasher.digest())
        start = end
    return digests


@numbers
def test_trie_and_ids(benchmark: BenchmarkFixture, number: int) -> None:
    """Walk, and copy the ids."""
    grouped(benchmark, number)
    text, ends = text_and_ends(number)
    walker = driven.walker()
    for other in cached_texts(text, ends):
        ids = driven.encode(walker, other)
    assert benchmark(walker.lookup, text, False) == ids  # noqa: FBT003
    notes.per(benchmark, "boundary", number)


@numbers
def test_trie(benchmark: BenchmarkFixture, number: int) -> None:
    """Walk alone, which is what the others do."""
    grouped(benchmark, number)
    text, ends = text_and_ends(number)
    walker = driven.walker()
    for other in cached_texts(text, ends):
        ids = driven.encode(walker, other)
    assert benchmark(walker.count, text, False) == len(ids)  # noqa: FBT003
    notes.per(benchmark, "boundary", number)


@numbers
def test_incremental_hashes(benchmark: BenchmarkFixture, number: int) -> None:
    grouped(benchmark, number)
    text, ends = text_and_ends(number)
    index = {
        digest: i
        for other in cached_texts(text, ends)
        for i, digest in enumerate(prefix_hashes(other, ends_of(other)))
    }

    def longest() -> int:
        for digest in reversed(prefix_hashes(text, ends)):
            if digest in index:
                return index[digest]
        return -1

    assert benchmark(longest) == number - 1
    notes.per(benchmark, "boundary", number)


@numbers
def test_hash_whole(benchmark: BenchmarkFixture, number: int) -> None:
    grouped(benchmark, number)
    text, _ = text_and_ends(number)
    benchmark(lambda: blake3(text.encode()).digest())
    notes.per(benchmark, "boundary", number)


@numbers
def test_sorted_dict(benchmark: BenchmarkFixture, number: int) -> None:
    """Bisect among whole prefixes: the last that is not greater, or one before it."""
    grouped(benchmark, number)
    text, ends = text_and_ends(number)
    index = SortedDict(
        {
            other[:end]: i
            for other in cached_texts(text, ends)
            for i, end in enumerate(ends_of(other))
        }
    )
    keys = index.keys()
    text += " "  # no key is the very same str
    benchmark.extra_info["MB of keys"] = sum(map(len, keys)) / 1e6

    def longest() -> int:
        at = index.bisect_right(text) - 1
        while at >= 0 and not text.startswith(keys[at]):
            at -= 1
        return index[keys[at]] if at >= 0 else -1

    assert benchmark(longest) == number - 1
    notes.per(benchmark, "boundary", number)
