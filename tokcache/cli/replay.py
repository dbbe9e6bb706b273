"""``tokcache replay``: run conversations with and without the cache."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tokcache.cached import CachedTokenizer
from tokcache.cli.inputs import parse_size, read_conversations
from tokcache.cli.load import find_tokenizer
from tokcache.cli.measure import count_prompts, measure
from tokcache.cli.plot import check_plot, save_plot
from tokcache.cli.rendering import find_rendering
from tokcache.cli.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokcache.chat import Renderer
    from tokcache.cli.inputs import Conversation
    from tokcache.cli.load import TokenizerFile

__all__ = ["find_renderer", "progress_bar", "replay"]

# Enough to see a pattern; the JSON has them all.
_MAX_DIFFERENCES_SHOWN = 5

_SECONDS_BETWEEN_REFRESHES = 0.1


def replay(  # noqa: PLR0913 - the options of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help='JSONL, gzipped or not: {"messages": [...], "tools": [...]}'
            ' or {"text": "..."} a line.',
        ),
    ],
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="tokenizer.json (or .gz), a directory with one, or package:NAME/FILE.",
        ),
    ],
    *,
    chat: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Plain chat format to write in."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Jinja chat template to write in. Without this and without --format:"
            " the template that lies beside the tokenizer.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Replay the first N conversations only.")
    ] = None,
    max_memory: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Bytes of ids that the cache may hold."),
    ] = "64MiB",
    add_special_tokens: Annotated[
        bool,
        typer.Option(help="Let the tokenizer add its own; chat formats have theirs."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(metavar="PNG", help="Plot the time for each turn."),
    ] = None,
) -> None:
    """Tokenize conversations turn by turn, with and without the cache.

    Every id is compared; the exit code is 1 if one differs.
    """
    max_memory_bytes = parse_size(max_memory)
    plot_path = None if plot is None else Path(plot)
    if plot_path is not None:
        check_plot(plot_path)
    conversations = read_conversations(files, limit)
    file = find_tokenizer(tokenizer)
    raw = file.load()
    name, renderer = find_renderer(conversations, file, chat, template)
    cached = CachedTokenizer(file.load(), max_memory_bytes=max_memory_bytes)
    with progress_bar(
        "replaying", count_prompts(conversations), shown=not as_json
    ) as advance:
        measurement = measure(
            raw,
            cached,
            conversations,
            renderer,
            add_special_tokens=add_special_tokens,
            advance=advance,
        )
    report = Report(
        tokenizer=tokenizer,
        chat=name,
        n_conversations=len(conversations),
        measurement=measurement,
        stats=cached.cache_stats(),
        bypass=_bypass(cached, add_special_tokens=add_special_tokens),
    )
    if as_json:
        found = report.to_dict() | {"plot": plot}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _show(report)
    # After the numbers, which a plot that cannot be written must not cost.
    if plot_path is not None:
        save_plot(measurement.samples, _subtitle(report), plot_path)
        if not as_json:
            typer.echo(f"plot: {plot}")
    if measurement.differences:
        raise typer.Exit(1)


def find_renderer(
    conversations: Sequence[Conversation],
    file: TokenizerFile,
    chat: str | None,
    template: str | None,
) -> tuple[str, Renderer | None]:
    """Return what writes messages as prompts, and a name for it."""
    if (chat, template) == (None, None) and all(
        each.messages is None for each in conversations
    ):
        return "text", None
    found = find_rendering(file, chat, template)
    return found.name, found.renderer()


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


def _bypass(cached: CachedTokenizer, *, add_special_tokens: bool) -> str | None:
    """Return why the cache did nothing, if it is so."""
    explanation = cached.explain()
    if not explanation.enabled:
        return explanation.reason or "the cache is off"
    if add_special_tokens and explanation.add_special_tokens is not None:
        return explanation.add_special_tokens
    return explanation.bypass


def _subtitle(report: Report) -> str:
    stats = report.stats
    n_requests = len(report.measurement.samples)
    return (
        f"conversations: {report.n_conversations:,}, prompts: {n_requests:,},"
        f" token hit ratio: {stats.token_hit_rate:.1%}"
    )


def _show(report: Report) -> None:
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    for difference in report.measurement.differences[:_MAX_DIFFERENCES_SHOWN]:
        errors.print(str(difference))
    more = len(report.measurement.differences) - _MAX_DIFFERENCES_SHOWN
    if more > 0:
        errors.print(f"... and {more:,} more prompts with different ids")
    if report.bypass is not None:
        errors.print(f"calls went past the cache: {report.bypass}")
    output = Console()
    output.print(report.times_table())
    output.print(report.cache_table())
