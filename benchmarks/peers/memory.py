"""What a peer holds for conversations: the growth of a fresh process."""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import prompts
from benchmarks.peers.catalogue import FACTORIES
from tests import data

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = 200
PLUG_BYTES = 4 * 2**20  # of each size

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]


@dataclass(frozen=True)
class Memory:
    """Hold what one conversation of ``TURNS`` turns costs, in bytes.

    ``grown`` is the growth of the process, ``counted`` what the peer itself says.
    """

    grown: int
    counted: int | None


def turns() -> Iterator[str]:
    """Yield the prompt of each turn of one growing conversation."""
    form = data.chat_format(prompts.family())
    text = form.bos
    for i, content in enumerate(itertools.islice(prompts.messages(), TURNS)):
        before, after = form.around[("user", "assistant")[i % 2]]
        text += before + content + after
        yield text


def _plug_heap() -> None:
    """Take what is free in the heap, and never give it back.

    Loading a tokenizer leaves holes, in which small caches would seem to cost nothing.
    """
    for bits in range(16, 4, -1):
        for _ in range(PLUG_BYTES >> bits):
            _libc.malloc((1 << bits) - 16)


def _anonymous_bytes() -> int:
    """Read how much memory of the process is not a file's, free heap given back."""
    gc.collect()
    _libc.malloc_trim(0)
    for line in Path("/proc/self/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("smaps_rollup has no Anonymous line")


def measure_here(key: str) -> Memory:
    """Encode the conversation turn by turn, and measure what stays.

    Before, the library inside sees every word without the cache, so that what it keeps
    for itself is not counted.
    """
    peer = FACTORIES[key]()
    last = ""
    for text in turns():
        last = text
    for text in (last, prompts.short()):
        peer.raw(text)
    peer.encode(prompts.short())
    del last
    _plug_heap()
    before = _anonymous_bytes()
    counted_before = peer.held_bytes()
    for text in turns():
        peer.encode(text)
    del text
    counted = peer.held_bytes()
    return Memory(
        grown=_anonymous_bytes() - before,
        counted=None
        if counted is None or counted_before is None
        else counted - counted_before,
    )


def measure(key: str) -> Memory | None:
    """Measure in a process of its own; None where the system does not tell."""
    if not Path("/proc/self/smaps_rollup").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.peers.memory", key]
    done = subprocess.run(  # noqa: S603 - this module
        command, capture_output=True, text=True, check=True, cwd=data.REPOSITORY
    )
    return Memory(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(measure_here(sys.argv[1]))))
