"""Ask for millions of prompts, and see that memory stays as it is.

``python -m benchmarks.soak`` drives several wrappers of one shared store from several
threads: real conversations that come and go, branches of them, prompts that nobody asks
for again, batches, counts, namespaces that are cleared, results that are held for a
while. A share of the ids is compared with the tokenizers' own. It writes a plot and the
figures, and fails if an id is wrong, if an invariant of the store does not hold, or if
the process has grown by more than two per cent once it was warm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import sys
import time
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine
from tests import data
from tokcache import CachedTokenizer, SharedTokenizerCache, TokenIds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer

MAX_GROWTH = 0.02
WARM_UP = 0.1  # of the requests
SLICES = 200  # after each of which is looked at the memory
SLICES_A_CLEAR = 10
MEMORY_BYTES, RESIDENT_BYTES = 2**20, 2**22  # so that most of what came is evicted
FAMILIES = ("qwen3", "deepseek_v4")  # each in two namespaces
MAX_CHARS = 1500  # of a conversation
TALKS = 300  # that a client asks for in turn
REQUESTS_A_TALK = 200  # after which the oldest of them is gone for good
HELD = 256  # results of each client
CHECKED = 1000  # one request of so many is compared
BATCH = 8


@dataclass(frozen=True)
class Sample:
    """Hold what was seen after so many requests."""

    requests: int
    rss_bytes: int
    resident_bytes: int
    token_hit_ratio: float
    """Since the sample before."""


class WrongIdsError(Exception):
    """Say that a cached call did not return the tokenizer's ids."""


def without_word_cache(family: str) -> Tokenizer:
    """Load a tokenizer that does not itself grow while it meets new words."""
    tokenizer = data.load_family(family)
    resize = getattr(tokenizer.model, "_resize_cache", None)  # not in old versions
    if resize is not None:
        resize(0)
    return tokenizer


class Model:
    """A tokenizer, wrappers of it in namespaces of their own, and prompts for it."""

    def __init__(self, family: str, cache: SharedTokenizerCache) -> None:
        self.family = family
        self.raw = without_word_cache(family)
        self.wrappers = [
            CachedTokenizer.with_cache(self.raw, None, cache, f"{family} {i}".encode())
            for i in range(2)
        ]
        self.talks = [
            talk
            for file in data.conversation_files()
            for talk in data.conversations(file)
            if data.length(talk) <= MAX_CHARS
        ]

    def prompts(self, source: random.Random, name: str) -> list[str]:
        """Return a conversation's prompts, turn by turn; one turn is new."""
        talk = [data.Message(**message) for message in source.choice(self.talks)]
        source.choice(talk)["content"] += f" ({name})"
        return [
            data.render(self.family, talk[:end]) for end in range(1, len(talk) + 1, 2)
        ]


class Client:
    """Ask for prompts, one call after another, as one thread does."""

    def __init__(self, number: int, models: Sequence[Model]) -> None:
        self._source = random.Random(number)
        self._models = models
        self._names = (f"{number}.{i}" for i in itertools.count())
        self._talks: deque[tuple[CachedTokenizer, Tokenizer, list[str]]] = deque()
        self._held: deque[tuple[memoryview, int]] = deque()
        self._n_until_check = CHECKED
        for _ in range(TALKS):
            self._begin_talk()

    def _begin_talk(self) -> None:
        model = self._source.choice(self._models)
        prompts = model.prompts(self._source, next(self._names))
        wrapper = self._source.choice(model.wrappers)
        self._talks.append((wrapper, model.raw, prompts))

    def run(self, requests: int) -> None:
        """Make so many requests; raise `WrongIdsError` if one is answered wrongly."""
        drawn = self._source.random
        while requests > 0:
            for _ in range(min(requests, REQUESTS_A_TALK)):
                # Some are asked for far more often than others.
                cached, raw, prompts = self._talks[int(TALKS * drawn() ** 3)]
                prompt = prompts[int(len(prompts) * drawn())]
                kind = drawn()
                if kind < 0.9:
                    ids = cached.encode(prompt)
                elif kind < 0.99:
                    self._expect(cached.count(prompt), prompt, raw)
                    continue
                elif kind < 0.995:
                    self._batch(cached, raw)
                    continue
                else:
                    # Nobody asks for this one again.
                    prompt += f"{drawn()}"
                    ids = cached.encode(prompt)
                self._expect(ids, prompt, raw)
                if kind < 0.01:
                    assert isinstance(ids, TokenIds)
                    self._hold(memoryview(ids))
            requests -= REQUESTS_A_TALK
            self._talks.popleft()
            self._begin_talk()

    def _batch(self, cached: CachedTokenizer, raw: Tokenizer) -> None:
        prompts = [
            self._source.choice(prompts)
            for wrapper, _, prompts in itertools.islice(self._talks, 4 * BATCH)
            if wrapper is cached
        ]
        each = cached.encode_batch(prompts)
        flat = cached.encode_batch_flat(prompts)
        for i, prompt in enumerate(prompts):
            start, stop = flat.offsets[i : i + 2]
            self._expect(each[i], prompt, raw)
            self._expect(flat.ids[start:stop], prompt, raw)

    def _expect(self, found: object, prompt: str, raw: Tokenizer) -> None:
        """Compare ids, or their number, with the tokenizer's own, now and then."""
        self._n_until_check -= 1
        if self._n_until_check:
            return
        self._n_until_check = CHECKED
        want = raw.encode(prompt).ids
        if found != (len(want) if isinstance(found, int) else want):
            msg = f"not the ids of {prompt!r}"
            raise WrongIdsError(msg)

    def _hold(self, ids: memoryview) -> None:
        """Keep a result, and see that one kept long ago is as it was."""
        self._held.append((ids, zlib.crc32(ids)))
        if len(self._held) > HELD:
            old, checksum = self._held.popleft()
            if zlib.crc32(old) != checksum:
                raise WrongIdsError("a result has changed while it was held")


def rss_bytes() -> int:
    """Return what the process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


class Soak:
    """Drive one store, and look at it from time to time."""

    def __init__(self, n_threads: int = 2, families: Sequence[str] = FAMILIES) -> None:
        self.cache = SharedTokenizerCache(MEMORY_BYTES, RESIDENT_BYTES)
        known = data.families()
        self._models = [
            Model(family if family in known else known[0], self.cache)
            for family in families
        ]
        self.wrappers = [w for model in self._models for w in model.wrappers]
        self.clients = [Client(i, self._models) for i in range(n_threads)]
        self.samples: list[Sample] = []
        self._tokens = (0, 0)

    def run(self, requests: int, slices: int = SLICES) -> None:
        """Make so many requests in all; raise what is wrong."""
        each = requests // slices // len(self.clients)
        with ThreadPoolExecutor(len(self.clients)) as threads:
            for i in range(1, slices + 1):
                for work in [threads.submit(c.run, each) for c in self.clients]:
                    work.result()
                if i % SLICES_A_CLEAR == 0:
                    names = self.cache.namespaces
                    self.cache.clear(names[i // SLICES_A_CLEAR % len(names)])
                    self.cache.trie.check()
                self._look(i * each * len(self.clients))

    def _look(self, requests: int) -> None:
        stats = [wrapper.cache_stats() for wrapper in self.wrappers]
        cached = sum(each.cached_tokens for each in stats)
        uncached = sum(each.uncached_tokens for each in stats)
        new, old = cached - self._tokens[0], uncached - self._tokens[1]
        self._tokens = cached, uncached
        resident = self.cache.stats().resident_bytes
        ratio = new / max(1, new + old)
        self.samples.append(Sample(requests, rss_bytes(), resident, ratio))


def growth(samples: Sequence[Sample]) -> float:
    """Return by which share the process has grown at most since it was warm."""
    if not samples:
        return 0.0
    warm = [
        s.rss_bytes for s in samples if s.requests >= WARM_UP * samples[-1].requests
    ]
    return max(warm) / warm[0] - 1


def too_much(grown: float, at_most: float = MAX_GROWTH) -> str | None:
    """Return what is wrong with a growth, or None."""
    return f"the process has grown by {grown:.2%}" if grown > at_most else None


def save_plot(samples: Sequence[Sample], path: Path, dpi: int = 110) -> None:
    """Write a PNG: the process, the store, and the hits over the requests."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(7, 5.5), dpi=dpi, layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    at = [sample.requests / 1e6 for sample in samples]
    for axes, values, name in (
        (top, [s.rss_bytes / 1e6 for s in samples], "process, MB"),
        (middle, [s.resident_bytes / 1e6 for s in samples], "store, MB"),
        (bottom, [s.token_hit_ratio for s in samples], "token hit ratio"),
    ):
        axes.plot(at, values, linewidth=1)
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])  # flat lines are not at the rim
        axes.set_ylabel(name)
        axes.grid(visible=True, alpha=0.3)
    top.set_title(f"grown by {growth(samples):+.2%} at most since warm", fontsize=9)
    bottom.set_xlabel("million requests")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> int:
    """Soak, and return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/soak"), metavar="STEM")
    parser.add_argument("--max-growth", type=float, default=MAX_GROWTH)
    options = parser.parse_args()
    started = time.perf_counter()
    soak = Soak(options.threads)
    problem = None
    try:
        soak.run(options.requests)
    except (WrongIdsError, AssertionError) as error:
        problem = f"{type(error).__name__}: {error}"
    took = time.perf_counter() - started
    found = growth(soak.samples)
    problem = problem or too_much(found, options.max_growth)
    stats = soak.cache.stats()
    figures = {
        "machine": machine.describe(),
        "requests": soak.samples[-1].requests if soak.samples else 0,
        "seconds": took,
        "growth": found,
        "problem": problem,
        "store": asdict(stats),
        "samples": [asdict(sample) for sample in soak.samples],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(figures, indent=1), "utf-8")
    if soak.samples:
        save_plot(soak.samples, options.out.with_suffix(".png"))
    print(
        f"{figures['requests']:,} requests in {took:,.0f} s; "
        f"process grown by {found:+.2%}; {stats.insertions:,} insertions, "
        f"{stats.evictions:,} evictions, {stats.refused:,} refused"
    )
    if problem is not None:
        print(f"FAILED: {problem}")
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
