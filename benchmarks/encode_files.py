"""Time ``tokcache encode`` on unrelated text, and measure its peak memory.

One process with the tokenizer's threads, one without, and two, in turns, each a new
interpreter; the time of starting one and loading the tokenizer, measured on one line,
is told apart. ``--memory-bytes`` makes a file of that size and tells the peak of one
process and of its two workers. Part of ``make bench-batch``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks import batch, prompts
from tests import data

if TYPE_CHECKING:
    from collections.abc import Iterable

WAYS: dict[str, tuple[int, str]] = {
    "1 process, the tokenizer's threads": (1, "true"),
    "1 process, no threads": (1, "false"),
    "2 processes": (2, "true"),
}

# Prints the largest resident sizes of the command and of its largest child, in kB.
WITH_PEAK = """
import resource, runpy, sys
sys.argv = ["tokcache", *sys.argv[1:]]
try:
    runpy.run_module("tokcache", run_name="__main__")
finally:
    peaks = [resource.getrusage(who).ru_maxrss
             for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(*peaks, file=sys.stderr)
"""


def write_lines(path: Path, texts: Iterable[str], n_bytes: int) -> None:
    """Write texts as JSONL, again and again until the file has so many bytes."""
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
    block = "".join(lines).encode()
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            file.write(block)


def run(
    folder: Path, source: Path, processes: int, threads: str, *more: str
) -> tuple[dict[str, Any], list[int], float]:
    """Run the command; return its report, the peaks in kB, and the seconds."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    arguments = ["encode", str(source), "--tokenizer", str(folder / "tokenizer.json")]
    arguments += ["--out", str(out), "--processes", str(processes), "--json", *more]
    begin = perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", WITH_PEAK, *arguments],
        env=os.environ | {"TOKENIZERS_PARALLELISM": threads},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = perf_counter() - begin
    peaks = [int(each) for each in done.stderr.split()[-2:]]
    return json.loads(done.stdout), peaks, seconds


def compare(folder: Path, texts: list[str], rounds: int) -> dict[str, Any]:
    """Time each way on unrelated text; the start is subtracted."""
    source, one_line = folder / "in.jsonl", folder / "one.jsonl"
    write_lines(source, texts, 1)
    write_lines(one_line, texts[:1], 1)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    starts: dict[str, list[float]] = {way: [] for way in WAYS}
    # Small chunks, so that there is work for every process.
    chunk = ("--chunk-size", "256KiB")
    for _ in range(rounds):
        for way, (processes, threads) in WAYS.items():
            starts[way].append(run(folder, one_line, processes, threads, *chunk)[2])
            times[way].append(run(folder, source, processes, threads, *chunk)[2])
    work = {way: min(times[way]) - min(starts[way]) for way in WAYS}
    with_threads, alone, two = work.values()
    size = source.stat().st_size
    print(f"\ntokcache encode, {size / 1e6:.1f} MB of unrelated text")
    for way, seconds in work.items():
        print(
            f"  {way:38}{seconds:8.2f} s{size / seconds / 1e6:8.1f} MB/s"
            f"   (start {min(starts[way]):.2f} s)"
        )
    print(f"  2 processes to 1 with threads: {with_threads / two:.2f} x (goal 0.95)")
    print(f"  2 processes to 1 without:      {alone / two:.2f} x (goal 1.70)")
    return {
        "bytes": size,
        "seconds": work,
        "start_seconds": {way: min(each) for way, each in starts.items()},
        "to_threads": with_threads / two,
        "to_no_threads": alone / two,
    }


def measure_memory(folder: Path, texts: list[str], n_bytes: int) -> dict[str, Any]:
    """Tell the peaks on a file of a size and on one a twentieth of it."""
    found: dict[str, Any] = {}
    for size in (n_bytes // 20, n_bytes):
        source = folder / "large.jsonl"
        write_lines(source, texts, size)
        for processes in (1, 2):
            report, (own, child), seconds = run(folder, source, processes, "true")
            name = f"{source.stat().st_size / 1e6:,.0f} MB, {processes} processes"
            found[name] = {"peak_kb": own, "child_peak_kb": child, "seconds": seconds}
            print(
                f"  {name:24} peak {own / 1024:7.0f} MB, of a worker"
                f" {child / 1024:7.0f} MB; {report['n_ids']:,} ids in {seconds:.0f} s,"
                f" {report['token_hit_ratio']:.1%} cached"
            )
        source.unlink()
    return found


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default=prompts.family())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--characters", type=int, default=2 * batch.CHARACTERS)
    parser.add_argument("--memory-bytes", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(data.family_text(options.family))
        found: dict[str, Any] = {}
        if options.rounds:
            texts = batch.documents(options.characters)
            found["speed"] = compare(folder, texts, options.rounds)
        if options.memory_bytes:
            texts = batch.conversations(options.family)
            found["memory"] = measure_memory(folder, texts, options.memory_bytes)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
