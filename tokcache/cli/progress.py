"""Show how far a run is."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]

_SECONDS_BETWEEN_REFRESHES = 0.1


@contextmanager
def progress_bar(what: str, total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal's stderr; yield what moves it by one."""
    console = Console(stderr=True)
    # Drawn between the timed calls: a drawing thread would take the GIL within them.
    progress = Progress(
        "[progress.description]{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (shown and console.is_terminal),
        auto_refresh=False,
        transient=True,
    )
    with progress:
        task = progress.add_task(what, total=total)
        drawn = monotonic()

        def advance() -> None:
            nonlocal drawn
            progress.advance(task)
            if monotonic() - drawn >= _SECONDS_BETWEEN_REFRESHES:
                progress.refresh()
                drawn = monotonic()

        yield advance
