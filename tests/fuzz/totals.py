"""Count what a run covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence


class Totals:
    """What a run covered: named counters over an array, which processes may share."""

    NAMES = (
        *("cases", "cache_on", "texts", "texts_on", "tokens", "cached_tokens"),
        *("uncached_tokens", "hits", "misses", "full_hits", "errors", "evictions"),
        *("oversized", "pass_throughs", "self_check_failures", "raw_hangs", "failures"),
    )

    def __init__(self, cells: MutableSequence[int] | None = None) -> None:
        """Count in `cells`, or in a list."""
        self._cells = [0] * len(self.NAMES) if cells is None else cells

    def __getitem__(self, name: str) -> int:
        """Return a counter."""
        return self._cells[self.NAMES.index(name)]

    def add(self, name: str, amount: int = 1) -> None:
        """Count."""
        self._cells[self.NAMES.index(name)] += amount

    @property
    def token_hit_ratio(self) -> float:
        """Return the share of ids that came from the cache, where it was on."""
        both = self["cached_tokens"] + self["uncached_tokens"]
        return self["cached_tokens"] / max(1, both)

    @property
    def cache_on_ratio(self) -> float:
        """Return the share of cases whose tokenizer had boundaries."""
        return self["cache_on"] / max(1, self["cases"])

    def __str__(self) -> str:
        """Describe the run in a few lines."""
        return (
            f"cases {self['cases']:,} (cache on {self.cache_on_ratio:.1%}), "
            f"texts {self['texts']:,}, ids {self['tokens']:,}, "
            f"raw errors {self['errors']:,}\n"
            f"where on: texts {self['texts_on']:,}, hits {self['hits']:,}, "
            f"misses {self['misses']:,}, token hit ratio {self.token_hit_ratio:.1%}, "
            f"inner calls saved {self['full_hits'] / max(1, self['texts_on']):.1%}\n"
            f"evictions {self['evictions']:,}, oversized {self['oversized']:,}, "
            f"passed through {self['pass_throughs']:,}, self-check failures "
            f"{self['self_check_failures']:,}\n"
            f"raw tokenizer hung {self['raw_hangs']:,}, failures {self['failures']:,}"
        )
