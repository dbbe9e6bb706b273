"""Write metrics to the files of ``prometheus_client``'s multiprocess mode.

Each process writes what it counted itself: a child of a fork begins at what its parent
had when it was forked.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections import Counter as Sums
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from tokcache._counters import BUCKET_SECONDS
from tokcache.metrics import (
    FAMILIES,
    LATENCY,
    LATENCY_HELP,
    NO_LATENCY,
    WHOSE,
    CacheCollector,
    Latency,
    Samples,
    read,
)

if TYPE_CHECKING:
    from tokcache.cached import CachedTokenizer

# Seconds between two writes.
INTERVAL = 0.1


class Publisher:
    """Write what has changed since the last time, again and again, from a thread."""

    def __init__(self) -> None:
        self._collector = CacheCollector()
        self._metrics = {
            family: Counter(family.name, family.help, family.labels, registry=None)
            if family.is_counter
            else Gauge(
                family.name,
                family.help,
                family.labels,
                registry=None,
                multiprocess_mode="livesum",
            )
            for family in FAMILIES
        }
        self._histogram = Histogram(
            LATENCY,
            LATENCY_HELP,
            (*WHOSE, "result"),
            buckets=BUCKET_SECONDS,
            registry=None,
        )
        self._start()
        # The library has locks of its own for its files, which a child could never
        # take if this thread were writing at the fork.
        os.register_at_fork(
            before=self._pause,
            after_in_parent=self._resume,
            after_in_child=self._start_in_child,
        )
        atexit.register(self.write)

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._written: Samples = Sums()
        self._timed: dict[tuple[str, ...], Latency] = {}
        threading.Thread(target=self._run, name="tokcache-metrics", daemon=True).start()

    def _pause(self) -> None:
        self._lock.acquire()

    def _resume(self) -> None:
        self._lock.release()

    def _start_in_child(self) -> None:
        self._start()
        with self._lock:
            self._written, self._timed = read(self._collector.sources())
            # What the parent holds is held here too, until it is written to.
            self._written = Sums(
                {k: v for k, v in self._written.items() if k[0].is_counter}
            )

    def add(self, cached: CachedTokenizer, model: str) -> None:
        """Publish a wrapper."""
        self._collector.add(cached, model)

    def write(self) -> None:
        """Write what has changed."""
        with self._lock:
            samples, latencies = read(self._collector.sources())
            for key, value in samples.items():
                family, labels = key
                # Asking for it makes it, so that what is zero is there as well.
                metric = self._metrics[family].labels(*labels)
                change = value - self._written[key]
                if change:
                    metric.inc(change)
            for labels, latency in latencies.items():
                more = latency - self._timed.get(labels, NO_LATENCY)
                child = self._histogram.labels(*labels)
                # Its `observe` would have to be called once for each encode.
                for bucket, n in zip(child._buckets, more.buckets, strict=True):  # noqa: SLF001
                    if n:
                        bucket.inc(n)
                if more.seconds:
                    child._sum.inc(more.seconds)  # noqa: SLF001 - as above
            self._written, self._timed = samples, latencies

    def _run(self) -> None:
        lock = self._lock
        while self._lock is lock:
            time.sleep(INTERVAL)
            self.write()


@functools.cache
def publisher() -> Publisher:
    """Return the one of this process: two would overwrite each other's values."""
    return Publisher()
