"""Find the added tokens that get in each other's way, and say which would be matched.

Nothing here knows a tokenizer library. The rules are those of `tokenizers`: phase 1
takes the leftmost-longest chain of its tokens, then phase 2 that of its own in what is
left.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tokcache.eligibility import WHITE_SPACE, AddedTokenView, Contents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# A span of a text and what is looked for there.
Place = tuple[int, int, str]


class Pair(NamedTuple):
    """Hold two tokens of which only one can be matched in a text."""

    text: str
    left: Place
    right: Place


def every_assignment(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """List all the phases that tokens can be in."""
    for phases in itertools.product((1, 2), repeat=len(names)):
        yield dict(zip(names, phases, strict=True))


@dataclass(frozen=True, slots=True)
class Match:
    """Say which of the tokens that stand in a text would be taken."""

    text: str
    places: tuple[Place, ...]
    tokens: Mapping[str, AddedTokenView]

    @property
    def names(self) -> frozenset[str]:
        """The tokens in it."""
        return frozenset(content for _, _, content in self.places)

    def taken(self, phases: Mapping[str, int], last: int = 2) -> set[Place]:
        """Return the places that are taken if tokens are looked for in these phases."""
        taken: set[Place] = set()
        spans: list[tuple[int, int]] = []
        for phase in range(1, last + 1):
            end = 0
            chain = []
            for place in sorted(self.places, key=lambda place: (place[0], -place[1])):
                start, stop, content = place
                if (
                    phases[content] == phase
                    and start >= end
                    and all(stop <= left or right <= start for left, right in spans)
                ):
                    end = stop
                    chain.append(place)
            spans += map(self._stripped, chain)
            taken.update(chain)
        return taken

    def _stripped(self, place: Place) -> tuple[int, int]:
        """Return what a token takes of the text, with white space if it strips it."""
        start, end, content = place
        token = self.tokens[content]
        if token.lstrip:
            while start > 0 and self.text[start - 1] in WHITE_SPACE:
                start -= 1
        if token.rstrip:
            while end < len(self.text) and self.text[end] in WHITE_SPACE:
                end += 1
        return start, end

    def may_be(
        self, phases: Mapping[str, int], listed: Mapping[str, int], *, normalizes: bool
    ) -> bool:
        """Tell whether tokens in these phases could look like those that are listed.

        A normalizer can hide what phase 2 takes, but nothing of phase 1.
        """
        if normalizes:
            return self.taken(phases, 1) <= self.taken(listed)
        return self.taken(phases) == self.taken(listed)


class Groups:
    """Group texts that belong together, joined two by two."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def of(self, content: str) -> str:
        """Return the one text that stands for all of a group."""
        while (parent := self._parents.get(content)) is not None:
            content = parent
        return content

    def join(self, one: str, other: str) -> None:
        """Make one group of two."""
        one, other = self.of(one), self.of(other)
        if one != other:
            self._parents[other] = one


def conflicts(added: Sequence[AddedTokenView], contents: Contents) -> Iterator[Pair]:
    """List every way in which two tokens get in each other's way."""
    for token in added:
        text = token.content
        whole = (0, len(text), text)
        for place in contents.places(text):
            if place != whole:
                yield Pair(text, whole, place)
        for start, other in contents.past_the_end(text):
            if other != text:
                merged = text[:start] + other
                yield Pair(merged, whole, (start, len(merged), other))
    # White space that a token strips can be a part of another one.
    rstrip = [token.content for token in added if token.rstrip]
    lstrip = [token.content for token in added if token.lstrip]
    begins = [t.content for t in added if t.content[0] in WHITE_SPACE]
    ends = [t.content for t in added if t.content[-1] in WHITE_SPACE]
    for lefts, rights in ((rstrip, begins), (ends, lstrip)):
        for left in lefts:
            for right in rights:
                if left != right:
                    yield _side_by_side(left, right)


def _side_by_side(left: str, right: str) -> Pair:
    text = left + right
    return Pair(text, (0, len(left), left), (len(left), len(text), right))
