"""Measure what published metrics add to a hit: ``python -m benchmarks.metrics``.

Both wrappers take turns, since the difference is smaller than what two runs differ by.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from benchmarks import interleaved
from tests.toys import special, toy
from tokcache import CachedTokenizer
from tokcache.observers import publish_metrics

PROMPT = "<s>hello<s>foo<s>"
ROUNDS = 2000


def make(*, is_published: bool) -> CachedTokenizer:
    """Return a wrapper that has the prompt."""
    cached = CachedTokenizer(toy(special("<s>")))
    if is_published:
        publish_metrics(cached, registry=CollectorRegistry())
    cached.encode(PROMPT)
    return cached


def main() -> None:
    """Print the time of a hit without and with metrics."""
    plain, published = make(is_published=False), make(is_published=True)
    found = interleaved.measure(
        {"without": plain.encode, "with": published.encode},
        lambda n: [PROMPT] * n,
        rounds=ROUNDS,
    )
    for name, latency in found.items():
        print(f"{name:8}{latency.minimum:8.0f} ns at least{latency.median:8.0f} ns")
    added = found["with"].minimum - found["without"].minimum
    print(f"metrics add {added:.0f} ns to a hit")


if __name__ == "__main__":
    main()
