"""Note rates beside a benchmark's time, where it was timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import prompts

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


def median(benchmark: BenchmarkFixture) -> float | None:
    """Return the median of one round in seconds; None while benchmarks are off."""
    return None if benchmark.stats is None else float(benchmark.stats.stats.median)


def per(benchmark: BenchmarkFixture, unit: str, number: float) -> None:
    """Note the nanoseconds that each of ``number`` units took."""
    taken = median(benchmark)
    if taken is not None:
        benchmark.extra_info[f"ns per {unit}"] = taken * 1e9 / number


def throughput(benchmark: BenchmarkFixture, number_of_bytes: int) -> None:
    """Note megabytes a second."""
    taken = median(benchmark)
    if taken is not None:
        benchmark.extra_info["MB/s"] = number_of_bytes / taken / 1e6


def bytes_moved(text: str, tokens: int) -> int:
    """Return what a hit compares and copies: the text as it lies in memory, the ids."""
    return len(text) * prompts.bytes_a_character(text) + 4 * tokens


def describe(benchmark: BenchmarkFixture, text: str, tokens: int) -> None:
    """Note what was encoded."""
    benchmark.extra_info.update(
        characters=len(text),
        utf8=len(text.encode()),
        in_memory=len(text) * prompts.bytes_a_character(text),
        tokens=tokens,
    )
