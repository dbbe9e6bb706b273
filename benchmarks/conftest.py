"""What the benchmarks share: the measured tokenizer, and rates under the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import prompts
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@pytest.fixture(scope="session")
def raw() -> Tokenizer:
    return data.load_family(prompts.family())


@pytest.fixture
def cached(raw: Tokenizer) -> CachedTokenizer:
    """Make a cache with nothing in it."""
    return CachedTokenizer(raw)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what each benchmark noted besides its time: MB/s, ns for each byte, ..."""
    session = getattr(config, "_benchmarksession", None)
    lines = [
        (f"{bench.group or ''}: {bench.name}", bench.extra_info)
        for bench in getattr(session, "benchmarks", ())
        if bench.extra_info
    ]
    if lines:
        terminalreporter.section("benchmark notes")
    for name, notes in lines:
        written = ", ".join(
            f"{key} {value:,.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in notes.items()
        )
        terminalreporter.write_line(f"{name}: {written}")
