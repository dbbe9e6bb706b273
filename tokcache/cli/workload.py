"""Run prompts through the compiled core alone, at any budget.

Every prompt takes the way that ``CachedTokenizer`` sends it, but each segment is
encoded once and its ids are used again in each run: what differs between two runs is
the budget, and a run costs what the core costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from tokcache._ids import TokenIds
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker
from tokcache.budgets import check_budgets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokcache.backends.base import Backend
    from tokcache.cli.traces import Trace

__all__ = ["UNBOUNDED", "Outcome", "Workload", "of_texts", "of_trace", "run"]

UNBOUNDED = 2**62

# What a segment of a trace ends with; the rest of its text is its number.
_BOUNDARY = "|"

# `Plan.feed_segments`: the ends of a segment are not where they must be.
_WHOLE_TEXT = 2


class Encode(Protocol):
    """Return the ids of a text; the same object each time where that saves memory."""

    def __call__(self, text: str, /) -> TokenIds:
        """Encode."""
        ...


@dataclass(frozen=True, slots=True)
class Workload:
    """Hold prompts in the order of arrival, and what the core needs to cache them."""

    texts: Sequence[str]
    scanner: Scanner
    encode: Encode
    is_synthetic: bool = False
    """The text stands for another one: its bytes mean nothing, and no tail recurs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a run at one budget found."""

    max_memory_bytes: int
    cached_tokens: int
    uncached_tokens: int
    hits: int
    misses: int
    memory_bytes: int
    resident_bytes: int
    entries: int
    evictions: int
    oversized: int

    @property
    def token_hit_ratio(self) -> float:
        """Return the cached tokens as a share of all; 0.0 where there are none."""
        n_tokens = self.cached_tokens + self.uncached_tokens
        return self.cached_tokens / n_tokens if n_tokens else 0.0


def of_trace(trace: Trace) -> Workload:
    """Make texts that have the prefixes of a trace, and ids in the right number."""
    texts = [
        "".join([f"{number}{_BOUNDARY}" for number in request.path])
        + (f"{request.n_tail}" if request.n_tail else "")
        for request in trace.requests
    ]
    scanner = Scanner([(_BOUNDARY, 0, 1, True)])
    scanner.trust(0)

    def encode(text: str) -> TokenIds:
        has_anchor = text.startswith(_BOUNDARY)
        number = int(text.strip(_BOUNDARY))
        if text.endswith(_BOUNDARY):
            return _ids(trace.lengths[number] - 1, has_anchor, 1)
        return _ids(number, has_anchor, 0)  # a tail says how long it is

    return Workload(texts, scanner, encode, is_synthetic=True)


@lru_cache(maxsize=4096)
def _ids(n_plain: int, n_before: int, n_after: int) -> TokenIds:
    return TokenIds([0] * n_before + [1] * n_plain + [0] * n_after)


def of_texts(
    texts: Sequence[str], backend: Backend, boundary_tokens: Sequence[str]
) -> Workload:
    """Take prompts as they are, cut at tokens that were tried as boundaries before."""
    tokens = backend.inspect(None, trust_custom=False).tokens
    scanner = Scanner(
        [(t.content, t.id, t.phase, t.content in boundary_tokens) for t in tokens]
    )
    for index, token in enumerate(tokens):
        if token.content in boundary_tokens:
            scanner.trust(index)
    known: dict[str, TokenIds] = {}

    def encode(text: str) -> TokenIds:
        ids = known.get(text)
        if ids is None:
            ids = known[text] = TokenIds(backend.encode_run(text))
        return ids

    return Workload(texts, scanner, encode)


def run(
    workload: Workload,
    max_memory_bytes: int,
    advance: Callable[[], None] = lambda: None,
) -> Outcome:
    """Send all prompts through a new cache; ``advance`` is called after each.

    The resident budget is the default one, and none where the text is synthetic.
    """
    memory, resident = check_budgets(
        max_memory_bytes, UNBOUNDED if workload.is_synthetic else None
    )
    trie = Trie(memory, resident)
    walker = Walker(trie, None, workload.scanner, cache_tails=not workload.is_synthetic)
    for text in workload.texts:
        found = walker.count(text, False)
        if isinstance(found, Plan):
            _complete(found, text, workload.encode)
        advance()
    hits, misses, cached, uncached, _, _ = walker.counters()
    entries, _, held, resident, _, evictions, oversized, *_ = trie.usage()
    return Outcome(
        max_memory_bytes=max_memory_bytes,
        cached_tokens=cached,
        uncached_tokens=uncached,
        hits=hits,
        misses=misses,
        memory_bytes=held,
        resident_bytes=resident,
        entries=entries,
        evictions=evictions,
        oversized=oversized,
    )


def _complete(plan: Plan, text: str, encode: Encode) -> None:
    """Feed a plan and finish it, as ``CachedTokenizer`` does, but by segments."""
    if plan.has_boundary and all(
        plan.feed_segments(i, [encode(each) for each in plan.segment_texts(i)])
        != _WHOLE_TEXT
        for i in range(plan.n_runs)
    ):
        plan.finish()
    else:
        plan.finish_whole(encode(text))
