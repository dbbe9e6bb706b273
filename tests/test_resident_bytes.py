"""Check reported bytes, and both budgets, against the allocator's own count."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING

from tests.allocator import Allocator, run_with_own_allocator
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

if TYPE_CHECKING:
    from pathlib import Path

MARK = 9
# Of a table or sketch that the allocator maps by itself, the last page counts in full;
# besides, there are the roots.
SLACK = 3 * 4096 + 4096


class Cache:
    """A few wrappers of one trie, and what the allocator has given for it."""

    def __init__(self, allocator: Allocator, memory: int, resident: int) -> None:
        scanner = Scanner([("#", MARK, 1, True)])
        scanner.trust(0)
        gc.collect()
        self.allocator = allocator
        self.before = allocator.bytes
        self.trie = Trie(memory, resident, hash_seed=1)
        self.walkers = [Walker(self.trie, None, scanner) for _ in range(4)]

    def ask(self, root: int, text: str, ids_a_letter: int) -> None:
        """Encode a text of which every letter has so many ids."""
        plan = self.walkers[root].lookup(text, False)
        if not isinstance(plan, Plan):
            return
        for i in range(plan.n_runs):
            ids: list[int] = []
            for letter in plan.run_text(i):
                ids += [MARK] if letter == "#" else [1] * ids_a_letter
            assert plan.feed(i, ids) == 0
        plan.finish()

    @property
    def held(self) -> int:
        """Return what the allocator has given since the trie was made."""
        return self.allocator.bytes - self.before


def report_what_is_held() -> None:
    """Compare at every step of random traffic, from empty through full to cleared."""
    allocator = Allocator()
    for memory, resident in ((2**40, 2**40), (2**40, 300_000), (30_000, 2**40), (0, 0)):
        rng = random.Random(memory + resident)
        cache = Cache(allocator, memory, resident)
        histories = [""] * 40
        for step in range(6000):
            i = rng.randrange(40)
            if len(histories[i]) > 300 or not histories[i]:
                histories[i] = rng.choice(["s#y#s#", "\u20ac#", "t#"])
            # Short ones are shared by many paths; what follows the mark is a tail.
            turn = rng.choice(["yes#", "no#", f"{step}#", "\U0001f600" * 9 + "#"])
            histories[i] += turn
            tail = rng.choice(["", "tail", f"tail {step}", "long tail" * 9])
            cache.ask(i % 4, histories[i] + tail, rng.choice([1, 1, 1, 30]))
            if step % 1500 == 1499:
                cache.trie.clear(rng.randrange(4))
            used = cache.trie.usage()[3]
            assert used - 64 <= cache.held <= used + used // 50 + SLACK, step
            assert cache.held <= resident + resident // 50 + SLACK
        cache.trie.clear()
        assert cache.trie.usage()[3] == 0
        assert cache.held <= SLACK
        del cache


def hold_ids_within_the_budget() -> None:
    """Where there is next to nothing but ids, they are what the allocator has given."""
    memory = 2**20
    cache = Cache(Allocator(), memory, 2**40)
    for i in range(2000):
        cache.ask(i % 4, f"{i}#", 1000)
        assert cache.held <= memory + memory // 10 + SLACK
    assert cache.trie.usage()[2] > memory - memory // 20
    assert cache.held > memory - memory // 20


def link_below_a_power_of_two() -> None:
    """Fill a cache that always has a few entries less than its tables have buckets."""
    allocator = Allocator()
    entries = 2**13 - 8
    cache = Cache(allocator, 4 * entries, 2**40)
    paths = ["".join(f"{i} {k}#" for k in range(30)) for i in range(600)]
    for path in paths:
        for text in path.split("#")[:-1]:
            cache.ask(0, text + "#", 0)
    assert cache.trie.usage()[0] == entries
    for path in paths:
        allocator.take_peak()
        before = allocator.bytes
        cache.ask(0, "new " + path, 0)
        # Its plan and its segments; a table alone would have grown by 64 KiB.
        assert allocator.take_peak() - before < 32 * 1024


def test_resident_bytes_are_what_the_allocator_has_given(tmp_path: Path) -> None:
    run_with_own_allocator(report_what_is_held, tmp_path)


def test_a_full_cache_does_not_grow_its_tables_for_every_path(tmp_path: Path) -> None:
    run_with_own_allocator(link_below_a_power_of_two, tmp_path)


def test_memory_bytes_are_what_the_allocator_has_given_for_ids(tmp_path: Path) -> None:
    run_with_own_allocator(hold_ids_within_the_budget, tmp_path)
