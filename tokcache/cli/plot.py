"""Plot the times of a replay by turn."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tokcache.cli.errors import UserError
from tokcache.cli.report import duration, percentile, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tokcache.cli.measure import Sample

__all__ = ["check_plot", "save_plot"]

# From the palette of Okabe and Ito, which colour-blind readers can tell apart.
_RAW_COLOUR = "#D55E00"
_CACHED_COLOUR = "#0072B2"

# A median and a band of fewer conversations say little.
_MIN_SAMPLES = 3


def check_plot(path: Path) -> None:
    """Fail early where the plot could not be written at the end."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional extra, slow to import

    mpl.use("Agg")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        error = f"{path}: {problem.strerror}"
        raise UserError(error) from problem
    if path.is_dir():
        error = f"{path}: is a directory"
        raise UserError(error)


def save_plot(samples: Sequence[Sample], subtitle: str, path: Path) -> None:
    """Write a PNG: time for each turn number, without and with the cache."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    turns = _by_turn(samples)
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    _draw(axes, turns, "raw_ns", _RAW_COLOUR, "without cache")
    _draw(axes, turns, "cached_ns", _CACHED_COLOUR, "with tokcache")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("turn of the conversation")
    axes.set_ylabel("time to tokenize the whole prompt")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    speed_up = ratio(
        sum(sample.raw_ns for sample in samples),
        sum(sample.cached_ns for sample in samples),
    )
    figure.suptitle(
        f"Tokenizing growing prompts: {speed_up:g}× faster over all calls",
        x=0.02,
        ha="left",
        fontweight="bold",
    )
    axes.set_title(subtitle, loc="left", fontsize="small", color="dimgray")
    axes.legend(frameon=False, loc="best")
    try:
        figure.savefig(path, format="png")
    except OSError as problem:
        error = f"{path}: {problem.strerror or problem}"
        raise UserError(error) from problem


def _by_turn(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    turns: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        turns[sample.turn].append(sample)
    enough = min(_MIN_SAMPLES, max(map(len, turns.values())))
    return {turn: turns[turn] for turn in sorted(turns) if len(turns[turn]) >= enough}


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
