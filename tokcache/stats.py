"""What a cache counts, as frozen snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class CacheTokenUsage:
    """Say where the ids of one encode came from; their sum is the number of ids."""

    cached_tokens: int
    """Ids that no inner call of this encode produced."""
    uncached_tokens: int
    """Ids that the inner tokenizer produced for this encode."""


CacheEventFn: TypeAlias = Callable[[], object]
"""Called after each cache hit (``on_hit``) or miss (``on_miss``)."""

CacheTokenUsageFn: TypeAlias = Callable[[CacheTokenUsage], object]
"""Called after each successful encode while the cache is active."""


# What a trie's usage has, in its order.
USAGE = (
    "entries",
    "tails",
    "memory_bytes",
    "resident_bytes",
    "insertions",
    "evictions",
    "oversized",
    "refused",
    "is_gate_closed",
)


def named_usage(usage: Sequence[Any]) -> dict[str, Any]:
    """Return a trie's usage by the names that statistics have for it."""
    return dict(zip(USAGE, usage, strict=True))


def _share(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else 0.0


@dataclass(frozen=True, slots=True)
class SharedTokenizerCacheStats:
    """Hold what a shared cache, or one namespace of it, holds and did."""

    entries: int = 0
    """Cached prefixes: segments, each under its path."""
    memory_bytes: int = 0
    """Payload: four bytes for each id held, shared ones once."""
    tails: int = 0
    """Cached texts that end behind their last boundary."""
    resident_bytes: int = 0
    """All that storing prompts takes; of one namespace without tables and sketch."""
    max_memory_bytes: int = 0
    max_resident_bytes: int = 0
    insertions: int = 0
    """Segments linked under a path since the cache was made."""
    evictions: int = 0
    oversized: int = 0
    """Prompts that were not stored because they alone are over a budget."""
    refused: int = 0
    """Prompts not, or not wholly, stored: what they would displace had to stay."""
    is_gate_closed: bool = False
    """Whether what is seen for the first time displaces nothing now."""


@dataclass(frozen=True, slots=True)
class L1CacheStats:
    """Hold the counters of a cache as they were at one moment.

    Hits, misses and token counts are the wrapper's own and start again at
    ``clear_cache``. A hit is an encode that matched at least one cached segment.
    """

    hits: int = 0
    misses: int = 0
    entries: int = 0
    """Cached prefixes: segments, each under its path."""
    memory_bytes: int = 0
    """Payload: four bytes for each id held, shared ones once."""
    tails: int = 0
    """Cached texts that end behind their last boundary."""
    resident_bytes: int = 0
    """All that storing prompts takes: ids, text, nodes and tables."""
    max_memory_bytes: int = 0
    max_resident_bytes: int = 0
    cached_tokens: int = 0
    uncached_tokens: int = 0
    insertions: int = 0
    """Segments linked under a path since the cache was made."""
    evictions: int = 0
    oversized: int = 0
    """Prompts that were not stored because they alone are over a budget."""
    refused: int = 0
    """Prompts not, or not wholly, stored: what they would displace had to stay."""
    is_gate_closed: bool = False
    """Whether what is seen for the first time displaces nothing now."""
    pass_throughs: int = 0
    """Calls that went to the inner tokenizer without a lookup; see ``explain()``."""
    self_check_failures: int = 0
    observer_errors: int = 0

    @property
    def hit_rate(self) -> float:
        """Return hits as a share of hits and misses; 0.0 before the first."""
        return _share(self.hits, self.misses)

    @property
    def token_hit_rate(self) -> float:
        """Return cached tokens as a share of all; 0.0 before the first."""
        return _share(self.cached_tokens, self.uncached_tokens)
