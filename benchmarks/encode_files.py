"""Time ``tokcache encode`` on unrelated text, and measure its peak memory.

One process with the tokenizer's threads, one without, and two, in turns, each a new
interpreter; the time of starting and of loading the tokenizer, measured on a few lines,
is told apart. CPU seconds are told too, and how many cores two busy processes get here:
where that is not two, the machine is not free, and the ratios of times say little.
``--memory-bytes`` makes a file of that size and tells the peak of one
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
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import batch, prompts
from tests import data

if TYPE_CHECKING:
    from collections.abc import Iterable

WAYS: dict[str, tuple[int, str]] = {
    "1 process, the tokenizer's threads": (1, "true"),
    "1 process, no threads": (1, "false"),
    "2 processes": (2, "true"),
}

# Prints the largest resident sizes of the command and of its largest child, in kB, and
# the CPU seconds of all.
WITH_USAGE = """
import resource, runpy, sys
sys.argv = ["tokcache", *sys.argv[1:]]
try:
    runpy.run_module("tokcache", run_name="__main__")
finally:
    own, children = map(
        resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    cpu = sum(each.ru_utime + each.ru_stime for each in (own, children))
    print(own.ru_maxrss, children.ru_maxrss, cpu, file=sys.stderr)
"""


def write_lines(path: Path, texts: Iterable[str], n_bytes: int) -> None:
    """Write texts as JSONL, again and again until the file has so many bytes."""
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
    block = "".join(lines).encode()
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            file.write(block)


class Run(NamedTuple):
    """What a run reported, its peak and that of its largest worker, and its times."""

    report: dict[str, Any]
    peak_kb: int
    worker_peak_kb: int
    cpu_seconds: float
    seconds: float


def run(folder: Path, source: Path, processes: int, threads: str, *more: str) -> Run:
    """Run the command in a new interpreter."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    arguments = ["encode", str(source), "--tokenizer", str(folder / "tokenizer.json")]
    arguments += ["--out", str(out), "--processes", str(processes), "--json", *more]
    begin = perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", WITH_USAGE, *arguments],
        env=os.environ | {"TOKENIZERS_PARALLELISM": threads},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = perf_counter() - begin
    own, worker, cpu = done.stderr.split()[-3:]
    return Run(json.loads(done.stdout), int(own), int(worker), float(cpu), seconds)


def cores(n_busy: int, seconds: float = 1.0) -> float:
    """Return how many cores so many busy processes get."""
    busy = (
        "import time; end = time.monotonic() + float(input())\n"
        "while time.monotonic() < end: pass\n"
        "print(time.process_time())"
    )
    running = [
        subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-c", busy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(n_busy)
    ]
    for each in running:
        assert each.stdin is not None
        each.stdin.write(f"{seconds}\n")
        each.stdin.flush()
    return sum(float(each.communicate()[0]) for each in running) / seconds


def compare(folder: Path, texts: list[str], rounds: int) -> dict[str, Any]:
    """Time each way on unrelated text; the start is subtracted."""
    source, few = folder / "in.jsonl", folder / "few.jsonl"
    write_lines(source, texts, 1)
    write_lines(few, ["x"] * 8, 1)
    times: dict[str, list[Run]] = {way: [] for way in WAYS}
    starts: dict[str, list[Run]] = {way: [] for way in WAYS}
    free = cores(2)
    for _ in range(rounds):
        for way, how in WAYS.items():
            # Small chunks, so that there is work for every process.
            starts[way].append(run(folder, few, *how, "--chunk-size", "1"))
            times[way].append(run(folder, source, *how, "--chunk-size", "256KiB"))

    def best(of: dict[str, list[Run]], name: str) -> dict[str, float]:
        return {way: min(getattr(each, name) for each in of[way]) for way in WAYS}

    start, start_cpu = best(starts, "seconds"), best(starts, "cpu_seconds")
    work = {way: each - start[way] for way, each in best(times, "seconds").items()}
    cpu = {way: x - start_cpu[way] for way, x in best(times, "cpu_seconds").items()}
    with_threads, alone, two = work.values()
    size = source.stat().st_size
    print(f"\ntokcache encode, {size / 1e6:.1f} MB of unrelated text")
    for way, seconds in work.items():
        print(
            f"  {way:38}{seconds:8.2f} s{size / seconds / 1e6:8.1f} MB/s"
            f"{cpu[way]:8.2f} s of CPU   (start {start[way]:.2f} s)"
        )
    print(f"  2 processes to 1 with threads: {with_threads / two:.2f} x (goal 0.95)")
    print(f"  2 processes to 1 without:      {alone / two:.2f} x (goal 1.70)")
    print(f"  two busy processes get {free:.2f} cores here")
    return {
        "bytes": size,
        "seconds": work,
        "start_seconds": start,
        "cpu_seconds": cpu,
        "free_cores": free,
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
            done = run(folder, source, processes, "true")
            name = f"{source.stat().st_size / 1e6:,.0f} MB, {processes} processes"
            found[name] = done._asdict()
            print(
                f"  {name:24} peak {done.peak_kb / 1024:7.0f} MB, of a worker"
                f" {done.worker_peak_kb / 1024:7.0f} MB;"
                f" {done.report['n_ids']:,} ids in {done.seconds:.0f} s,"
                f" {done.report['token_hit_ratio']:.1%} cached"
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
