"""Run random tokenizers and texts through the cache and compare with the raw tokenizer.

    python -m tests.fuzz.campaign --seconds 600 --seed 1 --jobs 2

Prints a self-contained reproduction of each failure, then what the run covered. Exit
code 1 after a failure. Cases run in worker processes: what hangs or crashes is reported
with the number of its case, and does not end the campaign unheard.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.cases import random_case
from tests.fuzz.shrinking import reproduction, shrink
from tests.fuzz.side_by_side import run_case
from tests.fuzz.totals import Totals

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

CASE_SECONDS = 20  # a case takes milliseconds, the slowest seen less than one second


def _say(*lines: str) -> None:
    """Print at once, for several processes share the output."""
    sys.stdout.write("\n".join((*lines, "")))
    sys.stdout.flush()


def _work(cells: Any, place: Any, plan: tuple[int, int, int, float]) -> None:
    """Run every `jobs`-th case until one fails or the time is over.

    `place` tells the parent where the worker is: the case, the step, whether the raw
    tokenizer is being called, whether the worker ended by itself.
    """
    seed, number, jobs, end = plan
    stderr = os.fdopen(os.dup(2), "w")
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)  # a panic writes its backtrace there

    def mark(step: int, phase: str) -> None:
        place[1], place[2] = step, phase == "raw"

    totals = Totals(cells)
    while time.time() < end:
        place[0] = number
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True, file=stderr)
        case = random_case(seed, number)
        wrong = run_case(case, totals, mark)
        faulthandler.cancel_dump_traceback_later()
        if wrong:
            totals.add("failures")
            small = shrink(case)
            wrong = run_case(small, Totals()) or wrong
            _say(f"# seed {seed}, case {number}", reproduction(small, wrong))
            break
        number += jobs
    place[3] = 1


def _report_death(seed: int, place: Any, totals: Totals, code: int | None) -> None:
    """Report what a worker was doing when it hung (exit code 1) or crashed."""
    number, step, in_raw, _ = place
    totals.add("raw_hangs" if in_raw else "failures")
    case = random_case(seed, number)
    doing = "raw" if in_raw else "cached"
    wrong = f"seed {seed}, case {number}: the {doing} tokenizer hung or crashed, {code}"
    steps = case.steps[: step + 1]
    _say(reproduction(replace(case, steps=steps), wrong))


def campaign(seconds: float, seed: int, jobs: int, start: int = 0) -> Totals:
    """Run cases in `jobs` processes until the time is over or a case fails."""
    os.environ["RUST_BACKTRACE"] = "0"  # a panic is an answer here, and a fast one
    context = multiprocessing.get_context("spawn")
    end = time.time() + seconds
    cells = [context.RawArray("q", len(Totals.NAMES)) for _ in range(jobs)]
    places = [context.RawArray("q", [start + job, 0, 0, 0]) for job in range(jobs)]

    def begin(job: int) -> SpawnProcess:
        plan = (seed, places[job][0], jobs, end)
        worker = context.Process(target=_work, args=(cells[job], places[job], plan))
        worker.start()
        return worker

    workers = {job: begin(job) for job in range(jobs)}
    while workers:
        multiprocessing.connection.wait([w.sentinel for w in workers.values()])
        for job, worker in list(workers.items()):
            if worker.is_alive():
                continue
            worker.join()
            del workers[job]
            if not places[job][3]:
                _report_death(seed, places[job], Totals(cells[job]), worker.exitcode)
                places[job][0] += jobs
                workers[job] = begin(job)
    return Totals([sum(column) for column in zip(*cells, strict=True)])


def main() -> int:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    args = parser.parse_args()
    totals = campaign(args.seconds, args.seed, args.jobs, args.start)
    _say(str(totals))
    return 1 if totals["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
