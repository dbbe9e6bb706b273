"""Set how long hypothesis tries; say at the end what the conformance tests compared."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=500, print_blob=True)
settings.register_profile("brief", deadline=None, max_examples=5)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def no_leak_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes that lose memory, as they must, without a sanitizer's check."""
    options = os.environ.get("ASAN_OPTIONS")
    if options is not None:
        monkeypatch.setenv("ASAN_OPTIONS", f"{options}:detect_leaks=0")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Write a line for each family; the properties come through xdist as well."""
    tallies = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in report.user_properties
        if name == "conformance"
    ]
    if not tallies:
        return
    terminalreporter.section("conformance")
    line = "{:28}{:>7}{:>9}{:>13}{:>12}{:>13}{:>14}".format
    terminalreporter.line(
        line(
            "family",
            "talks",
            "prompts",
            "tokens",
            "mismatches",
            "over budget",
            "growing, hits",
        )
    )
    for tally in sorted(tallies, key=lambda each: str(each["family"])):
        terminalreporter.line(
            line(
                tally["family"],
                tally["conversations"],
                tally["prompts"],
                f"{tally['tokens']:,}",
                tally["mismatches"],
                tally["excesses"],
                f"{tally['growing_hit_rate']:.1%}",
            )
        )
    terminalreporter.line(
        line(
            f"{len(tallies)} in all",
            sum(tally["conversations"] for tally in tallies),
            sum(tally["prompts"] for tally in tallies),
            f"{sum(tally['tokens'] for tally in tallies):,}",
            sum(tally["mismatches"] for tally in tallies),
            sum(tally["excesses"] for tally in tallies),
            "",
        )
    )
