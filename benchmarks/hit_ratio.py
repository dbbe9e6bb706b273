"""Token hit ratios by budget: the compiled cache beside other ways to cache the same.

``make bench-hit-ratio`` prints a table for each trace. The prompts are real: request
traces with hashed prefixes, and conversations through a real tokenizer.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from benchmarks.cases import Case, cases
from benchmarks.schemes import Flat, FlatTinyLfu, LeafLru, hit_ratio
from tokcache.cli.workload import UNBOUNDED, Outcome, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.schemes import Scheme

SHARES = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50)

TOKCACHE, LEAF_LRU = "tokcache", "leaf-LRU"
FLAT, UPSTREAM = "flat LRU", "flat TinyLFU"

# Of the hits that a cache without a budget has.
ENOUGH = 0.9

# Where `bytes_for_enough` looks: from a hundredth of the distinct payloads up to 64
# times as much, in steps of a fifth.
GRID = [0.01 * 1.2**step for step in range(49)]

# At these budgets on Mooncake's conversations, so many hits.
GOALS = {0.01: 0.10, 0.02: 0.14, 0.10: 0.29}
MOST_BELOW_LEAF_LRU = 0.005
LEAST_BYTES_OF_UPSTREAM = 7


@dataclass
class Result:
    """What was found on one case; ratios by scheme, in the order of ``SHARES``."""

    name: str
    requests: int
    tokens: int
    unique_bytes: int
    attainable: float
    ratios: dict[str, list[float]]
    bytes_for_enough: dict[str, int | None]
    resident: list[dict[str, float]] = field(default_factory=list)


def ratio_of(scheme: str, case: Case, budget: int) -> float:
    """Run one scheme at one budget."""
    if scheme == TOKCACHE:
        return run(case.workload, budget).token_hit_ratio
    models: dict[str, Callable[[Case, int], Scheme]] = {
        LEAF_LRU: LeafLru,
        FLAT: Flat,
        UPSTREAM: FlatTinyLfu,
    }
    return hit_ratio(case, models[scheme](case, budget))


def measure(case: Case) -> Result:
    """Run every scheme at every budget."""
    attainable = run(case.workload, UNBOUNDED).token_hit_ratio
    budgets = [round(share * case.unique_bytes) for share in SHARES]
    outcomes = [run(case.workload, budget) for budget in budgets]
    ratios = {TOKCACHE: [each.token_hit_ratio for each in outcomes]} | {
        scheme: [ratio_of(scheme, case, budget) for budget in budgets]
        for scheme in (LEAF_LRU, FLAT, UPSTREAM)
    }
    enough = {
        scheme: bytes_for(ENOUGH * attainable, case, partial(ratio_of, scheme, case))
        for scheme in (TOKCACHE, LEAF_LRU, FLAT, UPSTREAM)
    }
    return Result(
        case.name,
        len(case.trace.requests),
        case.n_tokens,
        case.unique_bytes,
        attainable,
        ratios,
        enough,
        [] if case.workload.is_synthetic else list(resident_rows(case, outcomes)),
    )


def bytes_for(ratio: float, case: Case, ratio_at: Callable[[int], float]) -> int | None:
    """Return the least budget of the grid that gives a ratio; None if none does."""
    budgets = [round(share * case.unique_bytes) for share in GRID]
    low, high = 0, len(budgets)
    while low < high:
        middle = (low + high) // 2
        if ratio_at(budgets[middle]) >= ratio:
            high = middle
        else:
            low = middle + 1
    return budgets[low] if low < len(budgets) else None


def resident_rows(
    case: Case, outcomes: Sequence[Outcome]
) -> Iterator[dict[str, float]]:
    """Give the flat schemes all bytes that the trie takes, text and nodes too.

    Their entries have no text, and are charged for their ids only: keys and tables are
    left out in their favour.
    """
    for outcome in outcomes:
        yield {
            "payload_bytes": outcome.memory_bytes,
            "resident_bytes": outcome.resident_bytes,
            TOKCACHE: outcome.token_hit_ratio,
            FLAT: ratio_of(FLAT, case, outcome.resident_bytes),
            UPSTREAM: ratio_of(UPSTREAM, case, outcome.resident_bytes),
        }


def ratio_table(result: Result) -> Table:
    """Return the table of ratios at equal payload bytes."""
    table = Table(
        title=f"{result.name}: token hit ratio by budget of ids", title_justify="left"
    )
    for heading in ("budget", "of distinct", *result.ratios):
        table.add_column(heading, justify="right")
    for index, share in enumerate(SHARES):
        ratios = [f"{ratios[index]:.1%}" for ratios in result.ratios.values()]
        size = decimal(round(share * result.unique_bytes))
        table.add_row(size, f"{share:.0%}", *ratios)
    infinite = f"{result.attainable:.1%}"
    table.add_row("none", "", infinite, end_section=True)
    table.add_row(
        f"{ENOUGH:.0%} of that",
        "",
        *[
            "never" if needed is None else decimal(needed)
            for needed in result.bytes_for_enough.values()
        ],
    )
    return table


def resident_table(result: Result) -> Table:
    """Return the table of ratios at equal bytes in all."""
    table = Table(
        title=f"{result.name}: at equal bytes in all",
        title_justify="left",
    )
    for heading in ("ids", "in all", TOKCACHE, FLAT, UPSTREAM):
        table.add_column(heading, justify="right")
    for row in result.resident:
        sizes = (row["payload_bytes"], row["resident_bytes"])
        table.add_row(
            *[decimal(round(size)) for size in sizes],
            *[f"{row[scheme]:.1%}" for scheme in (TOKCACHE, FLAT, UPSTREAM)],
        )
    return table


def goals(result: Result) -> Iterator[tuple[str, bool]]:
    """Yield what was to be reached, with the figures, and whether it was."""
    ours, lru = result.ratios[TOKCACHE], result.ratios[LEAF_LRU]
    below = max(theirs - mine for mine, theirs in zip(ours, lru, strict=True))
    yield (
        f"at most {MOST_BELOW_LEAF_LRU:.1%} below {LEAF_LRU}: {below:+.2%}",
        below <= MOST_BELOW_LEAF_LRU,
    )
    if not result.name.startswith("mooncake_conversation"):
        return
    for share, least in GOALS.items():
        ratio = ours[SHARES.index(share)]
        yield f"at {share:.0%} at least {least:.0%}: {ratio:.2%}", ratio >= least
    mine, theirs = (result.bytes_for_enough[each] for each in (TOKCACHE, UPSTREAM))
    times = theirs / mine if mine and theirs else None
    found = "more than was tried" if times is None else f"{times:.1f}"
    yield (
        f"{UPSTREAM} at least {LEAST_BYTES_OF_UPSTREAM} times the bytes: {found}",
        mine is not None and (times is None or times >= LEAST_BYTES_OF_UPSTREAM),
    )


def save_plot(results: Sequence[Result], path: Path) -> None:
    """Write a PNG with a panel for each case."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415

    figure = Figure(figsize=(5 * len(results), 4.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, result in zip(panels, results, strict=True):
        for scheme, ratios in result.ratios.items():
            axes.plot(SHARES, ratios, marker="o", markersize=3, label=scheme)
        axes.axhline(result.attainable, color="dimgray", linestyle="dashed")
        axes.set_xscale("log")
        axes.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_title(result.name, fontsize="small")
        axes.set_xlabel("budget, of distinct ids")
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("token hit ratio")
    panels[0].legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Measure all cases and show what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--only", default="", metavar="NAME", help="cases named so")
    options = parser.parse_args()
    output = Console()
    results = []
    for case in cases(options.only):
        result = measure(case)
        results.append(result)
        if options.json:
            continue
        output.print(ratio_table(result))
        if result.resident:
            output.print(resident_table(result))
        for goal, is_met in goals(result):
            output.print(f"{'met' if is_met else 'MISSED'}: {goal}", highlight=False)
    if options.json:
        print(json.dumps([to_dict(result) for result in results], indent=2))
    if options.plot is not None and results:
        save_plot(results, options.plot)


def to_dict(result: Result) -> dict[str, Any]:
    """Return a result as an object for JSON."""
    met = [{"goal": goal, "met": is_met} for goal, is_met in goals(result)]
    return {"shares": SHARES, **asdict(result), "goals": met}


if __name__ == "__main__":
    main()
