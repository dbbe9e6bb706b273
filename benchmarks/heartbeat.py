"""Show how long an event loop stands still while long prompts are encoded on it.

``python -m benchmarks.heartbeat`` encodes prompts of a megabyte, each new, and beats
every millisecond beside them: with ``encode`` the loop stands still as long as the
encode takes, with ``aencode`` for a small part of it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks import prompts
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MEGABYTE = 1_000_000
ROUNDS = 5


def new_prompt(number: int) -> str:
    """Return a chat of a megabyte that shares nothing with the others."""
    parts = prompts.chat().split(". ")
    text = f"{number}. ".join(parts)
    return (text * (MEGABYTE // len(text) + 1))[:MEGABYTE]


async def beaten(
    encode: Callable[[str], Awaitable[object]], text: str
) -> tuple[float, float]:
    """Return the seconds of an encode, and the longest time without a beat in it."""
    gaps = []

    async def beat() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0.05)
    gaps.clear()
    started = time.perf_counter()
    await encode(text)
    took = time.perf_counter() - started
    await asyncio.sleep(0.005)
    heart.cancel()
    return took, max(gaps)


async def measure() -> None:
    """Print both ways, prompt by prompt."""
    cached = CachedTokenizer(data.load_family(prompts.family()))
    await cached.aencode(prompts.chat())  # every boundary token has had its first trial

    async def blocking(text: str) -> object:
        return cached.encode(text)

    print(f"{'':10}{'encode':>12}{'longest gap':>14}{'share':>8}")
    number = 0
    for name, encode in (("encode", blocking), ("aencode", cached.aencode)):
        for _ in range(ROUNDS):
            number += 1
            took, gap = await beaten(encode, new_prompt(number))
            print(f"{name:10}{took:10.3f} s{gap * 1e3:11.1f} ms{gap / took:8.1%}")


if __name__ == "__main__":
    asyncio.run(measure())
