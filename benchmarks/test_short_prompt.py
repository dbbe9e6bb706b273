"""What a short prompt costs: 200 characters, three segments, all seen before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import notes, prompts
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

FAMILIES = sorted({prompts.family(), prompts.ascii_family()})


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.benchmark(group="prompt of 3 segments, all cached")
def test_raw_short(benchmark: BenchmarkFixture, family: str) -> None:
    raw = data.load_family(family)
    benchmark(raw.encode, prompts.short(family))


@pytest.mark.benchmark(group="prompt of 3 segments, all cached")
@pytest.mark.parametrize("answer", ["buffer", "list", "count"])
def test_cached_short(benchmark: BenchmarkFixture, family: str, answer: str) -> None:
    raw = data.load_family(family)
    cached = CachedTokenizer(raw)
    text = prompts.short(family)
    expected = raw.encode(text).ids
    for _ in range(3):
        assert cached.encode(text) == expected
    notes.describe(benchmark, text, len(expected))
    if answer == "count":
        benchmark(cached.count, text)
    elif answer == "list":
        benchmark(lambda: cached.encode(text).ids)
    else:
        benchmark(cached.encode, text)
