"""A slow, obvious model of what stays: sketch, wheel of generations, gate."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

COUNT_MAX = 15
ROWS = 4
COLUMNS = 32  # counters of one row in one line
LINE_BYTES = 64
ENTRIES_A_LINE = 4
MIN_LINES = 8
SKETCH_SHARE = 16  # of the resident budget
RANK_MAX = 3
EPOCH_SIGHTINGS = 10  # an entry
EPOCH_MIN_ENTRIES = 32
GATE_REQUESTS = 100
HOT = 9
REGRET = 2


class Sketch:
    """Count keys of 32 bits: in each of four rows one counter, and the least counts.

    Starts with no line at all, and then knows nothing.
    """

    def __init__(self, max_resident_bytes: int) -> None:
        self.max_bytes = max_resident_bytes // SKETCH_SHARE
        self.lines: list[list[int]] = []

    @staticmethod
    def bytes_of(n_lines: int) -> int:
        """Return the bytes that so many lines take, aligned, in malloc's chunk."""
        return LINE_BYTES * (n_lines + 1) + 16 if n_lines else 0

    def __bytes__(self) -> bytes:
        """Pack two counters into a byte, the first one low."""
        counters = [counter for line in self.lines for counter in line]
        pairs = zip(counters[::2], counters[1::2], strict=True)
        return bytes(low | high << 4 for low, high in pairs)

    def start(self) -> None:
        """Make the smallest sketch, if there is none and the budget has room for it."""
        if not self.lines and self.bytes_of(MIN_LINES) <= self.max_bytes:
            self.lines = [[0] * ROWS * COLUMNS for _ in range(MIN_LINES)]

    def _places(self, key: int) -> tuple[list[int], list[int]]:
        """Return a key's line and its four places there."""
        mixed = key * 0x9E3779B97F4A7C15 % 2**64
        line = self.lines[mixed * len(self.lines) >> 64]
        columns = [mixed >> (8 + 5 * row) & 31 for row in range(ROWS)]
        return line, [row * COLUMNS + column for row, column in enumerate(columns)]

    def count(self, key: int) -> int:
        """Return at least how often a key was seen."""
        if not self.lines:
            return 0
        line, places = self._places(key)
        return min(line[place] for place in places)

    def raise_to(self, key: int, count: int) -> None:
        """Make a key's count at least so much."""
        if self.lines:
            line, places = self._places(key)
            for place in places:
                line[place] = max(line[place], count)

    def halve(self) -> None:
        """Halve every counter."""
        self.lines = [[counter // 2 for counter in line] for line in self.lines]

    def suit(self, entries: int) -> None:
        """Split lines in two while they are too few for the entries, or merge pairs."""
        if not self.lines:
            return
        while (
            len(self.lines) * ENTRIES_A_LINE < entries
            and self.bytes_of(2 * len(self.lines)) <= self.max_bytes
        ):
            self.lines = [[*line] for line in self.lines for _ in range(2)]
        while (
            len(self.lines) > MIN_LINES
            and 4 * entries < len(self.lines) * ENTRIES_A_LINE
        ):
            pairs = zip(self.lines[::2], self.lines[1::2], strict=True)
            self.lines = [[*map(max, *pair)] for pair in pairs]


@dataclass(eq=False)
class Entry:
    """Hold what the policy knows of one resident: a rank and a count."""

    key: int = 0
    count: int = 0
    epoch: int = 0
    rank: int = 0


class Wheel:
    """List entries by rank, oldest first, and decide by the hand who goes next.

    The gate is open until misses cost more than hits win.
    """

    def __init__(self) -> None:
        self.hand = 0
        self.epoch = 0
        self.buckets: dict[int, OrderedDict[Entry, None]] = defaultdict(OrderedDict)
        self.reset()

    def reset(self) -> None:
        """Forget what was learned."""
        self.is_closed = False
        self.hits = self.regrets = self.sightings = self.requests = 0

    def __contains__(self, entry: Hashable) -> bool:
        return any(entry in bucket for bucket in self.buckets.values())

    def listed(self) -> list[Entry]:
        """Return all that is listed, the next victim first."""
        return [entry for rank in sorted(self.buckets) for entry in self.buckets[rank]]

    def add(self, entry: Entry, *, oldest: bool = False) -> None:
        """List an entry in the bucket of its rank."""
        self.buckets[entry.rank][entry] = None
        if oldest:
            self.buckets[entry.rank].move_to_end(entry, last=False)

    def remove(self, entry: Entry) -> bool:
        """Take an entry out of the lists; tell whether it was listed."""
        found = [rank for rank, bucket in self.buckets.items() if entry in bucket]
        for rank in found:
            del self.buckets[rank][entry]
            if not self.buckets[rank]:
                del self.buckets[rank]
        return bool(found)

    def advance(self) -> None:
        """Move the hand over empty buckets, if any entry is listed."""
        self.hand = min(self.buckets, default=self.hand)

    def rank_of(self, count: int) -> int:
        """Return the rank that so many sightings are worth now."""
        return self.hand + min(RANK_MAX, count - self.is_closed)

    def age(self, entry: Entry) -> None:
        """Halve a count once for each epoch since it was last looked at."""
        entry.count >>= self.epoch - entry.epoch
        entry.epoch = self.epoch

    def sight(self, entry: Entry) -> None:
        """Note a sighting of a resident; where it is listed does not change."""
        self.age(entry)
        entry.count = min(entry.count + 1, COUNT_MAX)
        entry.rank = max(entry.rank, self.rank_of(entry.count))
        self.sightings += 1

    def count_request(self, sketch: Sketch, n_nodes: int, *, nearly_full: bool) -> None:
        """Count a request; now and then end an epoch, or move the gate."""
        entries = n_nodes
        if sketch.lines:
            entries = min(entries, len(sketch.lines) * ENTRIES_A_LINE)
        if self.sightings >= EPOCH_SIGHTINGS * max(entries, EPOCH_MIN_ENTRIES):
            sketch.halve()
            self.epoch += 1
            self.sightings = 0
        self.requests += 1
        if self.requests % GATE_REQUESTS:
            return
        if nearly_full and self.regrets > 1.5 * self.hits:
            self.is_closed = True
        elif nearly_full and 10 * self.regrets < 9 * self.hits:
            self.is_closed = False
        self.hits = self.hits * 4 // 5
        self.regrets = self.regrets * 4 // 5
