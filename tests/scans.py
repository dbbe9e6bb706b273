"""Scan a text in three ways, and compare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokcache._scan import Scanner
from tokcache.reference import ReferenceScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

Tokens = list[tuple[str, int, int, bool]]
Match = tuple[int, int, int]

# ASCII, Latin-1, BMP and astral; pairs that share their low byte or the low 16 bits.
KINDS = ["ab<|>", "a\xe9\xff<", "a\u0161\u4f60<", "a\u4e61\U0001f600\U00010061<"]


def numbered(
    contents: Sequence[str],
    phases: Sequence[int] = (1,),
    ineligible: Sequence[int] = (),
) -> Tokens:
    """Give tokens ids; phases are repeated as often as needed."""
    return [
        (content, 100 + i, phases[i % len(phases)], i not in ineligible)
        for i, content in enumerate(contents)
    ]


def by_regex(tokens: Tokens, text: str, start: int) -> list[Match]:
    """Find the matches a third way: an alternation takes the first that fits."""
    indexes = {content: i for i, (content, _, _, _) in enumerate(tokens)}
    patterns = {}
    for phase in (1, 2):
        contents = [
            content for content, _, its_phase, _ in tokens if its_phase == phase
        ]
        longest_first = sorted(contents, key=len, reverse=True)
        # Without a token a pattern that matches nowhere.
        patterns[phase] = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def chain(phase: int, begin: int, end: int) -> list[Match]:
        found = patterns[phase].finditer(text, begin, end)
        return [(m.start(), m.end(), indexes[m[0]]) for m in found]

    matches = []
    position = start
    for match in [*chain(1, start, len(text)), (len(text), len(text), -1)]:
        matches += chain(2, position, match[0])
        matches.append(match)
        position = match[1]
    return matches[:-1]


def assert_same(tokens: Tokens, text: str, start: int = 0) -> list[Match]:
    """Compare all of a scan with the model and with `re`; return the matches."""
    scanner, model = Scanner(tokens), ReferenceScanner(tokens)
    matches = scanner.matches(text, start)
    assert matches == model.matches(text, start) == by_regex(tokens, text, start)
    assert scanner.boundaries(text, start) == model.boundaries(text, start)
    return matches
