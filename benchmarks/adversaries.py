"""Time per byte of what somebody would send to make a cache slow, at growing sizes.

``python -m benchmarks.adversaries`` drives the compiled core with made-up ids: texts
that nearly match, that are cut as often as can be, that fill the widest and the deepest
trie, that nobody asks for again. Where time per byte stays as it is from ten thousand
to ten million bytes, work is linear. One line shows what the secret keys of the hash
keep from happening.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.table import Table

from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZES = (10**4, 10**5, 10**6, 10**7)  # bytes in all
UNBOUNDED = 2**40
SMALL = 10**6  # bytes: a budget that a flood is many times larger than
OTHER = 100  # the id of text that is no token
LEAST_BYTES = 10**6  # encoded for a figure, by several runs where one is smaller

MARKERS = ("<|end|>", "<s>", "</s>")
NESTED = tuple("<" * n for n in range(1, 65))
LONG = ("<" * 999 + ">", "#")
SHARP = ("#",)

Figures: TypeAlias = dict[str, float]
"""Seconds by operation."""


class Driven:
    """A walker whose tokens have the ids 1, 2, ..., and all between them ``OTHER``."""

    def __init__(
        self,
        tokens: Sequence[str],
        resident: int = UNBOUNDED,
        *,
        hash_bits: int = 64,
    ) -> None:
        self.scanner = Scanner([(t, i, 1, True) for i, t in enumerate(tokens, 1)])
        for i in range(len(tokens)):
            self.scanner.trust(i)
        self.trie = Trie(UNBOUNDED, resident, hash_bits=hash_bits)
        self.walker = Walker(self.trie, None, self.scanner)

    def ids(self, text: str) -> array[int]:
        """Return the ids of a text."""
        ids, position = array("I"), 0
        for start, end, token in self.scanner.matches(text):
            if start > position:
                ids.append(OTHER)
            ids.append(token + 1)
            position = end
        if position < len(text):
            ids.append(OTHER)
        return ids

    def encode(self, text: str) -> float:
        """Encode a text; return the seconds without those that its ids took to make."""
        started = time.process_time()
        plan = self.walker.lookup(text, False)  # noqa: FBT003 - by position only
        seconds = time.process_time() - started
        if isinstance(plan, Plan) and plan.has_boundary:
            all_ids = [self.ids(plan.run_text(i)) for i in range(plan.n_runs)]
            started = time.process_time()
            for i, ids in enumerate(all_ids):
                assert plan.feed(i, ids) == 0
            plan.finish()
            seconds += time.process_time() - started
        return seconds

    def encode_all(self, texts: Sequence[str]) -> None:
        """Encode texts one after another."""
        for text in texts:
            plan = self.walker.lookup(text, False)  # noqa: FBT003 - by position only
            if isinstance(plan, Plan):
                assert plan.feed(0, self.ids(plan.run_text(0))) == 0
                plan.finish()


def timed(work: Callable[[], object]) -> float:
    """Return the processor's seconds that it takes, whatever else is running."""
    started = time.process_time()
    work()
    return time.process_time() - started


def one_text(tokens: Sequence[str], text: str, **settings: int) -> Figures:
    """Encode one prompt, ask for it again, let another one evict it, and clear."""
    driven = Driven(tokens, **settings)
    found = {"first": driven.encode(text), "hit": driven.encode(text)}
    driven.encode(text)  # a long tail is stored at its second sighting
    resident = driven.trie.usage()[3]
    found["clear"] = timed(driven.trie.clear)
    if resident:
        # With room for one and a half, the other one pushes all of it out.
        driven = Driven(tokens, resident + resident // 2, **settings)
        driven.encode_all([text, text])
        last = tokens[-1]
        other = f"!{last}" + text.replace(last, f"!{last}").replace("x", "y")
        found["evict"] = driven.encode(other) + driven.encode(other)
        assert driven.trie.usage()[5] > 0
        driven.trie.clear()
    return found


def many_texts(tokens: Sequence[str], texts: Sequence[str]) -> Figures:
    """Encode prompts that share nothing, ask again for each, and clear."""
    driven = Driven(tokens)
    return {
        "first": timed(lambda: driven.encode_all(texts)),
        "hit": timed(lambda: driven.encode_all(texts)),
        "clear": timed(driven.trie.clear),
    }


def flood(tokens: Sequence[str], texts: Sequence[str]) -> Figures:
    """Encode prompts that nobody asks for again, in a cache that is long full."""
    driven = Driven(tokens, SMALL)
    return {"evict": timed(lambda: driven.encode_all(texts))}


def neighbour(tokens: Sequence[str], texts: Sequence[str]) -> Figures:
    """Clear an almost empty namespace beside one that has many leaves."""
    driven = Driven(tokens)
    driven.encode_all(texts)
    theirs, driven.walker = driven.walker, Walker(driven.trie, None, driven.scanner)
    driven.encode("mine#")
    found = {"clear": timed(driven.walker.clear)}
    theirs.clear()
    return found


def short_texts(size: int) -> list[str]:
    """Return different texts of seven characters, one segment each."""
    return [f"{i:06x}#" for i in range(size // 7)]


CASES: dict[str, Callable[[int], Figures]] = {
    "'<' again and again": lambda n: one_text(MARKERS, "<" * n),
    "a token but for its end": lambda n: one_text(MARKERS, "<|end|" * (n // 6)),
    "tokens that begin alike": lambda n: one_text(NESTED, "<" * n),
    "a token of 1,000 characters but for its end": lambda n: one_text(LONG, "<" * n),
    "a token everywhere": lambda n: one_text(SHARP, "#" * n),
    "one long tail": lambda n: one_text(SHARP, "#" + "x" * n),
    "the deepest trie": lambda n: one_text(SHARP, "".join(short_texts(n))),
    "the widest trie": lambda n: many_texts(SHARP, short_texts(n)),
    "a flood of one-time prompts": lambda n: flood(SHARP, short_texts(n)),
    "another namespace's leaves": lambda n: neighbour(SHARP, short_texts(n)),
}
# Whoever knew the keys of the hash could do this: all segments in one bucket.
COLLIDING = "the deepest trie, all hashes equal"
# The others' largest sizes: what is quadratic, and ten million nodes of 80 bytes.
LARGEST = {COLLIDING: 10**5, "a token everywhere": 10**6}


def colliding(size: int) -> Figures:
    """Encode the deepest trie with a hash of no bits."""
    return one_text(SHARP, "".join(short_texts(size)), hash_bits=0)


def measure(case: Callable[[int], Figures], size: int) -> Figures:
    """Return nanoseconds per byte by operation, the best of some runs."""
    best: Figures = {}
    for _ in range(max(1, LEAST_BYTES // size)):
        gc.collect()
        for operation, seconds in case(size).items():
            best[operation] = min(best.get(operation, seconds), seconds)
    return {operation: seconds / size * 1e9 for operation, seconds in best.items()}


def rows(sizes: Sequence[int]) -> Iterator[tuple[str, str, list[float]]]:
    """Yield each case and operation with its figures, one for each size."""
    for name, case in (*CASES.items(), (COLLIDING, colliding)):
        tried = [size for size in sizes if size <= LARGEST.get(name, size)]
        found = [measure(case, size) for size in tried]
        for operation in found[0]:
            yield name, operation, [figures[operation] for figures in found]


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--largest", type=int, default=SIZES[-1], metavar="BYTES")
    options = parser.parse_args()
    sizes = [size for size in SIZES if size <= options.largest]
    table = Table(title="ns per byte", title_justify="left")
    table.add_column("what is sent")
    table.add_column("")
    for size in sizes:
        table.add_column(f"{size:,} B", justify="right")
    found = []
    for name, operation, figures in rows(sizes):
        found.append({"case": name, "operation": operation, "ns_per_byte": figures})
        table.add_row(name, operation, *[f"{figure:.2f}" for figure in figures])
    Console().print(table)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"sizes": sizes, "rows": found}, indent=1)
        options.json.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
