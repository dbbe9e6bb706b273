"""Many threads on one cache, and on one store: ids, counters, bytes, and no deadlock.

Threads switch as often as the interpreter lets them. A test that hangs writes where
each thread stands, and fails.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import itertools
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import data
from tests.checks import InnerCalls
from tests.toys import special, toy
from tokcache import CachedTokenizer, CacheTokenUsage, L1Cache, SharedTokenizerCache
from tokcache.observers import publish_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokenizers import Tokenizer

    from tokcache import TokenIds

STDERR = 2  # itself, whatever pytest has put in its place
DEADLINE = 120.0  # seconds; the slowest takes a few where nothing else runs
BUDGETS = {"tiny": (600, 4000), "large": (2**24, 2**26)}
CALLS = 960  # by all threads of a test together


@pytest.fixture(autouse=True)
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    # If not even this thread gets its turn, nothing but leaving is left.
    faulthandler.dump_traceback_later(2 * DEADLINE, exit=True, file=STDERR)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(before)


def in_threads(works: Sequence[Callable[[], object]]) -> None:
    """Run all at once; raise what one raises, and fail if one does not end."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(work,), daemon=True) for work in works
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + DEADLINE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(STDERR)
        pytest.fail(f"not all threads ended within {DEADLINE} s")
    if errors:
        raise errors[0]


class Letters:
    """A tokenizer written in Python, which lets other threads run within a call."""

    def encode(self, text: str) -> list[int]:
        ids = []
        for i, part in enumerate(text.split("|")):
            time.sleep(0)
            ids += [1] * (i > 0) + [2 + ord(c) for c in part]
        return ids

    def decode(self, ids: list[int]) -> str:
        return "".join("|" if i == 1 else chr(i - 2) for i in ids)


class Case:
    """A kind of tokenizer, texts for it, and the ids that they have."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.listed = ["|"] if kind == "python" else None
        self.raw = self.build()
        self.texts = list(self._texts())
        self.want = {text: self.ids(text) for text in self.texts}

    def build(self) -> Any:
        """Make the tokenizer anew."""
        if self.kind == "python":
            return Letters()
        if self.kind == "real":
            return data.load_family(self._family())
        return toy(special("<s>"), special("</s>"), template="<s> $A")

    @staticmethod
    def _family() -> str:
        known = data.families()
        return "qwen3" if "qwen3" in known else known[0]

    def _texts(self) -> Iterator[str]:
        if self.kind == "real":
            for talk in data.conversations(data.conversation_files()[0], 6, seed="a"):
                for end in range(1, min(len(talk), 9)):
                    # With one of more than 4 kB, which is encoded without the GIL.
                    yield data.render(self._family(), talk[:end])
            return
        stop, begin = ("|", "") if self.kind == "python" else ("</s>", "<s>")
        for i in range(40):
            words = [f"{begin}{'hello' * (j % 4)}{i % 7}{stop}" for j in range(i % 9)]
            yield "".join(words) + "foo" * (i % 30)

    def ids(self, text: str) -> list[int]:
        """Return the tokenizer's own ids."""
        found = self.raw.encode(text)
        return list(getattr(found, "ids", found))


class Told:
    """Observers that note what they are told."""

    def __init__(self) -> None:
        self.hits: list[int] = []
        self.misses: list[int] = []
        self.usages: list[CacheTokenUsage] = []

    def settings(self) -> dict[str, Any]:
        """Return them as arguments of a wrapper."""
        return {
            "on_hit": lambda: self.hits.append(1),
            "on_miss": lambda: self.misses.append(1),
            "on_tokens": self.usages.append,
        }


class Caller:
    """Call one wrapper in every way, and note how often and for how many ids."""

    def __init__(self, number: int, case: Case, cached: CachedTokenizer) -> None:
        self.source = random.Random(number)
        self.case = case
        self.cached = cached
        self.n_encodes = self.n_ids = 0

    def run(self, calls: int) -> None:
        for _ in range(calls):
            kind = self.source.choice([self.one, self.number, self.many, self.loop])
            kind()

    def _text(self) -> str:
        return self.source.choice(self.case.texts)

    def _check(self, text: str, found: TokenIds | Any) -> None:
        self._note(text, found == self.case.want[text])

    def _note(self, text: str, is_right: object) -> None:
        assert is_right, text
        self.n_encodes += 1
        self.n_ids += len(self.case.want[text])

    def one(self) -> None:
        text = self._text()
        self._check(text, self.cached.encode(text))

    def number(self) -> None:
        text = self._text()
        self._note(text, self.cached.count(text) == len(self.case.want[text]))

    def many(self) -> None:
        texts = [self._text() for _ in range(self.source.randint(0, 5))]
        if self.source.random() < 0.5:
            found: list[Any] = self.cached.encode_batch(texts)
        else:
            ids, offsets = self.cached.encode_batch_flat(texts)
            found = [ids[a:b] for a, b in itertools.pairwise(offsets)]
        for text, each in zip(texts, found, strict=True):
            self._check(text, each)

    def loop(self) -> None:
        """Encode on an event loop of this thread."""
        texts = [self._text() for _ in range(4)]

        async def run() -> list[Any]:
            return await asyncio.gather(*map(self.cached.aencode, texts))

        for text, found in zip(texts, asyncio.run(run()), strict=True):
            self._check(text, found)


def until(event: threading.Event, *works: Callable[[], object]) -> Callable[[], None]:
    """Return what does all of it in turn until the event."""

    def run() -> None:
        while not event.is_set():
            for work in works:
                work()

    return run


def traffic(callers: Sequence[Caller], *meanwhile: Callable[[], object]) -> None:
    """Let all callers call, and others do something all the time."""
    ended = threading.Event()
    left = itertools.count(len(callers) - 1, -1)

    def call(caller: Caller) -> None:
        try:
            caller.run(CALLS // len(callers))
        finally:
            if next(left) <= 0:
                ended.set()

    in_threads(
        [
            *[lambda caller=caller: call(caller) for caller in callers],
            *[until(ended, work, lambda: time.sleep(0.001)) for work in meanwhile],
        ]
    )


def assert_exact(callers: Sequence[Caller], told: Told, *, passes: bool) -> None:
    """Check a wrapper's sums against what its callers and observers know.

    With ``passes`` some of the calls may have passed through, whose ids nobody counts.
    """
    counters = callers[0].cached._counters
    hits, misses, known, new, passed, failures = counters.totals()
    assert hits + misses + passed == sum(caller.n_encodes for caller in callers)
    assert passed == 0 or passes
    assert failures == 0
    if not passed:
        assert known + new == sum(caller.n_ids for caller in callers)
    assert (len(told.hits), len(told.misses)) == (hits, misses)
    assert len(told.usages) == hits + misses
    assert sum(usage.cached_tokens for usage in told.usages) == known
    assert sum(usage.uncached_tokens for usage in told.usages) == new
    timed = [sum(counters.latencies(hit)[0]) for hit in (True, False)]
    assert timed == [hits, misses]


@pytest.mark.parametrize("n_threads", [8, 32])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", ["toy", "real", "python"])
def test_one_cache(kind: str, budget: str, n_threads: int) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    case, told = Case(kind), Told()
    memory, resident = BUDGETS[budget]
    cached = CachedTokenizer(
        case.build(),
        case.listed,
        max_memory_bytes=memory,
        max_resident_bytes=resident,
        **told.settings(),
    )
    registry = prometheus.CollectorRegistry()
    trie = cached._trie
    publish_metrics(cached, registry=registry)
    callers = [Caller(i, case, cached) for i in range(n_threads)]

    def look() -> None:
        stats = cached.cache_stats()
        assert stats.memory_bytes <= memory
        assert stats.resident_bytes <= resident
        assert b"tokcache_requests_total" in prometheus.generate_latest(registry)

    traffic(callers, cached.clear_cache, trie.check, trie.leaves, trie.residents, look)
    assert_exact(callers, told, passes=False)
    trie.check()


@pytest.mark.parametrize("n_threads", [8, 32])
@pytest.mark.parametrize("budget", BUDGETS)
def test_one_store(budget: str, n_threads: int) -> None:
    store = SharedTokenizerCache(*BUDGETS[budget])
    cases = [Case("toy"), Case("python"), Case("toy")]
    tolds = [Told() for _ in cases]
    wrappers = [
        CachedTokenizer.with_cache(
            case.build(), case.listed, store, b"%d" % i, **told.settings()
        )
        for i, (case, told) in enumerate(zip(cases, tolds, strict=True))
    ]
    callers = [Caller(i, cases[i % 3], wrappers[i % 3]) for i in range(n_threads)]
    for wrapper in wrappers:
        wrapper._counters.start_timing()

    def look() -> None:
        assert store.namespaces == (b"0", b"1", b"2")
        assert store.stats().resident_bytes <= store.max_resident_bytes
        assert store.stats(b"1").entries >= 0

    traffic(callers, store.clear, lambda: store.clear(b"0"), store.trie.check, look)
    for i, told in enumerate(tolds):
        assert_exact(callers[i::3], told, passes=False)
    store.trie.check()
    total, parts = store.stats(), [store.stats(name) for name in store.namespaces]
    for name in ("entries", "tails", "memory_bytes", "insertions", "evictions"):
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["toy", "python"])
def test_a_tokenizer_that_is_read_again_all_the_time(kind: str, shared: bool) -> None:
    """What an invalidation catches under way passes through, and is counted once."""
    case, told = Case(kind), Told()
    store: dict[str, Any] = {}
    if shared:
        store = {"cache": SharedTokenizerCache(), "namespace": b"a"}
    cached = CachedTokenizer(case.build(), case.listed, **store, **told.settings())
    cached._counters.start_timing()
    callers = [Caller(i, case, cached) for i in range(8)]
    traffic(callers, cached.invalidate, cached.clear_cache, cached.explain)
    assert_exact(callers, told, passes=True)
    cached._trie.check()


def test_truncation_that_is_switched_all_the_time() -> None:
    """Each call has the ids of before or after, and is counted once."""
    case, told = Case("toy"), Told()
    cached = CachedTokenizer(case.build(), **told.settings())
    cached._counters.start_timing()
    n_calls = itertools.count()

    def call(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(CALLS // 8):
            text = source.choice(case.texts)
            found = cached.encode(text).ids
            assert found in (case.want[text], case.want[text][:5])
            next(n_calls)

    ended = threading.Event()

    def call_all() -> None:
        try:
            in_threads([lambda seed=seed: call(seed) for seed in range(8)])  # type: ignore[misc]
        finally:
            ended.set()

    def switch() -> None:
        cached.enable_truncation(5)
        time.sleep(0.001)
        cached.no_truncation()

    in_threads([call_all, until(ended, switch)])
    hits, misses, known, new, passed, failures = cached._counters.totals()
    assert hits + misses + passed == next(n_calls)
    assert (len(told.hits), len(told.misses)) == (hits, misses)
    assert sum(u.cached_tokens + u.uncached_tokens for u in told.usages) == known + new
    assert failures == 0
    cached._trie.check()


def test_wrappers_that_come_and_go() -> None:
    """A namespace is opened, used and forgotten by several threads at once."""
    store = SharedTokenizerCache(*BUDGETS["large"])
    case = Case("toy")

    def come_and_go(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(15):
            name = source.choice([b"a", b"b", b"c"])
            cached = CachedTokenizer.with_cache(case.build(), None, store, name)
            for text in source.choices(case.texts, k=5):
                assert cached.encode(text) == case.want[text]
            del cached
            store.clear(name)

    in_threads([lambda seed=seed: come_and_go(seed) for seed in range(8)])  # type: ignore[misc]
    gc.collect()
    store.clear()
    assert store.namespaces == ()
    assert store.stats().entries == 0
    store.trie.check()


def test_what_raises_in_an_observer_is_counted_each_time() -> None:
    def fails() -> None:
        raise ValueError

    case = Case("toy")
    cached = CachedTokenizer(case.build(), on_hit=fails, on_miss=fails)
    callers = [Caller(i, case, cached) for i in range(8)]
    traffic(callers)
    errors = cached.cache_stats().observer_errors
    assert errors == sum(caller.n_encodes for caller in callers)


def test_a_cache_without_a_tokenizer() -> None:
    case = Case("toy")
    level = L1Cache(2**20)
    raw: Tokenizer = case.build()
    want = {text: raw.encode(text, add_special_tokens=False).ids for text in case.texts}

    def work(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(100):
            text = source.choice(case.texts)
            match = level.longest_prefix_match(text)
            if match is None:
                assert level.populate_and_encode(text, raw) == want[text]
            else:
                assert level.extend_after_match(text, *match, raw) == want[text]

    in_threads([lambda seed=seed: work(seed) for seed in range(8)])  # type: ignore[misc]
    stats = level.stats()
    assert stats.hits + stats.misses == 800


# -- a clear, and what was begun before it


CLEARS: dict[str, Callable[[SharedTokenizerCache, CachedTokenizer], None]] = {
    "the wrapper": lambda _, cached: cached.clear_cache(),
    "its namespace": lambda store, _: store.clear(b"a"),
    "the store": lambda store, _: store.clear(),
    "invalidate": lambda _, cached: cached.invalidate(),
}
ENCODES: dict[str, Callable[[CachedTokenizer, str], Any]] = {
    "encode": lambda cached, text: cached.encode(text),
    "encode_batch": lambda cached, text: cached.encode_batch([text])[0],
    "aencode": lambda cached, text: asyncio.run(cached.aencode(text)),
    "count": lambda cached, text: cached.count(text),
}


@pytest.mark.parametrize("begun", ["with nothing cached", "behind a cached prefix"])
@pytest.mark.parametrize("call", ENCODES)
@pytest.mark.parametrize("what", CLEARS)
def test_what_began_before_a_clear_is_not_there_after_it(
    what: str, call: str, begun: str
) -> None:
    store = SharedTokenizerCache()
    raw = toy(special("<s>"), special("</s>"))
    cached = CachedTokenizer.with_cache(raw, None, store, b"a")
    other = CachedTokenizer.with_cache(raw, None, store, b"b")
    cached.encode("<s></s>")  # both tokens have had their first trial
    other.encode("<s>foo</s>")
    if begun == "with nothing cached":
        cached.clear_cache()
    text = "<s></s>hello<s>hello</s>"
    want = raw.encode(text).ids
    is_inside, is_cleared = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        is_inside.set()
        assert is_cleared.wait(DEADLINE)

    InnerCalls(cached, wait)
    found: list[Any] = []

    def clear() -> None:
        assert is_inside.wait(DEADLINE)
        CLEARS[what](store, cached)
        is_cleared.set()

    in_threads([lambda: found.append(ENCODES[call](cached, text)), clear])
    assert found in ([want], [len(want)])
    assert store.stats(b"a").entries == store.stats(b"a").tails == 0
    assert store.stats(b"b").entries == (0 if what == "the store" else 2)
    store.trie.check()
    # And after it the next one is stored as ever.
    assert cached.encode(text) == want
    assert store.stats(b"a").entries > 0
