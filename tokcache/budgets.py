"""The numbers that a cache is given, checked in one place."""

from __future__ import annotations

import operator

DEFAULT_MEMORY_BYTES = 64 * 2**20

# What is stored for an id takes its four bytes, about as many of text, and a share of
# nodes and tables; the constant lets a small budget have its tables too.
RESIDENT_FACTOR = 4
RESIDENT_BASE = 2**20

# Any larger number bounds nothing; the counters are 64 bits wide.
_LARGEST = 2**62


def check_budgets(
    max_memory_bytes: int, max_resident_bytes: int | None
) -> tuple[int, int]:
    """Return both budgets in bytes, the second with its default.

    Raises ``ValueError`` for one that is negative or not an integer.
    """
    memory = _budget("max_memory_bytes", max_memory_bytes)
    if max_resident_bytes is None:
        return memory, min(RESIDENT_FACTOR * memory + RESIDENT_BASE, _LARGEST)
    return memory, _budget("max_resident_bytes", max_resident_bytes)


def _budget(name: str, value: int) -> int:
    message = f"{name} must be an integer >= 0, got {value!r}"
    if isinstance(value, bool):
        raise ValueError(message)  # noqa: TRY004 - one exception for every bad budget
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(message) from None
    if number < 0:
        raise ValueError(message)
    return min(number, _LARGEST)


def check_max_chars(value: int | None) -> int | None:
    """Return a bound for texts; ``ValueError`` for one that is negative or none."""
    return None if value is None else _budget("max_chars", value)


def check_share(name: str, value: float) -> float:
    """Return a share from 0 to 1; ``ValueError`` for what is none."""
    if isinstance(value, bool) or not (
        isinstance(value, (int, float)) and 0 <= value <= 1
    ):
        msg = f"{name} must be a number from 0 to 1, got {value!r}"
        raise ValueError(msg)
    return float(value)
