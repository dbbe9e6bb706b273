"""Make one kind of hit for some seconds: what perf looks at.

It is run as a file, with the profiling build first on the path, so that the compiled
modules are those with symbols.
"""

from __future__ import annotations

import sys
import time

import tokcache
from benchmarks.hits import hits

KINDS = {
    "long": "200 segments, ASCII",
    "wide": "200 segments, two bytes a character",
    "short": "3 segments, 200 characters",
    "list": "200 segments, as a list",
    "fork": "300 segments, two forks in turn",
}


def main() -> None:
    """Run the kind that the command names; print the nanoseconds of one hit."""
    [kind, seconds] = sys.argv[1:]
    [call] = [hit.call for hit in hits() if hit.name == KINDS[kind]]
    calls = 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < float(seconds):
        for _ in range(1000):
            call()
        calls += 1000
    print(f"{tokcache.__file__}: {kind}: {spent * 1e9 / calls:,.0f} ns a hit")


if __name__ == "__main__":
    main()
