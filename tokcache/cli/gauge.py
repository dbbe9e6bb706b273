"""Show how far a long run is, how fast it goes, and how much the cache saves."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Gauge"]

_SECONDS_BETWEEN_REFRESHES = 0.2


class Gauge:
    """Count ids, and draw a bar on a terminal's stderr."""

    def __init__(self, total: int, *, shown: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            "encoding",
            BarColumn(),
            TaskProgressColumn(),
            "{task.fields[rate]:,.0f} tokens/s",
            "{task.fields[ratio]:.1%} cached",
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
            auto_refresh=False,  # a drawing thread would be there when others fork
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, rate=0.0, ratio=0.0)
        self._started = self._drawn = monotonic()
        self._n_ids = self._n_cached = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, n_read: int, n_ids: int, n_cached: int) -> None:
        """Note how many bytes are read in all, and how many ids came since."""
        self._n_ids += n_ids
        self._n_cached += n_cached
        now = monotonic()
        if now - self._drawn >= _SECONDS_BETWEEN_REFRESHES:
            self._drawn = now
            self._progress.update(
                self._task,
                completed=n_read,
                rate=self._n_ids / (now - self._started),
                ratio=self._ratio(),
            )
            self._progress.refresh()

    def report(self, seconds: float) -> dict[str, Any]:
        """Return what this run did, as an object for JSON."""
        return {
            "run_ids": self._n_ids,
            "run_seconds": seconds,
            "ids_per_second": self._n_ids / seconds if seconds else 0.0,
            "token_hit_ratio": self._ratio(),
        }

    def _ratio(self) -> float:
        return self._n_cached / self._n_ids if self._n_ids else 0.0
