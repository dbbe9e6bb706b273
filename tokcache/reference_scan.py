"""A slow, obvious model of the scanner: leftmost, longest, in two phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

UNTRIED, TRUSTED, REFUSED = range(3)


class ReferenceScanner:
    """Find added tokens: leftmost, longest, phase 1 first, phase 2 in its gaps.

    ``tokens`` gives ``(content, id, phase, is_eligible)`` of each; the place among them
    is the token's index everywhere else.
    """

    def __init__(self, tokens: Iterable[tuple[str, int, int, bool]], /) -> None:
        rows = list(tokens)
        self.contents = tuple(content for content, _, _, _ in rows)
        self.ids = tuple(token_id for _, token_id, _, _ in rows)
        self._statuses = [UNTRIED if row[3] else REFUSED for row in rows]
        self._phases: dict[int, dict[str, int]] = {1: {}, 2: {}}
        if len(set(self.contents)) != len(rows):
            raise ValueError("an added token is given twice")
        for index, (content, token_id, phase, _) in enumerate(rows):
            if not content or phase not in self._phases or not 0 <= token_id < 1 << 32:
                msg = f"token, id or phase is not valid: {rows[index]}"
                raise ValueError(msg)
            self._phases[phase][content] = index
        # Longest first, of the tokens that begin with a character.
        self._lengths: dict[tuple[int, str], list[int]] = {}
        for content, _, phase, _ in sorted(rows, key=lambda row: -len(row[0])):
            lengths = self._lengths.setdefault((phase, content[0]), [])
            if len(content) not in lengths:
                lengths.append(len(content))

    def __len__(self) -> int:
        """Return the number of tokens, eligible or not."""
        return len(self.contents)

    def _chain(
        self, phase: int, text: str, start: int, stop: int
    ) -> list[tuple[int, int, int]]:
        """Return the matches of one phase in ``text[start:stop]``, left to right."""
        tokens = self._phases[phase]
        found = []
        position = start
        while position < stop:
            for length in self._lengths.get((phase, text[position]), ()):
                index = tokens.get(text[position : position + length])
                if index is not None and position + length <= stop:
                    found.append((position, position + length, index))
                    position += length
                    break
            else:
                position += 1
        return found

    def matches(self, text: str, start: int = 0, /) -> list[tuple[int, int, int]]:
        """Return ``(start, end, token index)`` of every match, in order.

        Runtime complexity: O(len(text) * number of different lengths of tokens).
        """
        if not 0 <= start <= len(text):
            msg = f"start must be within the text, got {start}"
            raise ValueError(msg)
        first = self._chain(1, text, start, len(text))
        gaps = zip(
            [start, *(end for _, end, _ in first)],
            [*(begin for begin, _, _ in first), len(text)],
            strict=True,
        )
        second = [found for gap in gaps for found in self._chain(2, text, *gap)]
        return sorted(first + second)

    def boundaries(self, text: str, start: int = 0, /) -> list[tuple[int, int]]:
        """Return ``(end, token index)`` of every match of an eligible token."""
        return [
            (end, index)
            for _, end, index in self.matches(text, start)
            if self._statuses[index] != REFUSED
        ]

    def status(self, index: int, /) -> int:
        """Return 0 for an eligible token not tried yet, 1 if trusted, 2 if refused."""
        return self._statuses[self._checked(index)]

    def trust(self, index: int, /) -> None:
        """Note that an untried token passed its first trial."""
        if self._statuses[self._checked(index)] == UNTRIED:
            self._statuses[index] = TRUSTED

    def refuse(self, index: int, /) -> None:
        """Make a token no boundary from now on."""
        self._statuses[self._checked(index)] = REFUSED

    def boundary_ids(self) -> set[int]:
        """Return the ids of the eligible tokens."""
        return {
            token_id
            for token_id, status in zip(self.ids, self._statuses, strict=True)
            if status != REFUSED
        }

    def _checked(self, index: int) -> int:
        if not 0 <= index < len(self.contents):
            msg = f"no token has the index {index}"
            raise IndexError(msg)
        return index
