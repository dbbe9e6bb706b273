"""What looking for added tokens costs alone, by their number and by the text.

``markers`` all begin alike, as chat markers do, and the text has none of them;
``words`` begin with every letter, so that no first letter rules a place out. The names
of a real family's tokens are searched for in that family's own prompt.
"""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING

import pytest

from benchmarks import notes, prompts
from tests import data
from tokcache._scan import Scanner

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

CHARACTERS = 2**20
NUMBERS = (1, 26, 256, 10_000)


def plain_text() -> str:
    """Return a megabyte of real ASCII text."""
    parts, size = [], 0
    for message in prompts.messages():
        parts.append(message.replace("<", "("))
        size += len(message)
        if size >= CHARACTERS:
            break
    return "".join(parts)[:CHARACTERS]


def random_letters(source: random.Random, number: int) -> str:
    return "".join(source.choices(string.ascii_letters, k=number))


def markers(number: int) -> list[str]:
    return [f"<|marker_{i}|>" for i in range(number)]


def words(number: int) -> list[str]:
    source = random.Random(number)
    found: set[str] = set()
    while len(found) < number:
        found.add(random_letters(source, source.randint(5, 12)))
    return sorted(found)


def scanner(contents: list[str]) -> Scanner:
    return Scanner([(content, i, 1, True) for i, content in enumerate(contents)])


def scan(benchmark: BenchmarkFixture, scanner: Scanner, text: str) -> None:
    found = benchmark(scanner.boundaries, text)
    benchmark.extra_info["boundaries"] = len(found)
    notes.throughput(benchmark, len(text) * prompts.bytes_a_character(text))
    notes.per(benchmark, "character", len(text))


@pytest.mark.benchmark(group="scan of 1 MB of English for markers")
@pytest.mark.parametrize("number", NUMBERS)
def test_markers_in_english(benchmark: BenchmarkFixture, number: int) -> None:
    scan(benchmark, scanner(markers(number)), plain_text())


@pytest.mark.benchmark(group="scan of 1 MB of random letters for words")
@pytest.mark.parametrize("number", NUMBERS)
def test_words_in_random_letters(benchmark: BenchmarkFixture, number: int) -> None:
    text = random_letters(random.Random(0), CHARACTERS)
    scan(benchmark, scanner(words(number)), text)


@pytest.mark.benchmark(group="scan of 1 MB of random letters for markers")
@pytest.mark.parametrize("number", NUMBERS)
def test_markers_in_random_letters(benchmark: BenchmarkFixture, number: int) -> None:
    text = random_letters(random.Random(0), CHARACTERS)
    scan(benchmark, scanner(markers(number)), text)


@pytest.mark.benchmark(group="scan of 1 MB of English for a family's tokens")
@pytest.mark.parametrize("family", data.families())
def test_real_tokens_in_english(benchmark: BenchmarkFixture, family: str) -> None:
    found = prompts.scanner(family)
    benchmark.extra_info["tokens"] = len(found)
    scan(benchmark, found, plain_text())


@pytest.mark.benchmark(group="scan of a chat prompt, a boundary every 300 bytes")
@pytest.mark.parametrize("family", sorted({prompts.family(), prompts.ascii_family()}))
def test_chat_prompt(benchmark: BenchmarkFixture, family: str) -> None:
    text = prompts.chat(prompts.SEGMENTS, "english", family)
    scan(benchmark, prompts.scanner(family), text)
