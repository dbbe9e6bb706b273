"""Show what a replay found: a table for people, an object for programs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokcache.cli.measure import Measurement
    from tokcache.stats import L1CacheStats

__all__ = ["Report", "percentile"]


def percentile(values: Sequence[int], share: float) -> int:
    """Return the smallest value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Report:
    """Hold the numbers of one replay."""

    tokenizer: str
    chat: str
    n_conversations: int
    measurement: Measurement
    stats: L1CacheStats
    bypass: str | None

    def times(self) -> dict[str, tuple[int, int]]:
        """Return nanoseconds (raw, cached): median, 99th percentile and sum."""
        raw = [sample.raw_ns for sample in self.measurement.samples]
        cached = [sample.cached_ns for sample in self.measurement.samples]
        return {
            "p50": (percentile(raw, 0.5), percentile(cached, 0.5)),
            "p99": (percentile(raw, 0.99), percentile(cached, 0.99)),
            "total": (sum(raw), sum(cached)),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an object for JSON; times are in seconds."""
        stats = self.stats
        times = self.times()
        return {
            "tokenizer": self.tokenizer,
            "chat": self.chat,
            "conversations": self.n_conversations,
            "requests": len(self.measurement.samples),
            "tokens": self._n_tokens(),
            "token_hit_ratio": stats.token_hit_rate,
            "identical": not self.measurement.differences,
            "differences": [asdict(each) for each in self.measurement.differences],
            "raw": {f"{name}_seconds": raw / 1e9 for name, (raw, _) in times.items()},
            "cached": {
                f"{name}_seconds": cached / 1e9 for name, (_, cached) in times.items()
            },
            "speed_up": {name: ratio(*pair) for name, pair in times.items()},
            "bypass": self.bypass,
            "cache": {
                "hits": stats.hits,
                "misses": stats.misses,
                "cached_tokens": stats.cached_tokens,
                "uncached_tokens": stats.uncached_tokens,
                "payload_bytes": stats.memory_bytes,
                "max_memory_bytes": stats.max_memory_bytes,
                "resident_bytes": stats.resident_bytes,
                "max_resident_bytes": stats.max_resident_bytes,
                "entries": stats.entries,
                "tails": stats.tails,
                "insertions": stats.insertions,
                "evictions": stats.evictions,
                "oversized": stats.oversized,
                "pass_throughs": stats.pass_throughs,
                "self_check_failures": stats.self_check_failures,
            },
        }

    def times_table(self) -> Table:
        """Return the table of times."""
        table = Table(title="Time to tokenize a prompt", title_justify="left")
        table.add_column("")
        for heading in ("without cache", "with tokcache", "speed-up"):
            table.add_column(heading, justify="right")
        labels = {"p50": "median call", "p99": "p99 call", "total": "all calls"}
        for name, (raw, cached) in self.times().items():
            table.add_row(
                labels[name],
                duration(raw),
                duration(cached),
                f"{three_digits(raw / max(cached, 1))} x",
            )
        return table

    def cache_table(self) -> Table:
        """Return the table of what was asked for and what the cache holds."""
        stats = self.stats
        n_different = len(self.measurement.differences)
        ids = f"different in {n_different:,}" if n_different else "all identical"
        table = Table(
            title="Requests and cache", title_justify="left", show_header=False
        )
        table.add_column("")
        table.add_column("", justify="right")
        rows = {
            "conversations": f"{self.n_conversations:,}",
            "requests": f"{len(self.measurement.samples):,}",
            "token ids": ids,
            "tokens": f"{self._n_tokens():,}",
            "token hit ratio": f"{stats.token_hit_rate:.1%}",
            "hits, misses": f"{stats.hits:,}, {stats.misses:,}",
            "payload": f"{decimal(stats.memory_bytes)}"
            f" of {decimal(stats.max_memory_bytes)}",
            "resident": f"{decimal(stats.resident_bytes)}"
            f" of {decimal(stats.max_resident_bytes)}",
            "entries": f"{stats.entries:,} + {stats.tails:,} tails",
            "evictions": f"{stats.evictions:,}",
        }
        for name, value in rows.items():
            table.add_row(name, value)
        return table

    def _n_tokens(self) -> int:
        return sum(sample.n_tokens for sample in self.measurement.samples)


def duration(nanoseconds: float) -> str:
    """Return a time with three digits and a unit.

    >>> duration(1_234_567)
    '1.23 ms'
    """
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= size:
            return f"{three_digits(nanoseconds / size)} {unit}"
    return f"{three_digits(nanoseconds / 1e3)} µs"


def three_digits(value: float) -> str:
    """Return a number with three significant digits, never in powers of ten."""
    decimals = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{decimals}f}"


def ratio(raw: float, cached: float) -> float:
    """Return how many times faster the cached side was, with three digits."""
    return float(three_digits(raw / max(cached, 1)).replace(",", ""))
