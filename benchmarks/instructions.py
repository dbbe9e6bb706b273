"""Count the instructions of one hit with callgrind, and compare with the baseline.

Instructions do not feel what else the machine does: a difference is a change of the
code, or of the compiler, of libc, of CPython; then the baseline does not apply. Exit
codes: 0 nothing takes more than is tolerated, 1 something does, 2 not comparable here.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.hits import Hit, hits
from tests import data

BASELINE = Path(__file__).with_name("instructions.json")
# Where a buffer happens to lie decides how memcpy takes its ends. Ten runs of one build
# differed by less than half a percent.
TOLERANCE = 0.02
CALLS = 50
# Callgrind writes what it has counted at each call of this function of libc, which
# nothing else calls.
MARK = "ctermid"


def _nothing() -> None:
    """Stand for a hit, to measure the loop itself."""


def run_marked() -> None:
    """Make all hits, with a mark before and after those that count (the child)."""
    mark = os.ctermid
    gc.disable()
    for hit in [Hit("nothing", _nothing), *hits()]:
        for _ in range(10):
            hit.call()
        call = hit.call
        mark()
        for _ in range(CALLS):
            call()
        mark()


def _by_function(dump: Path) -> collections.Counter[str]:
    """Sum up what each function itself took (callgrind_annotate cannot read dumps).

    A line of a cost is ``position cost``; behind a ``calls=`` line it is the callee's.
    """
    found: collections.Counter[str] = collections.Counter()
    function, is_callee = "", False
    for line in dump.read_text("utf-8").splitlines():
        if line.startswith("fn="):
            function = line[3:].partition("'")[0]  # recursion is written name'2
        elif line.startswith("calls="):
            is_callee = True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not is_callee:
                found[function] += int(line.split()[1])
            is_callee = False
    return found


def _run(folder: Path) -> None:
    """Run the child under callgrind, which writes a numbered file at each mark."""
    command = [
        "valgrind",
        "--tool=callgrind",
        "--compress-strings=no",
        f"--callgrind-out-file={folder}/out",
        f"--dump-before={MARK}",
        sys.executable,
        "-m",
        "benchmarks.instructions",
        "--child",
    ]
    subprocess.run(  # noqa: S603 - ourselves
        command,
        check=True,
        capture_output=True,
        cwd=data.REPOSITORY,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )


def count() -> dict[str, collections.Counter[str]]:
    """Return the instructions of all calls of each kind, by function."""
    names = ["nothing", *(hit.name for hit in hits())]
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder))
        # Of each pair of marks the second one ends what counts.
        dumps = [Path(folder) / f"out.{2 * i + 2}" for i in range(len(names))]
        counted = dict(zip(names, map(_by_function, dumps), strict=True))
    loop = counted.pop("nothing")
    for found in counted.values():
        found.subtract(loop)
    return counted


def show(counted: dict[str, collections.Counter[str]], most: int) -> None:
    """Print the functions that take most, for each kind of hit."""
    for name, found in counted.items():
        total = found.total()
        print(f"\n{name}: {total // CALLS:,}")
        for function, taken in found.most_common(most):
            print(f"{taken // CALLS:>12,} {taken / total:6.1%}  {function}")


def _version(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """Name what instruction counts depend on besides the code."""
    return {
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libc": " ".join(platform.libc_ver()),
        "compiler": _version("gcc", "-dumpfullversion"),
        "valgrind": _version("valgrind", "--version"),
    }


def compare(counted: dict[str, int], baseline: dict[str, int]) -> int:
    """Print each kind beside its baseline; 1 if any takes more than is tolerated."""
    worse = 0
    for name, now in counted.items():
        before = baseline.get(name)
        if before is None:
            print(f"{name:42} {now:>10,}  new")
            continue
        change = now / before - 1
        verdict = (
            "MORE" if change > TOLERANCE else "less" if change < -TOLERANCE else ""
        )
        worse |= change > TOLERANCE
        print(f"{name:42} {now:>10,}  {change:+7.2%}  {verdict}")
    return int(worse)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("--update", action="store_true", help="take the baseline anew")
    parser.add_argument("--functions", type=int, default=0, help="show so many of each")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_marked()
        return 0
    if shutil.which("valgrind") is None:
        print("valgrind is not installed", file=sys.stderr)
        return 2
    here = environment()
    counted = count()
    totals = {name: found.total() // CALLS for name, found in counted.items()}
    if options.functions:
        show(counted, options.functions)
    if options.update:
        whole = {"environment": here, "instructions": totals}
        BASELINE.write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    kept: dict[str, Any] = json.loads(BASELINE.read_text("utf-8"))
    status = compare(totals, kept["instructions"])
    if kept["environment"] != here:
        print(f"baseline: {kept['environment']}\nhere:     {here}", file=sys.stderr)
        print("not comparable: --update takes a baseline here", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
