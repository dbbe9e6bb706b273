"""Publish what caches count to Prometheus. Needs ``prometheus_client``.

Nothing is done per call but what the compiled core counts anyway (and two looks at the
clock): a scrape reads the counters. In ``prometheus_client``'s multiprocess mode, where
scrapes see files only, a thread writes what has changed at most every 100 ms.
"""

from __future__ import annotations

import weakref
from collections import Counter as Sums
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import REGISTRY, values
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from tokcache._counters import BUCKET_SECONDS
from tokcache.locks import Lock
from tokcache.shared import SharedTokenizerCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from tokcache.cached import CachedTokenizer

WHOSE = ("model", "namespace")
LATENCY = "tokcache_encode_seconds"
LATENCY_HELP = "Time of encodes that looked into the cache."
BOUNDS = (*map(floatToGoString, BUCKET_SECONDS), "+Inf")


class Family(NamedTuple):
    """Describe one metric."""

    name: str
    help: str
    label: str | None = None
    is_counter: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names of its labels."""
        return WHOSE if self.label is None else (*WHOSE, self.label)


REQUESTS = Family("tokcache_requests", "Encodes, by what the cache had.", "result")
TOKENS = Family("tokcache_tokens", "Ids of encodes, by where they came from.", "source")
FAILURES = Family("tokcache_self_check_failures", "Failed self-checks.")
EVICTIONS = Family("tokcache_evictions", "Cached prefixes that were evicted.")
REFUSALS = Family("tokcache_refusals", "Prompts that were not stored.", "reason")
ENTRIES = Family("tokcache_entries", "Cached prefixes.", is_counter=False)
PAYLOAD = Family("tokcache_payload_bytes", "Ids held.", is_counter=False)
RESIDENT = Family("tokcache_resident_bytes", "All that is held.", is_counter=False)
FAMILIES = (
    REQUESTS,
    TOKENS,
    FAILURES,
    EVICTIONS,
    REFUSALS,
    ENTRIES,
    PAYLOAD,
    RESIDENT,
)


Whose = tuple[str, str]
Samples = Sums[tuple[Family, tuple[str, ...]]]


class Latency(NamedTuple):
    """Hold a histogram: how many each bucket has, and the sum of seconds."""

    buckets: tuple[int, ...]
    seconds: float

    def __sub__(self, other: Latency) -> Latency:
        return self._with(other, -1)

    def plus(self, other: Latency) -> Latency:
        """Return the histogram of both."""
        return self._with(other, 1)

    def _with(self, other: Latency, sign: int) -> Latency:
        pairs = zip(self.buckets, other.buckets, strict=True)
        return Latency(
            tuple(a + sign * b for a, b in pairs), self.seconds + sign * other.seconds
        )


NO_LATENCY = Latency((0,) * len(BOUNDS), 0.0)


class Source:
    """Read one wrapper's counters; what it counted stays when it is gone."""

    def __init__(self, cached: CachedTokenizer, model: str) -> None:
        self.counters = cached._counters  # noqa: SLF001 - one package
        self.counters.start_timing()
        joined = cached._membership  # noqa: SLF001 - one package
        name = b"" if joined is None or joined.name is None else joined.name
        self.whose: Whose = (model, _readable(name))
        # What holds the entries. They are told once, whoever shares them.
        holder: Any = cached if joined is None else joined.cache
        self.holder = (id(holder), name)
        self._holder = weakref.ref(holder)
        self._name = name
        self._usage: Samples = Sums()

    def counts(self) -> Samples:
        """Return what only this wrapper counts."""
        hits, misses, known, new, passed, failures = self.counters.totals()
        return Sums(
            {
                (REQUESTS, (*self.whose, "hit")): hits,
                (REQUESTS, (*self.whose, "miss")): misses,
                (REQUESTS, (*self.whose, "bypass")): passed,
                (TOKENS, (*self.whose, "cached")): known,
                (TOKENS, (*self.whose, "uncached")): new,
                (FAILURES, self.whose): failures,
            }
        )

    def usage(self) -> Samples:
        """Return what its cache holds and did; of one that is gone what it did."""
        holder = self._holder()
        if holder is None:
            for key in [key for key in self._usage if not key[0].is_counter]:
                self._usage[key] = 0
            return self._usage
        stats = (
            holder.stats(self._name)
            if isinstance(holder, SharedTokenizerCache)
            else holder.cache_stats()
        )
        self._usage = Sums(
            {
                (EVICTIONS, self.whose): stats.evictions,
                (REFUSALS, (*self.whose, "oversized")): stats.oversized,
                (REFUSALS, (*self.whose, "outranked")): stats.refused,
                (ENTRIES, self.whose): stats.entries,
                (PAYLOAD, self.whose): stats.memory_bytes,
                (RESIDENT, self.whose): stats.resident_bytes,
            }
        )
        return self._usage

    def latency(self, *, hit: bool) -> Latency:
        """Return the times of its hits, or of its misses."""
        return Latency(*self.counters.latencies(hit))


def read(
    sources: Iterable[Source],
) -> tuple[Samples, dict[tuple[str, ...], Latency]]:
    """Return the sums over sources with equal labels."""
    samples: Samples = Sums()
    latencies: dict[tuple[str, ...], Latency] = {}
    told = set()
    for source in sources:
        samples.update(source.counts())
        if source.holder not in told:
            told.add(source.holder)
            samples.update(source.usage())
        for hit, name in ((True, "hit"), (False, "miss")):
            key = (*source.whose, name)
            latency = source.latency(hit=hit)
            latencies[key] = latencies.get(key, NO_LATENCY).plus(latency)
    return samples, latencies


class CacheCollector:
    """Collect the metrics of any number of wrappers for one registry."""

    def __init__(self) -> None:
        self._sources: dict[int, Source] = {}
        self._lock = Lock()

    def add(self, cached: CachedTokenizer, model: str) -> None:
        """Publish a wrapper; one that is published already gets other labels."""
        source = Source(cached, model)
        with self._lock:
            self._sources[id(source.counters)] = source

    def sources(self) -> list[Source]:
        """Return what is read at a scrape."""
        with self._lock:
            return list(self._sources.values())

    def describe(self) -> Iterator[Metric]:
        """Name the metrics, so that a registry need not collect to know them."""
        yield from _families(Sums(), {})

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now."""
        yield from _families(*read(self.sources()))


def _families(
    samples: Samples, latencies: Mapping[tuple[str, ...], Latency]
) -> Iterator[Metric]:
    for family in FAMILIES:
        kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
        metric = kind(family.name, family.help, labels=family.labels)
        for (of, labels), value in samples.items():
            if of is family:
                metric.add_metric(labels, value)
        yield metric
    histogram = HistogramMetricFamily(LATENCY, LATENCY_HELP, labels=(*WHOSE, "result"))
    for labels, latency in latencies.items():
        histogram.add_metric(
            labels,
            buckets=list(zip(BOUNDS, _running(latency.buckets), strict=True)),
            sum_value=latency.seconds,
        )
    yield histogram


def _running(counts: Sequence[int]) -> Iterator[int]:
    total = 0
    for count in counts:
        total += count
        yield total


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, CacheCollector]
_collectors = weakref.WeakKeyDictionary()
_lock = Lock()


def publish(
    cached: CachedTokenizer,
    *,
    model: str = "",
    registry: CollectorRegistry | None = None,
) -> None:
    """Publish the metrics of a wrapper in a registry, by default the global one.

    ``model`` is a label of theirs, and the namespace in a shared cache is another.
    Any number of wrappers can share a registry; those with equal labels are summed.
    In multiprocess mode the registry has no say. Thread safety: any thread may publish,
    while others encode or scrape.
    """
    if is_multiprocess():
        from tokcache import metrics_files  # noqa: PLC0415 - makes its files at import

        metrics_files.publisher().add(cached, model)
        return
    registry = REGISTRY if registry is None else registry
    with _lock:
        collector = _collectors.get(registry)
        if collector is None:
            collector = CacheCollector()
            registry.register(collector)
            _collectors[registry] = collector
    collector.add(cached, model)


def is_multiprocess() -> bool:
    """Tell whether ``prometheus_client`` keeps its values in files."""
    return bool(values.ValueClass._multiprocess)  # noqa: SLF001 - no other way to know


def _readable(namespace: bytes) -> str:
    """Return a namespace as a label: fingerprints are no text."""
    try:
        name = namespace.decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    return name if name.isprintable() and name else namespace.hex()[:16]
