"""What the script of a text costs: ASCII, Chinese, emoji; for each byte that is moved.

CPython keeps a text in one, two or four bytes a character. A hit compares the text in
that form and copies four bytes a token, so time is put beside those bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import notes, prompts
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.benchmark(group="200 segments by script")
@pytest.mark.parametrize("script", prompts.SCRIPTS)
def test_warm_hit(benchmark: BenchmarkFixture, script: str) -> None:
    family = prompts.ascii_family()  # whose markers widen no text
    raw = data.load_family(family)
    cached = CachedTokenizer(raw)
    text = prompts.chat(script=script, of=family)
    expected = raw.encode(text).ids
    for _ in range(3):
        assert cached.encode(text) == expected
    notes.describe(benchmark, text, len(expected))
    benchmark(cached.encode, text)
    notes.per(benchmark, "byte moved", notes.bytes_moved(text, len(expected)))
    notes.per(benchmark, "character", len(text))


@pytest.mark.benchmark(group="200 segments by script")
def test_ascii_segments_in_a_wider_text(benchmark: BenchmarkFixture) -> None:
    """An emoji at the end widens the whole str: each segment is compared widened."""
    family = prompts.ascii_family()
    cached = CachedTokenizer(data.load_family(family))
    text = prompts.chat(of=family)
    wide = text + prompts.EMOJI[0]
    for _ in range(3):
        cached.encode(text)
        cached.encode(wide)
    tokens = cached.count(wide)
    notes.describe(benchmark, wide, tokens)
    benchmark(cached.encode, wide)
    notes.per(benchmark, "byte moved", notes.bytes_moved(wide, tokens))
