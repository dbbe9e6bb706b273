"""What a cached prompt costs, beside the tokenizer that is wrapped.

``make bench`` prints each group with ratios: the raw tokenizer and the cached one see
the same prompt in the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import notes, prompts

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture
    from tokenizers import Tokenizer

    from tokcache import CachedTokenizer


@pytest.fixture
def prompt(raw: Tokenizer, cached: CachedTokenizer) -> str:
    text = prompts.chat()
    expected = raw.encode(text).ids
    for _ in range(3):
        assert cached.encode(text) == expected
    return text


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_raw_tokenizer(
    benchmark: BenchmarkFixture, raw: Tokenizer, prompt: str
) -> None:
    notes.describe(benchmark, prompt, len(raw.encode(prompt).ids))
    benchmark(raw.encode, prompt)


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_warm_hit_buffer(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    benchmark(cached.encode, prompt)
    notes.per(benchmark, "segment", prompts.SEGMENTS)


@pytest.mark.benchmark(group="prompt of 200 segments, all cached")
def test_warm_hit_list(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    benchmark(lambda: cached.encode(prompt).ids)
    notes.per(benchmark, "token", cached.count(prompt))


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
def test_raw_cold_as_the_cache_calls(
    benchmark: BenchmarkFixture, raw: Tokenizer, prompt: str
) -> None:
    """Call what the wrapper calls for a long text: what it adds is above this."""
    benchmark(lambda: raw.encode_batch_fast([prompt])[0].ids)


@pytest.mark.benchmark(group="prompt of 200 segments, nothing cached")
def test_cached_cold_miss(
    benchmark: BenchmarkFixture, cached: CachedTokenizer, prompt: str
) -> None:
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        cached.encode, args=(prompt,), setup=cached.clear_cache, rounds=30
    )
