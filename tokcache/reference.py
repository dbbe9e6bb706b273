"""A slow, obvious model of the index: the same rules, in dicts and lists.

`ReferenceScanner`, `ReferenceTrie`, `ReferenceWalker` and `ReferencePlan` have the
methods of the compiled `Scanner`, `Trie`, `Walker` and `Plan`, and give the same
answers after every step: ids, counters, entries, tails, bytes, evictions and the order
of the leaves. Tests and benchmarks run both side by side.

Where the compiled core follows pointers from one segment to the next, this one cuts the
whole text into pieces first and then looks each of them up. Ids come as plain tuples.
Not thread-safe.

>>> scanner = ReferenceScanner([("<a>", 9, 1, True)])
>>> trie = ReferenceTrie(1 << 20, 1 << 20)
>>> walker = ReferenceWalker(trie, trie.open_root(), scanner)
>>> plan = walker.lookup("x<a>y", False)
>>> plan.run_text(0), plan.feed(0, [1, 9, 2]), plan.finish()
('x<a>y', 0, (1, 9, 2))
>>> walker.lookup("x<a>y", False)
(1, 9, 2)
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tokcache._plan import BRIDGE_CHARS
from tokcache.reference_scan import UNTRIED, ReferenceScanner
from tokcache.reference_store import Identity, Piece
from tokcache.reference_trie import ReferenceTrie

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["ReferencePlan", "ReferenceScanner", "ReferenceTrie", "ReferenceWalker"]

TAKEN, SPLIT, WHOLE = range(3)  # what `feed` answers


class ReferenceWalker:
    """Bind one root of a trie to a scanner, the ids around a prompt, and counters.

    Without a ``root`` it opens one of its own, which stays open.
    """

    def __init__(  # noqa: PLR0913 - the compiled one's signature
        self,
        trie: ReferenceTrie,
        root: int | None,
        scanner: ReferenceScanner,
        before: Sequence[int] | None = (),
        after: Sequence[int] | None = (),
        *,
        extend_on_hit: bool = True,
        cache_tails: bool = True,
    ) -> None:
        self.trie = trie
        self.root = trie.open_root() if root is None else root
        self.scanner = scanner
        self.has_affixes = before is not None and after is not None
        self.before = tuple(before or ())
        self.after = tuple(after or ())
        self.extend_on_hit = extend_on_hit
        self.cache_tails = cache_tails
        self.hits = self.misses = self.cached_tokens = self.uncached_tokens = 0
        self.pass_throughs = self.self_check_failures = 0

    def lookup(self, text: str, special: bool, /) -> tuple[int, ...] | ReferencePlan:  # noqa: FBT001
        """Return the ids if all of the text is cached, else the plan that gets them."""
        if special and not self.has_affixes:
            raise ValueError("the ids around a prompt are not known")
        pieces = self.cut(text)
        path = self.trie.walk(self.root, pieces)
        self.trie.touch(path)
        if not path or len(path) < len(pieces):
            return ReferencePlan(self, pieces, len(path), special=special)
        matched = [segment.ids for segment in path[-1].path()]
        ids = self.around(itertools.chain(*matched), special=special)
        self.count_tokens(hit=True, cached=len(ids), uncached=0)
        return ids

    def count(self, text: str, special: bool, /) -> int | ReferencePlan:  # noqa: FBT001
        """Return the number of ids if all of the text is cached, else a plan."""
        found = self.lookup(text, special)
        return len(found) if isinstance(found, tuple) else found

    def cut(self, text: str) -> list[Piece]:
        """Cut a text into segments and, if it is not empty, a tail; or into nothing.

        Each piece has its ids if a segment of this root with its identity is resident.
        """
        ends: list[tuple[int, int | None]] = [*self.scanner.boundaries(text)]
        if not ends:
            return []
        if ends[-1][0] < len(text):
            ends.append((len(text), None))
        pieces = []
        start, anchor = 0, None
        for end, token in ends:
            identity = Identity(self.root, anchor, text[start:end], token is None)
            known = self.trie.segments.get(identity)
            pieces.append(Piece(identity, token, known.ids if known else None))
            start, anchor = end, token
        return pieces

    def around(self, ids: Iterable[int], *, special: bool) -> tuple[int, ...]:
        """Put the ids of ``add_special_tokens`` around others, if asked to."""
        return (*self.before, *ids, *self.after) if special else tuple(ids)

    def count_tokens(self, *, hit: bool, cached: int, uncached: int) -> None:
        """Count one call that got its ids."""
        self.hits += hit
        self.misses += not hit
        self.cached_tokens += cached
        self.uncached_tokens += uncached

    def count_pass_through(self) -> None:
        """Count a call that went to the inner tokenizer without a lookup."""
        self.pass_throughs += 1

    def count_self_check_failure(self) -> None:
        """Count a failed self-check."""
        self.self_check_failures += 1

    def clear(self) -> None:
        """Drop what the root holds and set hits, misses and token counts to zero."""
        self.trie.clear(self.root)
        self.hits = self.misses = self.cached_tokens = self.uncached_tokens = 0

    def counters(self) -> tuple[int, int, int, int, int, int]:
        """Return hits, misses, cached and uncached tokens, pass-throughs, failures."""
        return (
            self.hits,
            self.misses,
            self.cached_tokens,
            self.uncached_tokens,
            self.pass_throughs,
            self.self_check_failures,
        )


class ReferencePlan:
    """Lead one prompt that is not fully cached to its ids: feed each run, then finish.

    Any number of plans may be under way at once; one that is dropped changes nothing.
    """

    def __init__(
        self,
        walker: ReferenceWalker,
        pieces: list[Piece],
        n_matched: int,
        *,
        special: bool,
    ) -> None:
        self.walker = walker
        self.hit = n_matched > 0
        self.has_boundary = bool(pieces)
        self.cached_tokens = self.uncached_tokens = 0
        self._special = special
        self._pieces = pieces
        self._n_matched = n_matched
        self._clears = walker.trie.clears[walker.root]
        self._runs = self._find_runs()
        self._fed: set[int] = set()
        scanner = walker.scanner
        tokens = {token for _, token, _ in pieces[n_matched:] if token is not None}
        self.untried = sorted(t for t in tokens if scanner.status(t) == UNTRIED)

    @property
    def n_runs(self) -> int:
        """Return how many runs there are to feed."""
        return len(self._runs)

    def _find_runs(self) -> list[range]:
        """Group the places of unknown pieces, and of bridges between them."""
        pieces = self._pieces
        unknown = [
            i for i in range(self._n_matched, len(pieces)) if pieces[i].ids is None
        ]
        runs: list[range] = []
        for i in unknown:
            if runs:
                gap = pieces[runs[-1].stop : i]
                if sum(len(piece.identity.text) for piece in gap) <= BRIDGE_CHARS:
                    runs[-1] = range(runs[-1].start, i + 1)
                    continue
            runs.append(range(i, i + 1))
        return runs

    def _behind_anchor(self, places: range) -> str:
        texts = [self._pieces[i].identity.text for i in places]
        anchor = self._pieces[places.start].identity.anchor
        if anchor is None:
            return "".join(texts)
        return self.walker.scanner.contents[anchor] + "".join(texts)

    def run_text(self, i: int, /) -> str:
        """Return the text to encode for a run: its anchor, then its pieces."""
        return self._behind_anchor(self._runs[i])

    def segment_texts(self, i: int, /) -> list[str]:
        """Return the texts of a run's pieces, each behind its own anchor."""
        return [self._behind_anchor(range(k, k + 1)) for k in self._runs[i]]

    def boundary_tokens(self) -> list[str]:
        """Return the boundary tokens of what is not matched, each once, in order."""
        tokens = [piece.token for piece in self._pieces[self._n_matched :]]
        contents = self.walker.scanner.contents
        return [contents[t] for t in dict.fromkeys(tokens) if t is not None]

    def _without_anchor(self, place: int, ids: Iterable[int]) -> list[int] | None:
        """Take the anchor's id off the front of ids; None if it is not there."""
        ids = list(ids)
        anchor = self._pieces[place].identity.anchor
        if anchor is None:
            return ids
        return ids[1:] if ids[:1] == [self.walker.scanner.ids[anchor]] else None

    def feed(self, i: int, ids: Iterable[int], /) -> int:
        """Take the ids of ``run_text(i)`` and check them.

        Returns 0 if they were taken; 1 if the boundary ids among them are not those of
        the scan, in order: encode ``segment_texts(i)`` and call ``feed_segments``; 2 if
        the first id is not the anchor's: encode the whole text, call ``finish_whole``.
        """
        self._fed.discard(i)  # what was taken before is not kept
        rest = self._without_anchor(self._runs[i].start, ids)
        if rest is None:
            return WHOLE
        scanner = self.walker.scanner
        boundary_ids = scanner.boundary_ids()
        split: list[list[int]] = [[]]
        for token_id in rest:
            split[-1].append(token_id)
            if token_id in boundary_ids:
                split.append([])
        tokens = [self._pieces[k].token for k in self._runs[i]]
        expected = [scanner.ids[token] for token in tokens if token is not None]
        ends_in_tail = tokens[-1] is None
        if [part[-1] for part in split[:-1]] != expected or (
            split[-1] and not ends_in_tail
        ):
            return SPLIT
        self._take(i, split[: len(tokens)])
        return TAKEN

    def feed_segments(self, i: int, all_ids: Iterable[Iterable[int]], /) -> int:
        """Take the ids of each of ``segment_texts(i)``, checked at their ends only."""
        self._fed.discard(i)
        split = []
        for k, ids in zip(self._runs[i], all_ids, strict=True):
            rest = self._without_anchor(k, ids)
            if rest is None:
                return WHOLE
            token = self._pieces[k].token
            if token is not None and rest[-1:] != [self.walker.scanner.ids[token]]:
                return WHOLE
            split.append(rest)
        self._take(i, split)
        return TAKEN

    def _take(self, i: int, split: Sequence[Sequence[int]]) -> None:
        for k, ids in zip(self._runs[i], split, strict=True):
            self._pieces[k] = self._pieces[k]._replace(ids=tuple(ids))
        self._fed.add(i)

    def finish(self) -> tuple[int, ...]:
        """Return the ids of the whole text and link what is new.

        Nothing is linked after a clear, nor where the matched path is no longer there.
        """
        if not self.has_boundary or len(self._fed) < self.n_runs:
            raise RuntimeError(
                "not all runs were fed, or a text without a boundary has none"
            )
        walker, trie = self.walker, self.walker.trie
        all_ids = [piece.ids or () for piece in self._pieces]
        ids = walker.around(itertools.chain(*all_ids), special=self._special)
        fresh = sum(len(all_ids[k]) for run in self._runs for k in run)
        if (
            (walker.extend_on_hit or not self.hit)
            and self._clears == trie.clears[walker.root]
            and len(trie.walk(walker.root, self._pieces)) >= self._n_matched
        ):
            trie.link(
                walker.root,
                self._pieces,
                self._n_matched,
                tails_allowed=walker.cache_tails,
            )
        return self._counted(ids, fresh)

    def finish_whole(self, ids: Iterable[int], /) -> tuple[int, ...]:
        """Return the inner tokenizer's ids of the whole text; nothing is linked."""
        ids = tuple(ids)
        return self._counted(ids, len(ids))

    def _counted(self, ids: tuple[int, ...], fresh: int) -> tuple[int, ...]:
        self.uncached_tokens = fresh
        self.cached_tokens = len(ids) - fresh
        self.walker.count_tokens(
            hit=self.hit, cached=self.cached_tokens, uncached=fresh
        )
        return ids
