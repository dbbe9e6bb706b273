"""See that an operation, done again and again, leaves nothing in its process."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.allocator import Allocator

if TYPE_CHECKING:
    from collections.abc import Callable

Operation: TypeAlias = "Callable[[], object]"

# A leak shows in every window; a cache that fills up or a table that grows does not.
WINDOWS = 3
# What the interpreter itself moves now and then, in a window.
NOISE = 3


class Held(NamedTuple):
    """Say what is there.

    ``references`` are those to all objects that the collector knows, and to all that
    these refer to: what a debug build's ``sys.gettotalrefcount`` is for. ``blocks`` are
    the interpreter's, ``core_blocks`` those that the core has from malloc.
    """

    objects: int
    references: int
    blocks: int
    core_blocks: int


def count(into: array[int], at: int, allocator: Allocator | None) -> None:
    """Count, after what the collector can free is gone; make nothing that stays."""
    gc.collect()
    gc.collect()  # again, for what finalizers let go
    sys._clear_type_cache()  # it keeps names that attributes were asked for by
    into[at + 2] = sys.getallocatedblocks()
    into[at + 3] = 0 if allocator is None else allocator.blocks
    tracked = gc.get_objects()
    into[at] = len(tracked)
    every = {id(each): each for each in tracked}
    every.update({id(each): each for each in gc.get_referents(*tracked)})
    into[at + 1] = sum(map(sys.getrefcount, every.values()))


def growth(operation: Operation, rounds: int) -> Held:
    """Return the least growth of each count over a few windows of so many rounds."""
    is_preloaded = hasattr(ctypes.CDLL(None), "allocator_watch")
    allocator = Allocator() if is_preloaded else None
    width = len(Held._fields)
    counts = array("q", bytes(8 * width * (WINDOWS + 2)))
    for window in range(WINDOWS + 2):
        for _ in range(rounds):
            operation()
        count(counts, window * width, allocator)
    windows = range(1, WINDOWS + 1)  # what comes before the first is warming up
    return Held(
        *(
            min(counts[(w + 1) * width + k] - counts[w * width + k] for w in windows)
            for k in range(width)
        )
    )


def leaves_nothing(
    rounds: int = 30,
) -> Callable[[Callable[[], Operation]], Callable[[], None]]:
    """Let a function that makes an operation check that none of the counts grows."""

    def decorate(make: Callable[[], Operation]) -> Callable[[], None]:
        @functools.wraps(make)
        def check() -> None:
            found = growth(make(), rounds)
            assert max(found) <= NOISE, f"{rounds} rounds leave {found}"

        return check

    return decorate
