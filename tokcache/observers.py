"""Call what users hung on a cache, and let nothing of theirs change a result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tokcache.locks import Lock
from tokcache.stats import CacheEventFn, CacheTokenUsage, CacheTokenUsageFn

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from tokcache.cached import CachedTokenizer

logger = logging.getLogger("tokcache")


class Observers:
    """Hold the callbacks of one wrapper, and count those that raised."""

    def __init__(
        self,
        on_hit: CacheEventFn | None = None,
        on_miss: CacheEventFn | None = None,
        on_tokens: CacheTokenUsageFn | None = None,
    ) -> None:
        self.on_hit = on_hit
        self.on_miss = on_miss
        self.on_tokens = on_tokens
        self.errors = 0
        self._lock = Lock()

    def __bool__(self) -> bool:
        observers = (self.on_hit, self.on_miss, self.on_tokens)
        return any(observer is not None for observer in observers)

    def report(self, *, hit: bool, cached: int, uncached: int) -> None:
        """Tell of one encode that got its ids."""
        event = self.on_hit if hit else self.on_miss
        if event is not None:
            self._call(event)
        if self.on_tokens is not None:
            self._call(self.on_tokens, CacheTokenUsage(cached, uncached))

    def _call(self, observer: Callable[..., object], *args: object) -> None:
        try:
            observer(*args)
        except Exception:
            with self._lock:
                self.errors += 1
                is_first = self.errors == 1
            if is_first:
                logger.exception(
                    "a tokcache observer raised; later errors are only counted"
                )


def publish_metrics(
    cached: CachedTokenizer,
    *,
    model: str = "",
    registry: CollectorRegistry | None = None,
) -> None:
    """Publish a wrapper's counters to Prometheus: see `tokcache.metrics.publish`.

    Raises ``ModuleNotFoundError`` if ``prometheus_client`` is not installed.
    """
    try:
        from tokcache.metrics import publish  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as problem:
        error = "metrics need prometheus_client: pip install 'tokcache[metrics]'"
        raise ModuleNotFoundError(error, name=problem.name) from problem
    publish(cached, model=model, registry=registry)
