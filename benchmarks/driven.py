"""Drive a Walker without a tokenizer: the index alone, ids made up on the spot."""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING

from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokcache._ids import TokenIds

MARKER = "<|end|>"
MARKER_ID = 7
CHARACTERS_A_TOKEN = 4
UNBOUNDED = 2**40
# Spread over a vocabulary, as real ones are: CPython keeps small ints ready.
SOME_IDS = array("I", random.Random(0).choices(range(1000, 128_000), k=2**16))


def walker(max_memory_bytes: int = UNBOUNDED) -> Walker:
    """Return a walker over a trie of its own, with one boundary token."""
    scanner = Scanner([(MARKER, MARKER_ID, 1, True)])
    scanner.trust(0)
    trie = Trie(max_memory_bytes, 4 * max_memory_bytes + 2**20, hash_seed=1)
    return Walker(trie, None, scanner)


def ids_of(text: str, marker_id: int = MARKER_ID) -> array[int]:
    """Make up the ids of some text: one for every few characters, one for a marker."""
    ids = array("I")
    *segments, tail = text.split(MARKER)
    for segment in segments:
        ids.extend(SOME_IDS[: len(segment) // CHARACTERS_A_TOKEN])
        ids.append(marker_id)
    ids.extend(SOME_IDS[: len(tail) // CHARACTERS_A_TOKEN])
    return ids


def encode(walker: Walker, text: str, marker_id: int = MARKER_ID) -> TokenIds:
    """Look a text up, and store what is new of it with made-up ids."""
    found = walker.lookup(text, False)  # noqa: FBT003 - by position only
    if not isinstance(found, Plan):
        return found
    for i in range(found.n_runs):
        status = found.feed(i, ids_of(found.run_text(i), marker_id))
        assert status == 0
    return found.finish()


def conversation(number: int, segments: int = 10, characters: int = 2000) -> str:
    """Return a text of so many segments that shares none with another number's."""
    source = random.Random(number)
    size = characters // segments - len(MARKER)
    return "".join(
        f"{source.getrandbits(4 * size):0{size}x}{MARKER}" for _ in range(segments)
    )


def conversations(number: int) -> Iterator[str]:
    """Yield that many, each of 10 segments and 2 kB."""
    return map(conversation, range(number))
