"""Plant a fault in a process of its own: whoever watches the core must report it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sanitizers.watched import KINDS, STDERR, findings, verdict

pytest.importorskip(
    "tests.sanitizers._planted", reason="is built by `make test-asan` and others only"
)
KIND = os.environ["TOKCACHE_WATCHED_BY"]


def run(code: str, reports: Path) -> tuple[int, str]:
    """Run code as the suite is run; return the verdict and what was reported."""
    command, _, environment = KINDS[KIND](reports)
    with (reports / STDERR).open("w") as stderr:
        done = subprocess.run(
            [*command, sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=os.environ | environment,
            stderr=stderr,
            check=False,
            timeout=300,
        )
    found = findings(reports)
    return verdict(done.returncode, found), "\n".join(found)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("read_beyond(10)", "heap-buffer-overflow"),
        ("write_beyond(10)", "heap-buffer-overflow"),
        ("read_freed(10)", "heap-use-after-free"),
        ("overflow(2**31 - 1)", "signed integer overflow"),
        ("shift(40)", "shift exponent"),
        ("leak(1000)", "leak of 4000 byte(s)"),
    ]
    if KIND == "asan"
    else [
        ("read_beyond(10)", "Invalid read of size 4"),
        ("write_beyond(10)", "Invalid write of size 4"),
        ("read_freed(10)", "Invalid read of size 4"),
        ("branch_on_unset(10)", "depends on uninitialised value"),
        ("leak(1000)", "4,000 bytes in 1 blocks are definitely lost"),
    ],
)
def test_it_is_reported(fault: str, told: str, tmp_path: Path) -> None:
    code = f"from tests.sanitizers import _planted; _planted.{fault}"
    status, report = run(code, tmp_path)
    assert told in report
    assert status != 0


@pytest.mark.parametrize(
    ("n_threads", "told"), [(0, "leak of 4000 byte(s)"), (1, "")], ids=["none", "one"]
)
@pytest.mark.skipif(KIND != "asan", reason="valgrind knows which threads there are")
def test_leaks_are_told_of_a_child_unless_threads_ran_at_the_fork(
    n_threads: int, told: str, tmp_path: Path
) -> None:
    code = (
        "import os, sys, threading\n"
        "from tests.sanitizers import _planted\n"
        "done = threading.Event()\n"
        f"threads = [threading.Thread(target=done.wait) for _ in range({n_threads})]\n"
        "for thread in threads:\n"
        "    thread.start()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    _planted.leak(1000)\n"
        "    sys.exit()\n"
        "done.set()\n"
        "os.waitpid(child, 0)\n"
    )
    status, report = run(code, tmp_path)
    assert told in report
    assert bool(status) == bool(report) == bool(told)


def test_nothing_is_reported_of_the_core_at_work(tmp_path: Path) -> None:
    code = (
        "from tests.sanitizers import _planted\n"
        "from tests.toys import special, toy\n"
        "from tokcache import CachedTokenizer\n"
        "cached = CachedTokenizer(toy(special('<s>')))\n"
        "for i in range(50):\n"
        "    cached.encode('<s>hello<s>' * i)\n"
        "assert _planted.overflow(1) == 2\n"
        "assert _planted.shift(4) == 16\n"
    )
    assert run(code, tmp_path) == (0, "")
