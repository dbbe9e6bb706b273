"""Check forks at the worst moments, other processes, and what is sent to them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.encoding_runs import build, make_texts
from tests.isolated.children import exit_code
from tests.isolated.traffic import Plain
from tokcache import CachedTokenizer, L1Cache, SharedTokenizerCache, TokenIds
from tokcache.locks import _every_lock
from tokcache.observers import publish_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded.*fork:DeprecationWarning"
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TEXTS = make_texts(60)
KNOWN = "<|im_start|>hello<|im_end|>"


@pytest.fixture(autouse=True)
def _no_threads_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the tokenizer's own threads do in a child is its business.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked child; return its exit code, 0 if all is well."""
    pid = os.fork()
    if not pid:
        # It must not come back into the test.
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - told by the exit code
            os.write(2, traceback.format_exc().encode())
            os._exit(2)
    return exit_code(pid)


def raw() -> list[list[int]]:
    tokenizer = build()
    return [tokenizer.encode(text).ids for text in TEXTS]


def check_all(cached: CachedTokenizer, want: list[list[int]]) -> None:
    """Compare what is encoded one by one, in one batch and on an event loop."""
    assert [cached.encode(text).ids for text in TEXTS] == want
    assert [ids.ids for ids in cached.encode_batch(TEXTS)] == want
    assert cached.encode(f"{KNOWN}foo").ids == build().encode(f"{KNOWN}foo").ids
    cached._trie.check()


# -- forks ----------------------------------------------------------------------


@needs_fork
def test_a_child_finds_every_lock_free() -> None:
    """Each lock is held by a thread that the child does not have."""
    cache = SharedTokenizerCache()
    cached = CachedTokenizer.with_cache(build(), None, cache, b"one")
    level = L1Cache(2**20)
    registry = CollectorRegistry()
    publish_metrics(cached, registry=registry)
    locks = list(_every_lock)
    assert {cache._lock, cached._install, level._lock} < set(locks)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            done.wait(60)

    def use() -> None:
        want = raw()
        cached.invalidate()
        check_all(cached, want)
        check_all(CachedTokenizer.with_cache(build(), None, cache, b"two"), want)
        assert cache.stats(b"one").entries
        level.insert_at_boundaries(KNOWN, build())
        assert level.longest_prefix_match(KNOWN + "more") is not None
        cache.clear()
        publish_metrics(cached, model="again", registry=registry)
        assert b'model="again"' in generate_latest(registry)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        assert in_child(use) == 0
    finally:
        done.set()
        thread.join()


@needs_fork
def test_a_child_of_a_process_busy_with_threads_works() -> None:
    """B42: no lock of ours is held over a fork, and no thread of ours is missed."""
    cached = CachedTokenizer(build(), max_memory_bytes=2048)
    want = raw()
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            cached.encode_batch(TEXTS)
            cached.clear_cache()

    threads = [threading.Thread(target=keep_busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: check_all(cached, want)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Waiting(Plain):
    """Stop in the middle of an encode until it is told to go on."""

    def __init__(self) -> None:
        self.is_inside = threading.Event()
        self.goes_on = threading.Event()
        self.waits_for: str | None = None
        self.meanwhile: Callable[[], object] = self.wait

    def encode(self, text: str) -> Any:
        if self.waits_for is not None and self.waits_for in text:
            self.waits_for = None
            self.meanwhile()
        return super().encode(text)

    def wait(self) -> None:
        self.is_inside.set()
        assert self.goes_on.wait(60)


@needs_fork
def test_a_fork_while_another_thread_is_in_the_inner_tokenizer() -> None:
    """Its plan is under way for ever in the child, which encodes the same text."""
    inner = Waiting()
    cached = CachedTokenizer(inner, ["<s>", "</s>"])
    text = "<s>hello</s>foo"
    inner.waits_for = "hello"
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(cached.encode(text).ids))
    thread.start()
    assert inner.is_inside.wait(60)

    def use() -> None:
        for _ in range(2):
            assert cached.encode(text).ids == Plain().encode(text)
        assert cached.encode_batch([text])[0].ids == Plain().encode(text)
        cached._trie.check()

    try:
        assert in_child(use) == 0
    finally:
        inner.goes_on.set()
        thread.join()
    assert found == [Plain().encode(text)]


@needs_fork
def test_a_fork_in_the_middle_of_an_encode() -> None:
    """Parent and child both come back from the tokenizer, and both link their plan."""
    inner = Waiting()
    cached = CachedTokenizer(inner, ["<s>", "</s>"])
    text = "<s>hello</s>foo"
    inner.waits_for = "hello"
    pids: list[int] = []
    inner.meanwhile = lambda: pids.append(os.fork())
    ids = cached.encode(text).ids
    is_right = ids == Plain().encode(text) == cached.encode(text).ids
    cached._trie.check()
    hits = cached.cache_stats().hits
    if not pids[0]:
        os._exit(0 if is_right and hits == 1 else 1)
    assert exit_code(pids[0]) == 0
    assert is_right
    assert hits == 1


@needs_fork
def test_what_a_child_does_is_its_own() -> None:
    cached = CachedTokenizer(build())
    want = raw()
    check_all(cached, want)
    cached.encode(KNOWN)
    before = cached.cache_stats()

    def use() -> None:
        assert cached.cache_stats() == before
        cached.encode(KNOWN)
        assert cached.cache_stats().hits == before.hits + 1
        cached.clear_cache()
        check_all(cached, want)
        del cached._state  # and with it the memory that both have
        cached._states.clear()

    assert in_child(use) == 0
    assert cached.cache_stats() == before
    check_all(cached, want)


# -- other processes ------------------------------------------------------------


def encode_all(cached: CachedTokenizer, texts: list[str]) -> list[TokenIds]:
    found: list[Any] = [cached.encode(text) for text in texts]
    assert cached.cache_stats().hits + cached.cache_stats().misses == len(texts)
    return found


METHODS = multiprocessing.get_all_start_methods()


@pytest.mark.parametrize("method", METHODS)
def test_a_wrapper_works_in_another_process(method: str) -> None:
    """It is sent there, and the ids are sent back."""
    cached = CachedTokenizer(build())
    with multiprocessing.get_context(method).Pool(1) as pool:
        found = pool.apply(encode_all, (cached, TEXTS))
    assert {type(ids) for ids in found} == {TokenIds}
    assert [ids.ids for ids in found] == raw()
    assert cached.cache_stats().misses == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_member_of_a_shared_cache_works_in_another_process(method: str) -> None:
    """There it has a shared cache of its own, with the same budgets, and empty."""
    cache = SharedTokenizerCache(max_memory_bytes=4096)
    cached = CachedTokenizer.with_cache(build(), None, cache, b"one")
    cached.encode(TEXTS[0])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        found = pool.submit(counts_elsewhere, cached).result()
    assert found == (raw(), 4096)
    assert cached.cache_stats().misses == 1


def counts_elsewhere(cached: CachedTokenizer) -> tuple[list[list[int]], int]:
    assert cached.cache_stats().misses == 0
    found = [cached.encode(text).ids for text in TEXTS]
    return found, cached.cache_stats().max_memory_bytes


_inherited: CachedTokenizer | None = None


def encode_inherited(text: str) -> list[int]:
    assert _inherited is not None
    return _inherited.encode(text).ids


def inherit(cached: CachedTokenizer) -> None:
    global _inherited  # noqa: PLW0603 - how a pool is given what all its tasks use
    _inherited = cached


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_has_one_wrapper_for_all_its_tasks(method: str) -> None:
    context = multiprocessing.get_context(method)
    with context.Pool(2, inherit, (CachedTokenizer(build()),)) as pool:
        assert pool.map(encode_inherited, TEXTS) == raw()


def test_a_pickle_of_every_version_is_read() -> None:
    cached = CachedTokenizer(build())
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        made = pickle.loads(pickle.dumps(cached, protocol))  # noqa: S301 - our own
        assert made.encode(TEXTS[0]).ids == cached.encode(TEXTS[0]).ids
        ids = cached.encode(TEXTS[0])
        assert pickle.loads(pickle.dumps(ids, protocol)) == ids  # noqa: S301
