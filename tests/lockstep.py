"""Do the same to the compiled trie and to its plain-Python model, and compare.

What both answer must be equal, and must be what a toy encoder gives for the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from tokcache._batch import Batch
from tokcache._ids import TokenIds
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker
from tokcache.reference import (
    ReferencePlan,
    ReferenceScanner,
    ReferenceTrie,
    ReferenceWalker,
)
from tokcache.reference_policy import MIN_LINES, SKETCH_SHARE, Sketch

if TYPE_CHECKING:
    from collections.abc import Iterable

Tokens = list[tuple[str, int, int, bool]]

TAKEN, SPLIT, WHOLE = range(3)  # what `feed` answers: it took the ids, or not
SKETCH_MIN_BUDGET = SKETCH_SHARE * Sketch.bytes_of(MIN_LINES)
UNBOUNDED = 1 << 40


def eligible(tokens: list[tuple[str, int]]) -> Tokens:
    """Give each ``(content, phase)`` an id and judge whether it may be a boundary."""
    first = [content for content, phase in tokens if phase == 1]
    judged = []
    for index, (content, phase) in enumerate(tokens):
        peers = [other for other, its_phase in tokens if its_phase == phase]
        is_eligible = not any(content in other[:-1] for other in peers) and (
            phase == 1
            or not any(
                other in content or content in other[:-1] or _straddles(content, other)
                for other in first
            )
        )
        judged.append((content, 10 + index, phase, is_eligible))
    return judged


def _straddles(content: str, other: str) -> bool:
    """Tell whether ``other`` may begin inside ``content`` and end past it."""
    return any(content.endswith(other[:n]) for n in range(1, len(other)))


@dataclass
class ToyEncoder:
    """Encode deterministically, looking left no further than the last added token.

    ``leaks``: "!" gives the id of the first token. ``fuses``: a "?" swallows an added
    token just before it, so that the token's id is missing. ``strips``: spaces behind
    an added token vanish. Not the first two together: an id that is missing and the
    same id where it does not belong look right to whoever compares ids.
    """

    scanner: ReferenceScanner
    leaks: bool = False
    fuses: bool = False
    strips: bool = False

    def __post_init__(self) -> None:
        assert not (self.leaks and self.fuses)

    def __call__(self, text: str) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = []
        position, last = 0, -1
        for start, end, token in self.scanner.matches(text):
            ids += self._plain(text[position:start], ids, last)
            ids.append(self.scanner.ids[token])
            position, last = end, token
        return ids + self._plain(text[position:], ids, last)

    def _plain(self, text: str, ids: list[int], last: int) -> list[int]:
        """Encode what is behind a token: equal neighbours are one id."""
        if last >= 0 and self.strips:
            text = text.lstrip(" ")
        found = []
        for char, group in groupby(text):
            if char == "!" and self.leaks and self.scanner.ids:
                found += [self.scanner.ids[0]] * len(list(group))
            else:
                found.append(1000 + 0x110000 * (len(list(group)) % 8) + ord(char))
        if found and last >= 0:
            found[0] += 0x1000000 * (last + 1)
            if text.startswith("?") and self.fuses:
                ids.pop()
        return found


@dataclass(frozen=True)
class Lane:
    """One wrapper on both sides, and the encoder behind it."""

    root: int
    compiled: Walker
    model: ReferenceWalker
    scanners: tuple[Scanner, ReferenceScanner]
    encode: ToyEncoder
    refuses: frozenset[int]  # tokens that fail when they are first seen
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def expected(self, text: str, *, special: bool) -> list[int]:
        """Return what the inner tokenizer would."""
        ids = self.encode(text)
        return [*self.before, *ids, *self.after] if special else ids

    def try_tokens(self, tokens: Iterable[int]) -> None:
        """Trust tokens that were never seen before, or refuse them."""
        for token in tokens:
            for scanner in self.scanners:
                if token in self.refuses:
                    scanner.refuse(token)
                else:
                    scanner.trust(token)


@dataclass(frozen=True)
class Pending:
    """A text whose plans were made and not yet finished."""

    lane: Lane
    text: str
    special: bool
    compiled: Plan
    model: ReferencePlan


def plan_state(plan: Plan | ReferencePlan) -> tuple[object, ...]:
    """Return all that a plan says before anything is fed."""
    return (
        plan.hit,
        plan.has_boundary,
        list(plan.untried),
        [plan.run_text(i) for i in range(plan.n_runs)],
        [plan.segment_texts(i) for i in range(plan.n_runs)],
        plan.boundary_tokens(),
    )


class Lockstep:
    """A compiled trie and its model, with wrappers on any number of roots."""

    def __init__(
        self, memory: int, resident: int, *, hash_seed: int = 1, hash_bits: int = 64
    ) -> None:
        self.compiled = Trie(memory, resident, hash_seed=hash_seed, hash_bits=hash_bits)
        self.model = ReferenceTrie(
            memory, resident, hash_seed=hash_seed, hash_bits=hash_bits
        )
        self.budgets = memory, resident
        self.lanes: list[Lane] = []

    def open_root(
        self, tokens: Tokens, *flags: bool, refuses: Iterable[int] = ()
    ) -> Lane:
        """Open a root on both sides, with one wrapper. ``flags`` are the encoder's."""
        root = self.compiled.open_root()
        assert self.model.open_root() == root
        scanners = Scanner(tokens), ReferenceScanner(tokens)
        self.lanes.append(
            Lane(
                root,
                Walker(self.compiled, root, scanners[0]),
                ReferenceWalker(self.model, root, scanners[1]),
                scanners,
                ToyEncoder(scanners[1], *flags),
                frozenset(refuses),
            )
        )
        return self.lanes[-1]

    def add_wrapper(
        self,
        first: Lane,
        before: tuple[int, ...] = (),
        after: tuple[int, ...] = (),
        *,
        extend_on_hit: bool = True,
        cache_tails: bool = True,
    ) -> Lane:
        """Add another wrapper to a root."""
        compiled, model = first.scanners
        lane = replace(
            first,
            compiled=Walker(
                self.compiled,
                first.root,
                compiled,
                before,
                after,
                extend_on_hit=extend_on_hit,
                cache_tails=cache_tails,
            ),
            model=ReferenceWalker(
                self.model,
                first.root,
                model,
                before,
                after,
                extend_on_hit=extend_on_hit,
                cache_tails=cache_tails,
            ),
            before=before,
            after=after,
        )
        self.lanes.append(lane)
        return lane

    def begin(self, lane: Lane, text: str, *, special: bool = False) -> Pending | None:
        """Look a text up on both sides; None if both knew all of it."""
        found = lane.compiled.lookup(text, special)
        modelled = lane.model.lookup(text, special)
        if not isinstance(found, Plan) or not isinstance(modelled, ReferencePlan):
            assert isinstance(found, TokenIds)
            assert isinstance(modelled, tuple)
            expected = lane.expected(text, special=special)
            assert found.tolist() == list(modelled) == expected
            return None
        assert plan_state(found) == plan_state(modelled)
        if not found.untried:
            return Pending(lane, text, special, found, modelled)
        lane.try_tokens(found.untried)
        return self.begin(lane, text, special=special)

    def _feed(self, pending: Pending, i: int, batch: Batch | None) -> bool:
        """Feed one run to both sides; False if the text must be encoded whole."""
        plans = pending.compiled, pending.model
        encode = pending.lane.encode
        ids = encode(plans[0].run_text(i))
        if batch is not None and batch.serve(plans[0], i):
            assert plans[1].feed(i, ids) == TAKEN
            return True
        status, modelled = [plan.feed(i, ids) for plan in plans]
        assert status == modelled
        if status == SPLIT:
            each = [encode(text) for text in plans[0].segment_texts(i)]
            status, modelled = [plan.feed_segments(i, each) for plan in plans]
            assert status == modelled
        return status != WHOLE

    def finish(self, pending: Pending, batch: Batch | None = None) -> None:
        """Finish both plans of a text, the compiled one from what a batch has."""
        plan, model = pending.compiled, pending.model
        expected = pending.lane.expected(pending.text, special=pending.special)
        runs = range(plan.n_runs)
        if plan.has_boundary and all(self._feed(pending, i, batch) for i in runs):
            ids, modelled = plan.finish(), model.finish()
        else:
            ids, modelled = plan.finish_whole(expected), model.finish_whole(expected)
        assert ids.tolist() == list(modelled) == expected
        tokens = plan.cached_tokens, plan.uncached_tokens
        assert tokens == (model.cached_tokens, model.uncached_tokens)
        assert sum(tokens) == len(ids)

    def encode(self, lane: Lane, text: str, *, special: bool = False) -> None:
        """Take a text all the way through both sides."""
        pending = self.begin(lane, text, special=special)
        if pending is not None:
            self.finish(pending)

    def encode_batch(
        self, lane: Lane, texts: list[str], *, special: bool = False
    ) -> None:
        """Encode texts one by one, on the compiled side with a batch behind them."""

        def gathered() -> Batch:
            batch = Batch(lane.compiled, 1 + len(texts) % 3)  # some join runs
            stop = 0
            while stop < len(texts):
                stop = batch.add(texts, stop, sum(map(len, texts)) + 1)
            return batch

        batch = gathered()
        if batch.untried:
            lane.try_tokens(batch.untried)
            batch = gathered()  # what is refused now cuts no text
        batch.feed([lane.encode(run) for run in batch.run_texts()])
        found: list[TokenIds] = []
        for i, text in enumerate(texts):
            expected = lane.expected(text, special=special)
            plan = batch.complete(texts, found, i + 1, special)
            modelled = lane.model.lookup(text, special)
            if plan is not None:
                assert isinstance(modelled, ReferencePlan)
                self.finish(Pending(lane, text, special, plan, modelled), batch)
                found.append(TokenIds(expected))
            elif isinstance(modelled, ReferencePlan):
                for run in range(modelled.n_runs):
                    ids = lane.encode(modelled.run_text(run))
                    assert modelled.feed(run, ids) == TAKEN
                assert list(modelled.finish()) == expected
            assert found[i].tolist() == expected

    def count(self, lane: Lane, text: str, *, special: bool = False) -> None:
        """Count the ids of a text on both sides; drop a plan that comes instead."""
        found = lane.compiled.count(text, special)
        modelled = lane.model.count(text, special)
        if isinstance(found, int):
            assert found == modelled == len(lane.expected(text, special=special))
        else:
            assert isinstance(modelled, ReferencePlan)
            assert plan_state(found) == plan_state(modelled)

    def clear(self, root: int | None = None) -> None:
        """Clear a root or everything on both sides."""
        self.compiled.clear(root)
        self.model.clear(root)
        assert self.compiled.usage(root)[:2] == (0, 0)

    def compare(self) -> None:
        """Assert that all state is sound, equal, and within the budgets."""
        self.compiled.check()
        self.model.check()
        usage = self.compiled.usage()
        assert usage == self.model.usage()
        for root in {lane.root for lane in self.lanes}:
            assert self.compiled.usage(root) == self.model.usage(root)
        assert self.compiled.leaves() == self.model.leaves()
        assert sorted(self.compiled.residents()) == sorted(self.model.residents())
        assert self.compiled.policy() == self.model.policy()
        for lane in self.lanes:
            assert lane.compiled.counters() == lane.model.counters()
        memory, resident = self.budgets
        assert usage[2] <= memory
        assert usage[3] <= resident
