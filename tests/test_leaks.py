"""Repeat what is done with a cache in a fresh interpreter: nothing may stay behind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.allocator import own_allocator, run_alone
from tests.isolated import (
    leaks_in_core,
    leaks_in_errors,
    leaks_in_use,
    leaks_on_purpose,
)
from tests.isolated.growth import Held

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType


def scenarios(*modules: ModuleType) -> list[Callable[[], None]]:
    """Return what is to be tried of modules."""
    return [
        each
        for module in modules
        for each in vars(module).values()
        if hasattr(each, "__wrapped__") and each.__module__ == module.__name__
    ]


@pytest.mark.parametrize(
    "scenario",
    scenarios(leaks_in_use, leaks_in_errors, leaks_in_core),
    ids=lambda scenario: scenario.__name__,
)
def test_nothing_stays(scenario: Callable[[], None], tmp_path: Path) -> None:
    library = own_allocator(tmp_path)
    if library is None and scenario is leaks_in_errors.refused_memory:
        pytest.skip("needs Linux, a C compiler and no other preloaded library")
    ran = run_alone(scenario, library)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("scenario", "shown"),
    [
        (leaks_on_purpose.leaked_object, {"blocks", "core_blocks"}),
        (leaks_on_purpose.leaked_reference, {"references"}),
        (leaks_on_purpose.leaked_container, {"objects", "references", "blocks"}),
        (leaks_on_purpose.kept_result, {"references", "blocks", "core_blocks"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.usefixtures("no_leak_check")
def test_a_leak_is_seen(
    scenario: Callable[[], None], shown: set[str], tmp_path: Path
) -> None:
    """Without this the test above would prove nothing."""
    library = own_allocator(tmp_path)
    ran = run_alone(scenario, library)
    assert ran.returncode != 0
    counts = dict(re.findall(r"(\w+)=(-?\d+)", ran.stderr.rpartition("Held")[2]))
    assert set(counts) == set(Held._fields)
    if library is None:
        shown = shown - {"core_blocks"}
    assert {name for name, n in counts.items() if int(n) >= 30} == shown
