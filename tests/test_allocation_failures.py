"""Let each allocation of the compiled core fail: it refuses, and is as it was."""

from __future__ import annotations

import contextlib
import gc
import itertools
from typing import TYPE_CHECKING

from tests.allocator import Allocator, run_with_own_allocator
from tokcache._batch import Batch
from tokcache._ids import JoinedIds, TokenIds
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARK = 9
TOKENS = [("#", MARK, 1, True), ("<end>", 8, 1, True)]
# The tables grow beyond their first 64 buckets, and the second budget evicts.
MEMORY, RESIDENT = 4 * 220, 40_000
LONG_TAIL = "tail" * 20
TEXTS = [
    "a#b#c",
    "a#b#d#",
    "a#b#" + LONG_TAIL,
    "a#b#" + LONG_TAIL,
    "".join(f"{i}#" for i in range(90)),
    "no boundary",
    "".join(f"{i}\u20ac#" for i in range(60)) + "\U0001f600",
    "a#b#c",
    "",
]


def ids_of(text: str) -> list[int]:
    return [MARK if letter == "#" else ord(letter) for letter in text]


class Cache:
    """All of the core, as a wrapper uses it."""

    def __init__(self) -> None:
        scanner = Scanner(TOKENS)
        scanner.trust(0)
        self.trie = Trie(MEMORY, RESIDENT, hash_seed=1)
        self.walker = Walker(self.trie, None, scanner, [1], [2])

    def encode(self, text: str) -> None:
        found = self.walker.lookup(text, True)
        if isinstance(found, Plan):
            if found.has_boundary:
                for i in range(found.n_runs):
                    assert found.feed(i, ids_of(found.run_text(i))) == 0
                found = found.finish()
            else:
                found = found.finish_whole([1, *ids_of(text), 2])
        assert found.tolist() == [1, *ids_of(text), 2]

    def gathered(self) -> Batch:
        """Return a batch that has the ids of all texts."""
        batch = Batch(self.walker, 1)
        assert batch.add(TEXTS, 0, 10_000) == len(TEXTS)
        batch.feed(map(ids_of, batch.run_texts()))
        assert batch.texts_apart() == []
        batch.wholes.update((text, TokenIds(ids_of(text))) for text in batch.wholes)
        return batch

    def encode_together(self) -> None:
        batch = self.gathered()
        found: list[TokenIds] = []
        assert batch.complete(TEXTS, found, len(TEXTS), False) is None
        assert found == [ids_of(text) for text in TEXTS]

    def encode_into_one_buffer(self) -> None:
        """Let the compiled flow and `append` write into one buffer, which grows."""
        batch = self.gathered()
        joined = JoinedIds(1)
        assert batch.complete(TEXTS, joined, len(TEXTS), False) is None
        for text in TEXTS:
            n_texts = len(joined)
            try:
                joined.append(TokenIds(ids_of(text)))
            except MemoryError:
                assert len(joined) == n_texts
                raise
        expected = [ids_of(text) for text in TEXTS * 2]
        try:
            ids, offsets = joined.finish()
        except MemoryError:
            assert len(joined) == len(expected)  # nothing was taken out
            raise
        assert ids == [one for each in expected for one in each]
        assert offsets.tolist() == [0, *itertools.accumulate(map(len, expected))]

    def serve_each(self) -> None:
        batch = self.gathered()
        for text in TEXTS:
            found = self.walker.lookup(text, False)
            if isinstance(found, Plan) and found.has_boundary:
                for i in range(found.n_runs):
                    if not batch.serve(found, i):
                        assert found.feed(i, ids_of(found.run_text(i))) == 0
                assert found.finish() == ids_of(text)

    def complete_what_lacks(self) -> None:
        """Come to texts that the batch knows nothing of, one after another."""
        batch = Batch(self.walker, 1)
        found: list[TokenIds] = []
        while len(found) < len(TEXTS):
            plan = batch.complete(TEXTS, found, len(TEXTS), False)
            if plan is None:
                break
            text = TEXTS[len(found)]
            for i in range(plan.n_runs):
                assert plan.feed(i, ids_of(plan.run_text(i))) == 0
            if plan.has_boundary:
                found.append(plan.finish())
            else:
                found.append(plan.finish_whole(ids_of(text)))
        assert found == [ids_of(text) for text in TEXTS]

    def prefix(self) -> None:
        found = self.walker.longest_prefix("a#b#c")
        assert found is None or found[0] == ids_of("a#b#"[: found[1]])

    def steps(self) -> list[Callable[[], None]]:
        return [
            *(lambda text=text: self.encode(text) for text in TEXTS),
            self.prefix,
            self.walker.drop,
            self.encode_together,
            self.walker.drop,
            self.encode_into_one_buffer,
            self.walker.drop,
            self.serve_each,
            self.trie.clear,
            self.complete_what_lacks,
            self.trie.clear,
            *(lambda text=text: self.encode(text) for text in TEXTS),
        ]


def fail_everywhere() -> None:
    """Run all steps again and again, another allocation failing each time."""
    allocator = Allocator()
    run_all(allocator)  # and so what is made once for the process
    gc.collect()
    blocks = allocator.blocks
    for on in (False, True):
        for after in itertools.count():
            allocator.fail(after, on=on)
            run_all(allocator)
            if allocator.blocks != blocks:
                gc.collect()
            assert allocator.blocks == blocks, f"call {after} leaks"
            if not allocator.failed:
                break
        assert after > 500


def run_all(allocator: Allocator) -> None:
    """Run all steps; one at which memory is refused is run again without that."""
    cache = None
    while cache is None:
        with contextlib.suppress(MemoryError), allocator.armed():
            cache = Cache()
        if allocator.failed:
            allocator.fail_no_more()
    for step in cache.steps():
        is_done = False
        with contextlib.suppress(MemoryError), allocator.armed():
            step()
            is_done = True
        assert is_done or allocator.failed
        cache.trie.check()
        if allocator.failed:
            allocator.fail_no_more()
            step()
            cache.trie.check()


def test_each_allocation_may_fail(tmp_path: Path) -> None:
    run_with_own_allocator(fail_everywhere, tmp_path)
