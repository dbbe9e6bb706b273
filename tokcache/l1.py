"""L1Cache: a prefix cache without a tokenizer of its own, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokcache._ids import TokenIds
from tokcache.budgets import check_budgets
from tokcache.cached import CachedTokenizer
from tokcache.locks import Lock
from tokcache.observers import Observers
from tokcache.stats import CacheEventFn, L1CacheStats

if TYPE_CHECKING:
    from collections.abc import Sequence


class L1Cache:
    """Find, extend and fill cached prefixes by hand.

    For code that has upstream's lower level; `CachedTokenizer` does all of it in one
    call. The cache takes the first tokenizer that it is given and holds ids of that one
    only. ``special_tokens`` and the budgets are those of `CachedTokenizer`. Ids are
    those of ``encode(text, add_special_tokens=False)``; offsets are in code points.

    Raises ``ValueError`` for a negative budget. Thread safety: as `CachedTokenizer`.

    >>> cache = L1Cache(64 * 2**20)  # doctest: +SKIP
    >>> match = cache.longest_prefix_match(text)  # doctest: +SKIP
    >>> if match is None:  # doctest: +SKIP
    ...     ids = cache.populate_and_encode(text, tokenizer)
    ... else:
    ...     ids = cache.extend_after_match(text, *match, tokenizer)
    """

    def __init__(
        self,
        max_memory_bytes: int,
        special_tokens: Sequence[str] | None = None,
        *,
        max_resident_bytes: int | None = None,
    ) -> None:
        check_budgets(max_memory_bytes, max_resident_bytes)
        self._settings: dict[str, Any] = {
            "special_tokens": special_tokens,
            "max_memory_bytes": max_memory_bytes,
            "max_resident_bytes": max_resident_bytes,
        }
        self._cached: CachedTokenizer | None = None
        self._observers = Observers()
        self._hits = self._misses = 0
        self._lock = Lock()

    def longest_prefix_match(self, text: str) -> tuple[TokenIds, int, int] | None:
        """Return the ids, end and deepest boundary of the longest cached prefix.

        The prefix is one of whole segments, shorter than the text; the deepest boundary
        is the end of the text's last segment, cached or not. None if no segment is
        cached; both are counted and told to the observers.

        Do not encode ``text[end:]`` yourself: what a tokenizer does there can depend on
        the boundary token before it. Call `extend_after_match`.
        """
        if not isinstance(text, str):
            msg = f"text must be a str, got {type(text).__name__}"
            raise TypeError(msg)
        match = None
        cached = self._cached
        if cached is not None:
            state = cached._state  # noqa: SLF001 - one flow, two faces
            if not cached._goes_aside(state, text, special=False):  # noqa: SLF001
                found = state.walker.longest_prefix(text)
                if found is not None:
                    ids, end = found
                    ends = state.root.scanner.boundaries(text, end)
                    match = ids, end, ends[-1][0] if ends else end
        with self._lock:
            if match is None:
                self._misses += 1
            else:
                self._hits += 1
        n_ids = 0 if match is None else len(match[0])
        self._observers.report(hit=match is not None, cached=n_ids, uncached=0)
        return match

    def insert_at_boundaries(self, text: str, tokenizer: Any) -> None:
        """Cache a text at each of its boundaries, to have it before it is asked for.

        Raises what the tokenizer raises, and ``ValueError`` if the cache holds the ids
        of another one.
        """
        self.populate_and_encode(text, tokenizer)

    def populate_and_encode(self, text: str, tokenizer: Any) -> TokenIds:
        """Return the ids of a text, and cache it at each of its boundaries.

        Raises as `insert_at_boundaries`.
        """
        return self._encode(text, tokenizer)

    def extend_after_match(
        self,
        text: str,
        ids: TokenIds,
        offset: int,
        deepest_boundary: int,
        tokenizer: Any,
    ) -> TokenIds:
        """Return the ids of a text whose prefix was matched, and cache the rest.

        Takes what `longest_prefix_match` returned for this text. Raises ``ValueError``
        if that cannot be, because the ids are not those that the text begins with or
        the offsets not two of it in order, and as `insert_at_boundaries`.
        """
        if not 0 <= offset <= deepest_boundary <= len(text):
            msg = (
                f"0 <= offset <= deepest_boundary <= {len(text)} does not hold for "
                f"{offset} and {deepest_boundary}"
            )
            raise ValueError(msg)
        whole = self._encode(text, tokenizer)
        if whole[: len(ids)] != ids:
            raise ValueError("ids are not those that the text begins with")
        return whole

    def set_observer(
        self, on_hit: CacheEventFn | None, on_miss: CacheEventFn | None
    ) -> None:
        """Set the callbacks for hits and misses of `longest_prefix_match`."""
        self._observers = Observers(on_hit, on_miss)

    def stats(self) -> L1CacheStats:
        """Return the counters; hits and misses are those of `longest_prefix_match`."""
        cached = self._cached
        found = L1CacheStats() if cached is None else cached.cache_stats()
        with self._lock:
            return replace(
                found,
                hits=self._hits,
                misses=self._misses,
                observer_errors=self._observers.errors,
            )

    def clear(self) -> None:
        """Drop all that is cached and start hits and misses again."""
        if self._cached is not None:
            self._cached.clear_cache()
        with self._lock:
            self._hits = self._misses = 0

    def __len__(self) -> int:
        """Return the number of cached prefixes."""
        return 0 if self._cached is None else self._cached.cache_stats().entries

    def _encode(self, text: str, tokenizer: Any) -> TokenIds:
        inner = tokenizer.inner if isinstance(tokenizer, CachedTokenizer) else tokenizer
        cached = self._cached
        if cached is None:
            with self._lock:
                if self._cached is None:
                    self._cached = CachedTokenizer(inner, **self._settings)
                cached = self._cached
        if cached.inner is not inner:
            raise ValueError("the cache holds the ids of another tokenizer")
        ids = cached.encode(text, add_special_tokens=False)
        if not isinstance(ids, TokenIds):
            raise TypeError("text must be a str")
        return ids
