"""Plot the times of a replay by turn, and hit ratios by budget."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.filesize import decimal

from tokcache.cli.errors import UserError
from tokcache.cli.inputs import unreadable
from tokcache.cli.report import duration, percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tokcache.cli.measure import Sample

__all__ = ["plot_file", "save_budget_plot", "save_plot"]

# From the palette of Okabe and Ito, which colour-blind readers can tell apart.
_RAW_COLOUR = "#D55E00"
_CACHED_COLOUR = "#0072B2"

# A median and a band of fewer conversations say little.
_MIN_SAMPLES = 3


def plot_file(name: str | None) -> Path | None:
    """Return where to write a plot, or None; fail early where it could not be written.

    A folder that is not there is made, and named on stderr.
    """
    if name is None:
        return None
    import matplotlib as mpl  # noqa: PLC0415 - an optional extra, slow to import

    mpl.use("Agg")
    path = Path(name)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            typer.echo(f"made the folder {path.parent}", err=True)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    if path.is_dir():
        error = f"{path}: is a directory"
        raise UserError(error)
    return path


def save_plot(samples: Sequence[Sample], subtitle: str, path: Path) -> None:
    """Write a PNG: time for each turn number, without and with the cache."""
    from matplotlib import ticker  # noqa: PLC0415 - as above
    from matplotlib.figure import Figure  # noqa: PLC0415

    turns = _by_turn(samples)
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    _draw(axes, turns, "raw_ns", _RAW_COLOUR, "without cache")
    _draw(axes, turns, "cached_ns", _CACHED_COLOUR, "with tokcache")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _tick(value)))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set_xlim(min(turns) - 0.5, max(turns) + 0.5)
    axes.set_xlabel(_turn_label(turns))
    axes.set_ylabel("time to tokenize the whole prompt")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    raw, cached = (
        duration(sum(getattr(sample, side) for sample in samples))
        for side in ("raw_ns", "cached_ns")
    )
    figure.suptitle(
        f"Tokenizing growing prompts: {raw} in all without cache, {cached} with",
        x=0.02,
        ha="left",
        fontweight="bold",
    )
    axes.set_title(subtitle, loc="left", fontsize="small", color="dimgray")
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    _write(figure, path)


def save_budget_plot(
    points: Sequence[tuple[int, float]], attainable: float, subtitle: str, path: Path
) -> None:
    """Write a PNG: token hit ratio for each budget, below what is attainable."""
    from matplotlib import ticker  # noqa: PLC0415 - as above
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    # On a logarithmic axis a budget of 0, where nothing is hit, has no place.
    budgets, ratios = zip(
        *sorted((max(size, 1), ratio) for size, ratio in points), strict=True
    )
    axes.plot(budgets, ratios, color=_CACHED_COLOUR, marker="o", markersize=4)
    axes.axhline(attainable, color="dimgray", linestyle="dashed", linewidth=1)
    axes.annotate(
        f"attainable without a budget: {attainable:.1%}",
        (0.01, attainable),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize="small",
        color="dimgray",
    )
    axes.set_xscale("log")
    axes.set_ylim(0, max(attainable, *ratios) * 1.1 or 1)
    axes.set_xticks(budgets, [decimal(size) for size in budgets], rotation=30)
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    axes.set_xlabel("max_memory_bytes")
    axes.set_ylabel("token hit ratio")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        "Token hit ratio by memory budget", x=0.02, ha="left", fontweight="bold"
    )
    axes.set_title(subtitle, loc="left", fontsize="small", color="dimgray")
    _write(figure, path)


def _write(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, format="png")
    except OSError as problem:
        raise unreadable(path, problem) from problem


def _by_turn(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    turns: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        turns[sample.turn].append(sample)
    enough = min(_MIN_SAMPLES, max(map(len, turns.values())))
    return {turn: turns[turn] for turn in sorted(turns) if len(turns[turn]) >= enough}


def _turn_label(turns: dict[int, list[Sample]]) -> str:
    fewest = min(map(len, turns.values()))
    if fewest == 1:
        return "turn of the conversation"
    return f"turn of the conversation (turns that at least {fewest} of them have)"


def _tick(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:g} {unit}"
    return f"{nanoseconds / 1e3:g} µs"


def _draw(
    axes: Axes, turns: dict[int, list[Sample]], side: str, colour: str, label: str
) -> None:
    low, middle, high = (
        [
            percentile([getattr(sample, side) for sample in samples], share)
            for samples in turns.values()
        ]
        for share in (0.1, 0.5, 0.9)
    )
    numbers = list(turns)
    axes.fill_between(numbers, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(
        numbers,
        middle,
        color=colour,
        marker="o",
        markersize=3,
        label=f"{label} (median; band: 10 % to 90 %)",
    )
