"""Find strings that can overlap each other in some text."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def overlapping(
    contents: Iterable[str],
    others: Iterable[str] | None = None,
    *,
    itself: bool = False,
) -> dict[str, str]:
    """Map each string that can overlap one of the others in a text to such a one.

    Two strings overlap if one contains the other, or if one ends with what the other
    begins with. Without ``others`` the strings are compared with each other, and with
    ``itself`` one that begins with an end of its own counts too.

    Near linear in the length of all strings together.
    """
    found: dict[str, str] = {}
    ordered = sorted(set(contents) - {""})
    if others is None:
        for left, right in _meetings(ordered, ordered):
            if itself or left != right:
                found.setdefault(left, right)
                found.setdefault(right, left)
        return found
    other = sorted(set(others) - {""})
    for left, right in _meetings(ordered, other):
        found.setdefault(left, right)
    for left, right in _meetings(other, ordered):
        found.setdefault(right, left)
    return found


def _meetings(lefts: Sequence[str], rights: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of which the left one contains the right one or ends inside it.

    Both are sorted. Not every pair is yielded, but every string that is in one.
    """
    known = frozenset(rights)
    lengths = sorted({len(right) for right in rights})
    seen: set[str] = set()
    for left in lefts:
        for start in range(len(left)):
            rest = left[start:]
            for length in takewhile(len(rest).__ge__, lengths):
                if rest[:length] in known and rest[:length] != left:
                    yield left, rest[:length]
            if start:
                # The longer strings that begin so stand right behind it.
                longer = takewhile(
                    lambda right: right.startswith(rest),  # noqa: B023 (used at once)
                    islice(rights, bisect_right(rights, rest), None),
                )
                # All of them were yielded with the first left one that ends so. Two
                # are enough for another: one of them may be that string itself.
                for right in islice(longer, 2) if rest in seen else longer:
                    yield left, right
                seen.add(rest)
