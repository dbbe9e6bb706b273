"""Ways for a process to end while it encodes; each is all that its process does."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.isolated.children import exit_code
from tests.isolated.traffic import TEXT, Plain, build, new_text, warm, wrapper
from tokcache import CachedTokenizer, SharedTokenizerCache

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 4
QUIET: list[Callable[[], None]] = []


def ends_quietly(scenario: Callable[[], None]) -> Callable[[], None]:
    """Put on the list of those that exit with 0 and write nothing."""
    QUIET.append(scenario)
    return scenario


def python_wrapper() -> CachedTokenizer:
    return CachedTokenizer(Plain(), ["<s>", "</s>"], max_memory_bytes=2048)


def keep_busy(work: Callable[[], object], n: int = THREADS) -> None:
    """Let daemon threads do something for ever; return when each has begun."""
    begun = threading.Semaphore(0)

    def run() -> None:
        work()
        begun.release()
        while True:
            work()

    for _ in range(n):
        threading.Thread(target=run, daemon=True).start()
    for _ in range(n):
        assert begun.acquire(timeout=60)
    time.sleep(0.05)


@ends_quietly
def hits() -> None:
    cached = wrapper()
    cached.encode(TEXT)
    keep_busy(lambda: cached.encode(TEXT))


@ends_quietly
def hits_as_lists() -> None:
    cached = wrapper()
    text = TEXT * 300
    cached.encode(text)
    keep_busy(lambda: cached.encode(text).ids)


@ends_quietly
def counts() -> None:
    cached = wrapper()
    cached.encode(TEXT)
    keep_busy(lambda: cached.count(TEXT))


@ends_quietly
def misses() -> None:
    cached = warm(wrapper())
    keep_busy(lambda: cached.encode(new_text()))


@ends_quietly
def misses_of_a_python_tokenizer() -> None:
    cached = warm(python_wrapper())
    keep_busy(lambda: cached.encode(new_text()))


@ends_quietly
def batches() -> None:
    cached = warm(wrapper())
    keep_busy(lambda: cached.encode_batch([TEXT, new_text(), new_text()]))


@ends_quietly
def batches_of_a_python_tokenizer() -> None:
    cached = warm(python_wrapper())
    keep_busy(lambda: cached.encode_batch([TEXT, new_text(), new_text()]))


@ends_quietly
def changes() -> None:
    cached = wrapper()

    def work() -> None:
        cached.encode(new_text())
        cached.clear_cache()
        cached.invalidate()

    keep_busy(work)


@ends_quietly
def new_wrappers() -> None:
    cache = SharedTokenizerCache(max_memory_bytes=2048)
    inner = build()
    keep_busy(
        lambda: CachedTokenizer.with_cache(inner, None, cache, b"one").encode(TEXT)
    )


@ends_quietly
def everything_at_once() -> None:
    cached = warm(wrapper(verify=0.5))
    keep_busy(lambda: cached.encode(TEXT), 2)
    keep_busy(lambda: cached.encode(new_text()), 2)
    keep_busy(cached.clear_cache, 1)
    keep_busy(lambda: cached.encode_batch([TEXT, new_text()]), 2)


@ends_quietly
def thread_pool() -> None:
    """Leave a pool with work under way: the interpreter waits for that."""
    cached = warm(wrapper())
    pool = ThreadPoolExecutor(THREADS)
    for _ in range(50):
        pool.submit(cached.encode, new_text() * 20)


@ends_quietly
def event_loop() -> None:
    """Leave a loop in a daemon thread, whose encodes are in threads of its own."""
    told: list[object] = []
    cached = warm(wrapper(on_tokens=told.append))

    async def serve() -> None:
        while True:
            await asyncio.gather(
                *(cached.aencode(new_text() * 40) for _ in range(8)),
                cached.aencode(TEXT),
            )

    def run() -> None:
        # What asyncio raises where the interpreter lets no thread begin any more.
        with suppress(RuntimeError):
            asyncio.run(serve())

    before = len(told)
    threading.Thread(target=run, daemon=True).start()
    while len(told) < before + 20:
        time.sleep(0.01)


@ends_quietly
def cancelled_event_loop() -> None:
    cached = warm(wrapper())

    async def serve() -> None:
        tasks = [
            asyncio.ensure_future(cached.aencode(new_text() * 40)) for _ in range(9)
        ]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    asyncio.run(serve())


@ends_quietly
def metrics() -> None:
    """Publish; where the environment asks for files, these are written by a thread."""
    from tokcache.observers import publish_metrics  # noqa: PLC0415 - an extra

    cached = warm(wrapper())
    publish_metrics(cached, model="m")
    keep_busy(lambda: cached.encode(new_text()))
    time.sleep(0.25)


def forks_while_metrics_are_written() -> None:
    """End children that were forked while a thread was busy writing to files."""
    from tokcache.metrics_files import publisher  # noqa: PLC0415 - an extra
    from tokcache.observers import publish_metrics  # noqa: PLC0415

    cached = warm(wrapper())
    publish_metrics(cached, model="m")

    def work() -> None:
        cached.encode(new_text())
        publisher().write()

    keep_busy(work, 1)
    for _ in range(30):
        child = os.fork()
        if not child:
            return
        assert exit_code(child) == 0
    print("no child hung")  # noqa: T201 - for the test


def metrics_at_the_end() -> None:
    """Count right before the end, when no thread writes any more."""
    from prometheus_client import (  # noqa: PLC0415 - an extra
        CollectorRegistry,
        multiprocess,
    )

    from tokcache.observers import publish_metrics  # noqa: PLC0415

    def tell() -> None:
        registry = CollectorRegistry()
        collector: Any = multiprocess.MultiProcessCollector
        collector(registry)
        for family in registry.collect():
            for sample in family.samples:
                if sample.labels.get("result") == "miss":
                    print(sample.name, int(sample.value))  # noqa: T201 - for the test

    cached = wrapper()
    atexit.register(tell)  # runs after the publisher's, which is registered next
    publish_metrics(cached, model="m")
    cached.encode(TEXT)


@ends_quietly
def exit_in_a_thread() -> None:
    cached = warm(wrapper())
    keep_busy(lambda: cached.encode(new_text()))

    def leave() -> None:
        cached.encode(new_text())
        sys.exit(3)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()


@ends_quietly
def exit_at_once() -> None:
    cached = warm(wrapper())
    keep_busy(lambda: cached.encode(new_text()))
    os._exit(0)


def exception_at_the_end() -> None:
    cached = warm(wrapper())
    keep_busy(lambda: cached.encode(new_text()))
    raise ZeroDivisionError


def at_exit() -> None:
    cached = warm(wrapper())
    keep_busy(lambda: cached.encode(new_text()))

    def last() -> None:
        assert cached.encode(TEXT).ids == build().encode(TEXT).ids
        assert len(cached.encode_batch([TEXT, new_text()])) == 2
        print("encoded at exit")  # noqa: T201 - for the test

    atexit.register(last)


class Late:
    """Encode when it goes, which is when the interpreter's modules go."""

    def __init__(self) -> None:
        self.cached = warm(wrapper())
        self.want = build().encode(TEXT).ids
        self.text = TEXT
        self.say = os.write

    def __del__(self) -> None:
        if self.cached.encode(self.text).ids == self.want:
            self.say(1, b"encoded when it went\n")


_late: list[Any] = []


def at_the_very_end() -> None:
    """Hold it from a module, and by a cycle."""
    late = Late()
    late.__dict__["itself"] = late
    _late.append(late)


def _error_in_another(code: str) -> str:
    """Run code in a second interpreter, which then ends; return what it raises."""
    where = f"import sys; sys.path[:] = {sys.path}\n"
    try:
        interpreters: Any = importlib.import_module("_interpreters")
    except ModuleNotFoundError:  # before Python 3.13
        interpreters = importlib.import_module("_xxsubinterpreters")
    other = interpreters.create()
    try:
        found = interpreters.run_string(other, where + code)
    except interpreters.RunFailedError as error:
        return str(error)
    finally:
        interpreters.destroy(other)
    return "" if found is None else f"{found.type.__name__}: {found.msg}"


def import_also_in_another() -> None:
    """Import the core here, then in a second interpreter; go on here."""
    cached = wrapper()
    cached.encode(TEXT)
    for name in ("_batch", "_counters", "_ids", "_plan", "_scan", "_trie", "_walker"):
        error = _error_in_another(f"import tokcache.{name}")
        assert "ImportError" in error, error
    assert cached.encode(TEXT).ids == build().encode(TEXT).ids


def import_first_in_another() -> None:
    """Import the core in a second interpreter only; it works or is refused."""
    error = _error_in_another(
        "from tokcache._ids import TokenIds\n"
        "assert TokenIds([1, 300000]).tolist() == [1, 300000]"
    )
    assert not error or "ImportError" in error, error
    try:
        importlib.import_module("tokcache._trie")
    except ImportError:
        return
    assert error
