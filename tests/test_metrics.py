"""Check what is published to Prometheus by parsing real scrapes."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tokcache import CachedTokenizer, SharedTokenizerCache
from tokcache._counters import BUCKET_SECONDS
from tokcache.observers import publish_metrics

from . import data
from .toys import special, toy

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

prometheus_client = pytest.importorskip("prometheus_client")
from prometheus_client.parser import (  # noqa: E402 - needs prometheus_client
    text_string_to_metric_families,
)


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"))


Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Scrape:
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("tokcache_"):
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in found
                found[key] = sample.value
    return found


def scrape(registry: Any) -> Scrape:
    return parsed(prometheus_client.generate_latest(registry).decode())


def value(found: Scrape, name: str, **labels: str) -> float:
    whose = {"model": "", "namespace": "", **labels}
    return found["tokcache_" + name, tuple(sorted(whose.items()))]


def test_a_scrape_has_what_the_statistics_have() -> None:
    registry = prometheus_client.CollectorRegistry()
    cached = CachedTokenizer(build(), max_memory_bytes=400)
    publish_metrics(cached, registry=registry)
    for i in range(60):
        cached.encode("<s>hello</s>" + "foo</s>" * i)
        cached.encode(f"<s>hello{i}</s>")
    cached.encode("<s>" + "o" * 500 + "</s>")
    cached.inner.encode_special_tokens = True
    cached.encode("<s>")
    cached.inner.encode_special_tokens = False
    stats, found = cached.cache_stats(), scrape(registry)
    assert stats.evictions
    assert stats.oversized
    want = {
        ("requests_total", "result", "hit"): stats.hits,
        ("requests_total", "result", "miss"): stats.misses,
        ("requests_total", "result", "bypass"): stats.pass_throughs,
        ("tokens_total", "source", "cached"): stats.cached_tokens,
        ("tokens_total", "source", "uncached"): stats.uncached_tokens,
        ("refusals_total", "reason", "oversized"): stats.oversized,
        ("refusals_total", "reason", "outranked"): stats.refused,
    }
    for (name, label, which), number in want.items():
        assert value(found, name, **{label: which}) == number
    assert stats.pass_throughs == 1
    assert value(found, "evictions_total") == stats.evictions
    assert value(found, "self_check_failures_total") == stats.self_check_failures
    assert value(found, "entries") == stats.entries
    assert value(found, "payload_bytes") == stats.memory_bytes
    assert value(found, "resident_bytes") == stats.resident_bytes
    for result, number in (("hit", stats.hits), ("miss", stats.misses)):
        assert value(found, "encode_seconds_count", result=result) == number
        assert value(found, "encode_seconds_bucket", result=result, le="+Inf") == number
        assert value(found, "encode_seconds_sum", result=result) > 0


def test_times_are_in_the_bucket_that_they_fit_in() -> None:
    """Each bucket's bound is twice the one before; the mean is where the counts are."""
    cached = CachedTokenizer(build())
    counters = cached._counters
    cached.encode("<s>hello</s>")
    assert sum(counters.latencies(False)[0]) == 0  # not timed before it is asked for
    counters.start_timing()
    text = "<s>hello</s>" * 2000
    cached.encode("foo</s>" * 2000)
    for _ in range(50):
        cached.encode(text)
    for hit, number in ((True, 50), (False, 1)):
        buckets, seconds = counters.latencies(hit)
        assert sum(buckets) == number
        bounds = (0.0, *BUCKET_SECONDS)
        least = sum(n * low for n, low in zip(buckets, bounds, strict=True))
        most = sum(n * high for n, high in zip(buckets, BUCKET_SECONDS, strict=False))
        assert least <= seconds
        assert seconds <= most or buckets[-1]
    ratios = [high / low for low, high in itertools.pairwise(BUCKET_SECONDS)]
    assert ratios == [2.0] * (len(BUCKET_SECONDS) - 1)


def test_counters_never_go_down() -> None:
    """Neither `clear_cache` nor the end of a wrapper takes back what was counted."""
    registry = prometheus_client.CollectorRegistry()
    cached: Any = CachedTokenizer(build(), max_memory_bytes=40)
    publish_metrics(cached, registry=registry)
    before: Scrape = {}
    for step in range(4):
        if step == 1:
            cached.clear_cache()
        elif step == 2:
            cached.invalidate()
        elif step == 3:
            del cached
            gc.collect()
        found = scrape(registry)
        for key, was in before.items():
            if key[0].endswith(("_total", "_bucket", "_sum", "_count")):
                assert found[key] >= was
        before = found
        if step < 3:
            for i in range(9):
                cached.encode(f"<s>hello{i}</s>foo</s>")
                cached.encode(f"<s>hello{i}</s>foo</s>")
    assert value(found, "requests_total", result="miss") >= 3
    assert value(found, "evictions_total") > 0
    assert value(found, "entries") == 0


def test_any_number_of_wrappers_and_registries() -> None:
    """B74: no "duplicated timeseries"; each wrapper's counts once in each registry."""
    registries = [prometheus_client.CollectorRegistry() for _ in range(2)]
    one, two = CachedTokenizer(build()), CachedTokenizer(build())
    for registry in registries:
        for _ in range(2):
            publish_metrics(one, model="a", registry=registry)
            publish_metrics(two, model="b", registry=registry)
    one.encode("<s>hello")
    for _ in range(3):
        two.encode("<s>hello")
    for registry in registries:
        found = scrape(registry)
        assert value(found, "requests_total", result="miss", model="a") == 1
        assert value(found, "requests_total", result="hit", model="a") == 0
        assert value(found, "requests_total", result="hit", model="b") == 2
    publish_metrics(two, model="a", registry=registries[0])
    found = scrape(registries[0])
    assert value(found, "requests_total", result="miss", model="a") == 2
    assert value(found, "entries", model="a") == 2


def test_the_default_registry() -> None:
    cached = CachedTokenizer(build())
    for _ in range(2):
        publish_metrics(cached, model="of the default registry")
    cached.encode("<s>hello")
    found = scrape(prometheus_client.REGISTRY)
    labels = {"model": "of the default registry", "result": "miss"}
    assert value(found, "requests_total", **labels) == 1
    names = {family.name for family in prometheus_client.REGISTRY.collect()}
    assert {"tokcache_requests", "tokcache_encode_seconds"} <= names


def test_namespaces_of_a_shared_cache() -> None:
    """What a namespace holds is told once, whoever shares it."""
    registry = prometheus_client.CollectorRegistry()
    cache = SharedTokenizerCache()
    wrappers = [
        CachedTokenizer.with_cache(build(), None, cache, name)
        for name in (b"tenant", b"tenant", b"\xff\x00")
    ]
    for wrapper in wrappers:
        publish_metrics(wrapper, model="m", registry=registry)
        wrapper.encode("<s>hello</s>")
    found = scrape(registry)
    for name, n_encodes in (("tenant", 2), ("ff00", 1)):
        labels = {"model": "m", "namespace": name}
        assert value(found, "entries", **labels) == 2
        hits = value(found, "requests_total", result="hit", **labels)
        misses = value(found, "requests_total", result="miss", **labels)
        assert hits + misses == n_encodes
    wrappers.pop(0)
    gc.collect()
    cache.clear(b"tenant")
    found = scrape(registry)
    assert value(found, "entries", model="m", namespace="tenant") == 0
    hits = value(found, "requests_total", result="hit", model="m", namespace="tenant")
    assert hits == 1


def test_scrapes_while_others_encode() -> None:
    registry = prometheus_client.CollectorRegistry()
    cached = CachedTokenizer(build())
    publish_metrics(cached, registry=registry)
    stop = threading.Event()

    def work() -> None:
        i = 0
        while not stop.is_set():
            cached.encode(f"<s>hello{i % 7}</s>")
            i += 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    last = 0.0
    for _ in range(50):
        found = scrape(registry)
        total = sum(
            value(found, "requests_total", result=result) for result in ("hit", "miss")
        )
        assert total >= last
        last = total
    stop.set()
    for thread in threads:
        thread.join()
    assert last


MULTIPROCESS = """
import os, sys, time
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from tokcache import CachedTokenizer
from tokcache.observers import publish_metrics
from tests.toys import special, toy

cached = CachedTokenizer(toy(special("<s>"), special("</s>")))
publish_metrics(cached, model="m")
publish_metrics(cached, model="m")
other = CachedTokenizer(toy(special("<s>")))
publish_metrics(other, model="other")
for _ in range(5):
    cached.encode("<s>hello</s>")
children = []
for i in range(2):
    child = os.fork()
    if not child:
        for _ in range(3):
            cached.encode("<s>hello</s>")
        time.sleep(1.5)
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
    mark_process_dead(child)
for _ in range(2):
    cached.clear_cache()
    cached.encode("<s>foo</s>")
time.sleep(1.5)
registry = CollectorRegistry()
MultiProcessCollector(registry)
sys.stdout.write(generate_latest(registry).decode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_multiprocess_mode(tmp_path: Path) -> None:
    """Values are files there, and a fork must not count again what its parent did."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", MULTIPROCESS],
        env=environment,
        cwd=data.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = parsed(done.stdout)
    hits = value(found, "requests_total", model="m", result="hit")
    misses = value(found, "requests_total", model="m", result="miss")
    assert (hits, misses) == (4 + 2 * 3, 1 + 2)
    assert value(found, "requests_total", model="other", result="miss") == 0
    for result, number in (("hit", hits), ("miss", misses)):
        labels = {"model": "m", "result": result}
        assert value(found, "encode_seconds_count", **labels) == number
        assert value(found, "encode_seconds_sum", **labels) > 0
    assert value(found, "entries", model="m") == 2


def test_without_prometheus_client_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from tokcache.observers import publish_metrics\n"
        "publish_metrics(None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=data.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "pip install 'tokcache[metrics]'" in done.stderr
