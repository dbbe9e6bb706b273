"""Write the results: a table that reads as Markdown, a plot, JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.interleaved import Latency
    from benchmarks.peers.memory import Memory


@dataclass
class Row:
    """Hold what was measured of one peer; the ids are compared in every case."""

    key: str
    name: str
    version: str
    latencies: dict[str, Latency] = field(default_factory=dict)
    equals_raw: bool = True
    equals_tokenizers: bool | None = None
    memory: Memory | None = None


@dataclass(frozen=True)
class Report:
    """Hold a whole run. The first row is what the others are compared with."""

    machine: str
    cases: dict[str, str]
    rows: Sequence[Row]
    left_out: dict[str, str]


def _duration(nanoseconds: float) -> str:
    """Write microseconds with three digits that count."""
    micro = nanoseconds / 1e3
    if micro >= 100:
        return f"{micro:,.0f}"
    return f"{micro:.1f}" if micro >= 10 else f"{micro:.2f}"


def _ratio(value: float) -> str:
    return f"{value:,.0f}x" if value >= 10 else f"{value:.2g}x"


def _bytes(row: Row, first: Row) -> str:
    if row.memory is None or first.memory is None:
        return "-"
    size = f"{row.memory.grown / 1e6:,.2f}"
    if row is first:
        return size
    return f"{size} ({_ratio(row.memory.grown / first.memory.grown)})"


def _verdict(row: Row) -> str:
    own = "equal" if row.equals_raw else "DIFFER"
    if row.equals_tokenizers is None:
        return f"{own}, own ranks"
    return own if row.equals_tokenizers else f"{own}, not tokenizers'"


def _cells(row: Row, first: Row, cases: Sequence[str]) -> list[str]:
    cells = [f"{row.name} {row.version}"]
    for case in cases:
        latency, base = row.latencies[case], first.latencies[case]
        cell = f"{_duration(latency.median)} / {_duration(latency.minimum)}"
        if row is not first:
            cell += f" ({_ratio(latency.median / base.median)})"
        cells.append(cell)
    return [*cells, _bytes(row, first), _verdict(row)]


def table(report: Report) -> str:
    """Return the table: microseconds a call as median / minimum (ratio of medians)."""
    head = [
        "µs a call: median / min (x tokcache)",
        *report.cases,
        "MB held, 200 turns",
        "ids",
    ]
    lines = [head, *(_cells(r, report.rows[0], [*report.cases]) for r in report.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    written = [
        "| "
        + " | ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        )
        + " |"
        for line in lines
    ]
    written.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    about = [f"- {name}: {text}" for name, text in report.cases.items()]
    missing = [f"- left out: {key}: {why}" for key, why in report.left_out.items()]
    return "\n".join([report.machine, "", *written, "", *about, *missing])


def write_json(report: Report, path: Path) -> None:
    """Write everything that was measured; times in nanoseconds."""
    whole: dict[str, Any] = asdict(report)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _bars(
    axes: Axes, title: str, values: dict[str, tuple[float, float]], first: str
) -> None:
    """Draw one bar a peer on a logarithmic axis, and a tick at its minimum."""
    names = [*values][::-1]
    medians = [values[name][0] for name in names]
    minima = [values[name][1] for name in names]
    colours = ["#c0392b" if name == first else "#7f8c8d" for name in names]
    axes.barh(names, medians, color=colours)
    axes.plot(minima, names, "|", color="black")
    axes.set_xscale("log")
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    axes.grid(axis="x", alpha=0.3)


def write_plot(report: Report, path: Path) -> None:
    """Draw a panel for each case, and one for the memory."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow, and not for --help

    first = report.rows[0]
    panels: list[tuple[str, dict[str, tuple[float, float]]]] = [
        (
            f"{case}, µs",
            {
                row.name: (
                    row.latencies[case].median / 1e3,
                    row.latencies[case].minimum / 1e3,
                )
                for row in report.rows
            },
        )
        for case in report.cases
    ]
    held = {
        row.name: (row.memory.grown / 1e6, row.memory.grown / 1e6)
        for row in report.rows
        if row.memory is not None
    }
    if held:
        panels.append(("held for 200 growing turns, MB", held))
    columns = 2
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(13, 2.6 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).flat
    for axes, (title, values) in zip(grid, panels, strict=False):
        _bars(axes, title, values, first.name)
    for axes in [*grid][len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(report.machine, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
