"""``tokcache replay``: run conversations with and without the cache."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tokcache.cached import CachedTokenizer
from tokcache.cli.answer import answer
from tokcache.cli.inputs import parse_size, read_conversations
from tokcache.cli.load import find_tokenizer
from tokcache.cli.measure import count_prompts, measure
from tokcache.cli.options import (  # noqa: TC001 - typer reads annotations
    AddSpecialTokens,
    AsJson,
    Chat,
    Template,
    TokenizerPath,
)
from tokcache.cli.plot import plot_file, save_plot
from tokcache.cli.progress import progress_bar
from tokcache.cli.rendering import find_renderer
from tokcache.cli.report import Report

__all__ = ["replay"]

# Enough to see a pattern; the JSON has them all.
_MAX_DIFFERENCES_SHOWN = 5


def replay(  # noqa: PLR0913 - the options of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help='JSONL, gzipped or not: {"messages": [...], "tools": [...]}'
            ' or {"text": "..."} a line.',
        ),
    ],
    tokenizer: TokenizerPath,
    *,
    chat: Chat = None,
    template: Template = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Replay the first N conversations only.")
    ] = None,
    max_memory: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Bytes of ids that the cache may hold."),
    ] = "64MiB",
    add_special_tokens: AddSpecialTokens = False,
    as_json: AsJson = False,
    plot: Annotated[
        str | None,
        typer.Option(metavar="PNG", help="Plot the time for each turn."),
    ] = None,
) -> None:
    """Tokenize conversations turn by turn, with and without the cache.

    Every id is compared; the exit code is 1 if one differs.
    """
    max_memory_bytes = parse_size(max_memory)
    plot_path = plot_file(plot)
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
    answer(
        report.to_dict(),
        lambda: _show(report),
        plot_path,
        lambda path: save_plot(measurement.samples, _subtitle(report), path),
        as_json=as_json,
    )
    if measurement.differences:
        raise typer.Exit(1)


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
