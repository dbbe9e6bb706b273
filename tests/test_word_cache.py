"""Tell what a tokenizer itself keeps of texts from what the cache does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from . import data

RESIDENT_BYTES = 2**20
NOISE_BYTES = 4 * 2**20
PROMPTS = 20_000

GROWTH = f"""
import random, resource, sys
from tests.toys import special, toy
from tokcache import CachedTokenizer

tokenizer = toy(special("<s>"), special("</s>"))
if sys.argv[1] == "cached":
    tokenizer = CachedTokenizer(tokenizer, max_resident_bytes={RESIDENT_BYTES})
letters = random.Random(1)

def encode(n):
    for _ in range(n):
        word = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=200))
        tokenizer.encode(f"<s>{{word}}</s>")

def held():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize()

encode(100)
before = held()
encode({PROMPTS})
print(held() - before)
"""


def growth(what: str) -> int:
    """Return by how many bytes a new process grows over texts without spaces."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, what],
        cwd=data.REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return int(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux")
def test_a_process_grows_by_the_tokenizers_words_and_the_budget() -> None:
    """B62: ``tokenizers`` remembers the words that it has split, cached or not.

    Were all these prompts kept, that would be 24 MB more (seen with a budget of 1 GiB).
    """
    raw = growth("raw")
    assert growth("cached") < raw + RESIDENT_BYTES + NOISE_BYTES
