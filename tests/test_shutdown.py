"""End a process while its threads encode: it ends as if there were no cache."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.allocator import run_alone
from tests.isolated import endings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# What a thread that is left behind has at hand is lost, whoever watches the core.
pytestmark = pytest.mark.usefixtures("no_leak_check")


@pytest.mark.parametrize("scenario", endings.QUIET, ids=lambda each: each.__name__)
def test_threads_are_left_behind(scenario: Callable[[], None]) -> None:
    for _ in range(2):  # where exactly they are then differs
        ran = run_alone(scenario)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_an_exception_is_told_as_ever() -> None:
    ran = run_alone(endings.exception_at_the_end)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Traceback (most recent call last):")
    assert ran.stderr.endswith("ZeroDivisionError\n")
    assert ran.stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (endings.at_exit, "encoded at exit\n"),
        (endings.at_the_very_end, "encoded when it went\n"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_it_can_be_used_to_the_end(scenario: Callable[[], None], said: str) -> None:
    ran = run_alone(scenario)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, said, "")


def test_metrics_in_files_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted since the thread wrote last is written at exit."""
    pytest.importorskip("prometheus_client")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    ran = run_alone(endings.metrics)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    files = list(tmp_path.glob("counter_*.db"))
    assert files
    for file in files:
        file.unlink()
    ran = run_alone(endings.metrics_at_the_end)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "tokcache_requests_total 1\n" in ran.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_end_that_were_forked_while_metrics_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own locks are not held by a thread that a child does not have."""
    pytest.importorskip("prometheus_client")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    ran = run_alone(endings.forks_while_metrics_are_written)
    assert (ran.returncode, ran.stdout) == (0, "no child hung\n"), ran.stderr


@pytest.mark.parametrize(
    "scenario",
    [endings.import_also_in_another, endings.import_first_in_another],
    ids=lambda each: each.__name__,
)
def test_a_second_interpreter_is_refused_or_works(scenario: Callable[[], None]) -> None:
    ran = run_alone(scenario)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
