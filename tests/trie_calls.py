"""Call the compiled trie and its model alike, with arguments drawn from anything.

Arguments are numbers that are taken modulo what there is, so that any numbers make a
sequence of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lockstep import Lockstep, eligible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lockstep import Lane, Pending, Tokens

KEPT_TEXTS = 8  # of a root, to be encoded again
KEPT_CHARS = 2000  # a longer one takes the model long
KEPT_PLANS = 4
LONG = ("x" * 64, "x" * 65, "long tail " * 8, "\xe9" * 70, "ab" * 40, "\u4f60" * 66)
# One or more of each kind of str; "!" and "?" are what the encoder misbehaves on.
ALPHABET = "ab <>\xe9\u4f60\U0001f600!?"
TOKEN_SETS = [
    eligible([("<a>", 1), ("<b>", 1)]),
    # They nest, overlap each other and themselves; "<a" and "b" are not eligible.
    eligible([("<a", 1), ("<a>", 1), (">b<", 1), ("aa", 2), ("b", 2), ("\xe9<", 2)]),
    eligible([("<\u4f60>", 1), ("\U0001f600\U0001f600", 1), ("<<", 2), ("a>", 2)]),
]

Parts = list[int | str]  # what a text is made of: an added token by number, or any text


class Calls:
    """Wrappers on some roots of one trie, on both sides, and what they were asked."""

    both: Lockstep

    def make_tries(self, budgets: tuple[int, int], *, hash_bits: int) -> None:
        """Make the tries, without a root."""
        self.both = Lockstep(*budgets, hash_bits=hash_bits)
        self.texts: dict[int, list[str]] = {}  # by root, the latest last
        self.pending: list[Pending] = []

    def open_root(
        self, tokens: Tokens, flags: Sequence[bool], refuses: set[int]
    ) -> Lane:
        """Open a root with one wrapper; ``flags`` are those of the toy encoder."""
        lane = self.both.open_root(tokens, *flags, refuses=refuses)
        self.texts[lane.root] = [""]
        return lane

    def lane(self, index: int) -> Lane:
        return self.both.lanes[index % len(self.both.lanes)]

    def earlier(self, lane: Lane, which: int) -> str:
        texts = self.texts[lane.root]
        return texts[-1 - which % len(texts)]

    def make(self, lane: Lane, pieces: Parts, end: str) -> str:
        tokens = lane.scanners[1].contents
        strings = [p if isinstance(p, str) else tokens[p % len(tokens)] for p in pieces]
        return "".join(strings) + end

    def _note(self, lane: Lane, text: str) -> None:
        texts = self.texts[lane.root]
        if text not in texts and len(text) <= KEPT_CHARS:
            texts[:] = [*texts[1 - KEPT_TEXTS :], text]

    def encode(self, lane: Lane, text: str, *, special: bool = False) -> None:
        self.both.encode(lane, text, special=special)
        self._note(lane, text)

    def encode_new(self, lane: int, pieces: Parts, end: str, special: bool) -> None:
        """Encode any text."""
        a_lane = self.lane(lane)
        self.encode(a_lane, self.make(a_lane, pieces, end), special=special)

    def encode_again(self, lane: int, which: int, special: bool) -> None:
        """Encode an earlier text of the root, maybe by another wrapper."""
        a_lane = self.lane(lane)
        self.encode(a_lane, self.earlier(a_lane, which), special=special)

    def encode_elsewhere(self, lane: int, other: int, which: int) -> None:
        """Encode an earlier text of any root under any root."""
        self.encode(self.lane(lane), self.earlier(self.lane(other), which))

    def encode_next_turn(self, lane: int, which: int, pieces: Parts, end: str) -> None:
        """Encode an earlier text with more behind it."""
        a_lane = self.lane(lane)
        text = self.earlier(a_lane, which)
        self.encode(a_lane, text + self.make(a_lane, pieces, end))

    def encode_branch(
        self, lane: int, which: int, cut: int, pieces: Parts, end: str
    ) -> None:
        """Encode part of an earlier text with something else behind it."""
        a_lane = self.lane(lane)
        text = self.earlier(a_lane, which)
        kept = text[: cut % (len(text) + 1)]
        self.encode(a_lane, kept + self.make(a_lane, pieces, end))

    def encode_many(self, lane: int, salt: int, n: int, deep: bool) -> None:
        """Encode so many segments that tables grow, in one path or a path each."""
        a_lane = self.lane(lane)
        tokens = a_lane.scanners[1].contents
        texts = [f"{salt % 3} {i}{tokens[i % len(tokens)]}" for i in range(n)]
        for text in ["".join(texts)] if deep else texts[:20]:
            self.both.encode(a_lane, text)

    def encode_fat(self, lane: int, n: int, end: str) -> None:
        """Encode a segment that takes up much of a budget with room for sightings."""
        a_lane = self.lane(lane)
        self.encode(a_lane, "x" * n + a_lane.scanners[1].contents[0] + end)

    def encode_together(
        self, lane: int, which: int, drawn: list[tuple[int, Parts]], special: bool
    ) -> None:
        """Encode branches of an earlier text as a batch."""
        a_lane = self.lane(lane)
        text = self.earlier(a_lane, which)
        texts = [
            text[: cut % (len(text) + 1)] + self.make(a_lane, pieces, "")
            for cut, pieces in drawn
        ]
        self.both.encode_batch(a_lane, texts, special=special)
        for each in texts:
            self._note(a_lane, each)

    def count(self, lane: int, which: int, special: bool) -> None:
        """Count the ids of an earlier text."""
        a_lane = self.lane(lane)
        self.both.count(a_lane, self.earlier(a_lane, which), special=special)

    def look_up(
        self, lane: int, which: int, pieces: Parts, end: str, special: bool
    ) -> None:
        """Look a text up and leave its plan for later."""
        a_lane = self.lane(lane)
        text = self.earlier(a_lane, which) + self.make(a_lane, pieces, end)
        pending = self.both.begin(a_lane, text, special=special)
        if pending is not None:
            self.pending = [*self.pending[1 - KEPT_PLANS :], pending]

    def finish_one(self, which: int) -> None:
        """Finish a plan whose lookup was some calls ago."""
        self.both.finish(self.pending.pop(which % len(self.pending)))

    def finish_after_others(self, which: int, evict: bool) -> None:
        """Finish a plan after the same text, or after much else, was linked."""
        pending = self.pending.pop(which % len(self.pending))
        if evict:
            self.encode_many(which, which, 20, deep=False)
        else:
            self.encode(pending.lane, pending.text)
        self.both.finish(pending)

    def clear(self, lane: int, everything: bool) -> None:
        """Clear one root or everything."""
        self.both.clear(None if everything else self.lane(lane).root)

    def clear_walker(self, lane: int) -> None:
        """Clear a root and a wrapper's counters."""
        a_lane = self.lane(lane)
        a_lane.compiled.clear()
        a_lane.model.clear()
        assert a_lane.compiled.counters()[:4] == (0, 0, 0, 0)

    def count_oddities(self, lane: int) -> None:
        """Count what happens outside the trie."""
        for walker in (self.lane(lane).compiled, self.lane(lane).model):
            walker.count_pass_through()
            walker.count_self_check_failure()
