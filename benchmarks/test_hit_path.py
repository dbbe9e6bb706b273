"""What a cached prompt costs, beside the tokenizer that is wrapped.

``make bench`` prints each group with ratios: the raw tokenizer and the cached one see
the same prompt in the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import prompts
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture
    from tokenizers import Tokenizer


@pytest.fixture(scope="module")
def raw() -> Tokenizer:
    return data.load_family(prompts.family())


@pytest.fixture(scope="module")
def cached(raw: Tokenizer) -> CachedTokenizer:
    return CachedTokenizer(raw)


def trimmed(cached: CachedTokenizer, segments: int) -> str:
    """Cut the chat prompt behind its last boundary, so that it has no tail."""
    text = prompts.chat(segments)
    boundaries = cached._state.walker.scanner.boundaries(text)
    return text[: boundaries[min(segments, len(boundaries)) - 1][0]]


@pytest.fixture(scope="module")
def prompt(raw: Tokenizer, cached: CachedTokenizer) -> str:
    text = trimmed(cached, prompts.SEGMENTS)
    expected = raw.encode(text).ids
    for _ in range(3):
        assert cached.encode(text) == expected
    return text


def describe(benchmark: BenchmarkFixture, prompt: str, cached: CachedTokenizer) -> None:
    benchmark.extra_info.update(
        family=prompts.family(),
        characters=len(prompt),
        bytes=len(prompt.encode()),
        segments=len(cached._state.walker.scanner.boundaries(prompt)),
        tokens=cached.count(prompt),
    )


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_raw_tokenizer(
    benchmark: BenchmarkFixture, raw: Tokenizer, prompt: str, cached: CachedTokenizer
) -> None:
    describe(benchmark, prompt, cached)
    benchmark(raw.encode, prompt)


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_warm_hit_buffer(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    describe(benchmark, prompt, cached)
    benchmark(cached.encode, prompt)


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_warm_hit_list(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    benchmark(lambda: cached.encode(prompt).ids)


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_warm_count(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    benchmark(cached.count, prompt)


@pytest.mark.benchmark(group="one new turn on a cached prompt")
def test_raw_new_turn(benchmark: BenchmarkFixture, raw: Tokenizer, prompt: str) -> None:
    turns = iter(range(10**9))
    benchmark(lambda: raw.encode(f"{prompt}What about {next(turns)}?"))


@pytest.mark.benchmark(group="one new turn on a cached prompt")
def test_cached_new_turn(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    turns = iter(range(10**9))
    benchmark(lambda: cached.encode(f"{prompt}What about {next(turns)}?"))


@pytest.mark.benchmark(group="prompt of 200 segments, nothing cached")
def test_raw_cold(benchmark: BenchmarkFixture, raw: Tokenizer, prompt: str) -> None:
    benchmark(raw.encode, prompt)


@pytest.mark.benchmark(group="prompt of 200 segments, nothing cached")
def test_cached_cold_miss(
    benchmark: BenchmarkFixture, raw: Tokenizer, prompt: str
) -> None:
    cached = CachedTokenizer(raw)
    cached.encode(prompt)  # every boundary token has had its first trial

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        cached.encode, args=(prompt,), setup=cached.clear_cache, rounds=30
    )


@pytest.mark.benchmark(group="prompt of 3 segments, all cached")
def test_raw_short(
    benchmark: BenchmarkFixture, raw: Tokenizer, cached: CachedTokenizer
) -> None:
    benchmark(raw.encode, trimmed(cached, 3)[-200:])


@pytest.mark.benchmark(group="prompt of 3 segments, all cached")
def test_cached_short(benchmark: BenchmarkFixture, cached: CachedTokenizer) -> None:
    text = trimmed(cached, 3)[-200:]
    for _ in range(3):
        cached.encode(text)
    benchmark(cached.encode, text)
