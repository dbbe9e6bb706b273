"""Give a command's numbers, and then the plot of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["answer", "print_json"]


def answer(
    found: Mapping[str, Any],
    show: Callable[[], None],
    plot: Path | None,
    draw: Callable[[Path], None],
    *,
    as_json: bool,
) -> None:
    """Print the numbers as JSON or ``show`` them, then ``draw`` a plot if it is wanted.

    In this order, so that a plot that cannot be written does not cost the numbers.
    """
    if as_json:
        print_json({**found, "plot": None if plot is None else str(plot)})
    else:
        show()
    if plot is not None:
        draw(plot)
        if not as_json:
            typer.echo(f"plot: {plot}")


def print_json(found: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
