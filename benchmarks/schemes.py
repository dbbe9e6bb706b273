"""Other ways to cache the same prompts, as slow and obvious models.

All take prompts as paths of prefix numbers and count tokens; a prefix's number stands
for its text. What is behind the last boundary is never cached here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from moka_py import Moka

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.cases import Case

ID_BYTES = 4


class Scheme(Protocol):
    """A cache that is shown one prompt after the other."""

    def request(self, path: Sequence[int]) -> int:
        """Take a prompt and return how many of its tokens were cached."""
        ...


def hit_ratio(case: Case, scheme: Scheme) -> float:
    """Send all prompts of a case; return the cached tokens as a share of all."""
    cached = sum(scheme.request(request.path) for request in case.trace.requests)
    return cached / case.n_tokens


class LeafLru:
    """The trie with the least recently used leaf as its victim.

    A segment that is held under several paths is charged once, and its ids are counted
    as cached wherever it stands, as the compiled cache does both.
    """

    def __init__(self, case: Case, max_memory_bytes: int) -> None:
        self._lengths = case.trace.lengths
        self._segment_of = case.segment_of
        self._budget = max_memory_bytes
        self._used = 0
        self._parents: dict[int, int] = {}  # of all residents; -1: a root
        self._n_children: dict[int, int] = {}
        self._holds: dict[int, int] = {}
        self._leaves: OrderedDict[int, None] = OrderedDict()

    def request(self, path: Sequence[int]) -> int:
        """Take a prompt and return how many of its tokens were cached."""
        # Every ancestor of a resident is resident, so the matched part is in front.
        n_matched = bisect_left(path, 1, key=lambda n: n not in self._parents)
        cached = sum(
            self._lengths[number]
            for index, number in enumerate(path)
            if index < n_matched or self._segment_of[number] in self._holds
        )
        if n_matched < len(path) and self._fits(path):
            self._extend(path, n_matched)
        elif n_matched and path[n_matched - 1] in self._leaves:
            self._leaves.move_to_end(path[n_matched - 1])
        return cached

    def _fits(self, path: Sequence[int]) -> bool:
        distinct = {self._segment_of[number]: number for number in path}
        weight = sum(self._lengths[number] for number in distinct.values())
        return ID_BYTES * weight <= self._budget

    def _extend(self, path: Sequence[int], n_matched: int) -> None:
        parent = path[n_matched - 1] if n_matched else -1
        self._leaves.pop(parent, None)
        for number in path[n_matched:]:
            segment = self._segment_of[number]
            held = self._holds.get(segment, 0)
            self._holds[segment] = held + 1
            self._used += 0 if held else ID_BYTES * self._lengths[number]
        while self._used > self._budget:
            self._evict(pinned=parent)
        for number in path[n_matched:]:
            self._parents[number] = parent
            self._n_children[number] = 0
            if parent >= 0:
                self._n_children[parent] += 1
            parent = number
        self._leaves[parent] = None

    def _evict(self, pinned: int) -> None:
        victim, _ = self._leaves.popitem(last=False)
        parent = self._parents.pop(victim)
        del self._n_children[victim]
        segment = self._segment_of[victim]
        self._holds[segment] -= 1
        if not self._holds[segment]:
            del self._holds[segment]
            self._used -= ID_BYTES * self._lengths[victim]
        if parent < 0:
            return
        self._n_children[parent] -= 1
        if not self._n_children[parent] and parent != pinned:
            self._leaves[parent] = None
            self._leaves.move_to_end(parent, last=False)


class Flat:
    """One entry for each boundary, with all ids up to there; least recently used goes.

    Recorded as upstream does: every boundary of a prompt that matched nothing, only the
    deepest one of a prompt that matched something.
    """

    def __init__(self, case: Case, max_memory_bytes: int) -> None:
        self._case = case
        self._ends = case.ends
        self._budget = max_memory_bytes
        self._used = 0
        self._entries: OrderedDict[int, None] = OrderedDict()

    def request(self, path: Sequence[int]) -> int:
        """Take a prompt and return how many of its tokens were cached."""
        found = next((number for number in reversed(path) if self._get(number)), None)
        for number in path if found is None else self._case.deepest(path):
            self._put(number)
        return 0 if found is None else self._ends[found]

    def _get(self, number: int) -> bool:
        if number not in self._entries:
            return False
        self._entries.move_to_end(number)
        return True

    def _put(self, number: int) -> None:
        weight = ID_BYTES * self._ends[number]
        if self._get(number) or weight > self._budget:
            return
        self._entries[number] = None
        self._used += weight
        while self._used > self._budget:
            victim, _ = self._entries.popitem(last=False)
            self._used -= ID_BYTES * self._ends[victim]


class FlatTinyLfu(Flat):
    """The same entries in the cache library that upstream uses, with its TinyLFU."""

    def __init__(self, case: Case, max_memory_bytes: int) -> None:
        super().__init__(case, max_memory_bytes)
        self._moka: Moka[int, int] = Moka(
            max_memory_bytes, policy="tiny_lfu", weigher=lambda _, weight: weight
        )

    def request(self, path: Sequence[int]) -> int:
        """Take a prompt and return how many of its tokens were cached."""
        cached = super().request(path)
        self._moka.run_pending_tasks()  # it would evict some time later
        return cached

    def _get(self, number: int) -> bool:
        return self._moka.get(number) is not None

    def _put(self, number: int) -> None:
        self._moka.set(number, ID_BYTES * self._ends[number])
