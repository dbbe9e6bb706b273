"""What a prompt costs that was seen before as it is, with its tail.

A chat prompt ends with the generation prompt, a short tail; a prompt that ends in the
middle of a message has a long one. Neither calls the tokenizer again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import notes, prompts
from tests import data

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture
    from tokenizers import Tokenizer

    from tokcache import CachedTokenizer

GENERATION = data.chat_format(prompts.family()).generation
ENDS = {
    "at a boundary": "",
    "with the generation prompt": GENERATION + "\n",
    "with a long tail": next(prompts.messages()),
}


@pytest.mark.benchmark(group="exact repeat of 200 segments")
@pytest.mark.parametrize("end", ENDS)
def test_repeat(
    benchmark: BenchmarkFixture, raw: Tokenizer, cached: CachedTokenizer, end: str
) -> None:
    text = prompts.chat() + ENDS[end]
    expected = raw.encode(text).ids
    for _ in range(3):
        assert cached.encode(text) == expected
    notes.describe(benchmark, text, len(expected))
    benchmark(cached.encode, text)


@pytest.mark.benchmark(group="exact repeat of 200 segments")
def test_repeat_in_a_new_str(
    benchmark: BenchmarkFixture, cached: CachedTokenizer
) -> None:
    """Nothing hangs on the identity of the str, as it does for ``lru_cache``."""
    text = prompts.chat()
    for _ in range(3):
        cached.encode(text)

    def setup() -> tuple[tuple[str], dict[str, str]]:
        return (text[:-1] + text[-1],), {}

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        cached.encode, setup=setup, rounds=2000, warmup_rounds=10
    )
