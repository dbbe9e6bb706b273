"""``tokcache plan``: show what each budget would have saved."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tokcache.backends import backend_for
from tokcache.cached import CachedTokenizer
from tokcache.cli.answer import answer
from tokcache.cli.errors import UserError
from tokcache.cli.inputs import parse_size, read_conversations
from tokcache.cli.load import find_tokenizer
from tokcache.cli.measure import prompts
from tokcache.cli.options import (  # noqa: TC001 - typer reads annotations
    AsJson,
    Chat,
    Template,
)
from tokcache.cli.plot import plot_file, save_budget_plot
from tokcache.cli.progress import progress_bar
from tokcache.cli.rendering import find_renderer
from tokcache.cli.traces import read_trace, trace_format
from tokcache.cli.workload import UNBOUNDED, of_texts, of_trace, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokcache.cli.workload import Outcome, Workload

__all__ = ["plan"]

# Of the bytes that all distinct segments have together. The knee is below a tenth
# for most traffic, so the steps are finer there.
DEFAULT_SHARES = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50, 1.00)


@dataclass(frozen=True, slots=True)
class Report:
    """What each budget gave, beside a cache without one."""

    source: str
    unbounded: Outcome
    outcomes: Sequence[Outcome]
    is_synthetic: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an object for JSON."""
        return {
            "source": self.source,
            "requests": self.unbounded.hits + self.unbounded.misses,
            "tokens": self.unbounded.cached_tokens + self.unbounded.uncached_tokens,
            "unique_payload_bytes": self.unbounded.memory_bytes,
            "attainable_token_hit_ratio": self.unbounded.token_hit_ratio,
            "budgets": [self._row(outcome) for outcome in self.outcomes],
        }

    def _row(self, outcome: Outcome) -> dict[str, Any]:
        row = asdict(outcome) | {
            "token_hit_ratio": outcome.token_hit_ratio,
            "share_of_unique": self.share(outcome),
            "share_of_attainable": self.share_of_attainable(outcome),
        }
        if self.is_synthetic:  # its text is not the prompts' text
            del row["resident_bytes"]
        return row

    def share(self, outcome: Outcome) -> float:
        """Return a budget as a share of what all distinct segments take."""
        return outcome.max_memory_bytes / max(1, self.unbounded.memory_bytes)

    def share_of_attainable(self, outcome: Outcome) -> float:
        """Return the hits as a share of those without a budget."""
        return outcome.cached_tokens / max(1, self.unbounded.cached_tokens)

    def subtitle(self) -> str:
        """Return the numbers that hold for every budget."""
        found = self.to_dict()
        return (
            f"{self.source}; prompts: {found['requests']:,}, tokens:"
            f" {found['tokens']:,}, distinct: {decimal(self.unbounded.memory_bytes)}"
        )

    def table(self) -> Table:
        """Return the table for people."""
        table = Table(title="Token hit ratio by budget", title_justify="left")
        columns = ["budget", "of distinct", "token hits", "of attainable", "evictions"]
        if not self.is_synthetic:
            columns.append("resident")
        for heading in columns:
            table.add_column(heading, justify="right")
        for outcome in self.outcomes:
            cells = [
                decimal(outcome.max_memory_bytes),
                f"{self.share(outcome):.1%}",
                f"{outcome.token_hit_ratio:.1%}",
                f"{self.share_of_attainable(outcome):.1%}",
                f"{outcome.evictions:,}",
                decimal(outcome.resident_bytes),
            ]
            table.add_row(*cells[: len(columns)])
        return table


def plan(  # noqa: PLR0913 - the options of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="JSONL, gzipped or not: conversations as for replay, or a prefix trace"
            " in Mooncake's or WEKA's format.",
        ),
    ],
    *,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="For conversations: tokenizer.json (or .gz), a directory with one, or"
            " package:NAME/FILE.",
        ),
    ] = None,
    chat: Chat = None,
    template: Template = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read the first N lines only.")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZE",
            help="Bytes of ids, such as 64MiB (may be given many times). Without it:"
            " 1, 2, 5, 10, 25, 50 and 100 % of what the distinct segments take.",
        ),
    ] = None,
    concurrent: Annotated[
        int,
        typer.Option(
            min=1,
            help="Conversations under way at the same time, taking turns. A trace has"
            " its own order.",
        ),
    ] = 8,
    hours: Annotated[
        float,
        typer.Option(
            min=0.0, help="WEKA traces: sessions begin at random within so many hours."
        ),
    ] = 6.0,
    as_json: AsJson = False,
    plot: Annotated[
        str | None, typer.Option(metavar="PNG", help="Plot the ratio for each budget.")
    ] = None,
) -> None:
    """Show the token hit ratio that each memory budget gives on your own traffic.

    Prompts go through the compiled cache itself, once without a budget and once for
    each budget; then choose max_memory_bytes from the table.
    """
    sizes = [parse_size(size) for size in budget or ()]
    plot_path = plot_file(plot)
    kinds = {trace_format(path) for path in files}
    if len(kinds) > 1:
        error = (
            "one kind of input at a time: conversations, Mooncake's or WEKA's format"
        )
        raise UserError(error)
    (kind,) = kinds
    if kind is None:
        source, workload = _conversations(
            files,
            tokenizer,
            chat=chat,
            template=template,
            limit=limit,
            concurrent=concurrent,
            shown=not as_json,
        )
    else:
        source = f"{kind} trace"
        workload = of_trace(read_trace(files, kind, hours=hours, limit=limit))
    report = _measure(source, workload, sizes, shown=not as_json)
    answer(
        report.to_dict(),
        lambda: _show(report),
        plot_path,
        lambda path: save_budget_plot(
            [(each.max_memory_bytes, each.token_hit_ratio) for each in report.outcomes],
            report.unbounded.token_hit_ratio,
            report.subtitle(),
            path,
        ),
        as_json=as_json,
    )


def _conversations(  # noqa: PLR0913 - the user's choices
    files: Sequence[str],
    tokenizer: str | None,
    *,
    chat: str | None,
    template: str | None,
    limit: int | None,
    concurrent: int,
    shown: bool,
) -> tuple[str, Workload]:
    """Write conversations as prompts, and find out where the cache cuts them."""
    if tokenizer is None:
        error = "conversations need a tokenizer: name one with --tokenizer"
        raise UserError(error)
    conversations = read_conversations(files, limit)
    file = find_tokenizer(tokenizer)
    inner = file.load()
    name, renderer = find_renderer(conversations, file, chat, template)
    texts = list(
        take_turns([prompts(each, renderer) for each in conversations], concurrent)
    )
    # The cache itself tries every token at its first sight; a run needs its verdicts.
    cached = CachedTokenizer(inner, max_memory_bytes=UNBOUNDED)
    with progress_bar("tokenizing", len(texts), shown=shown) as advance:
        for text in texts:
            cached.count(text, add_special_tokens=False)
            advance()
    explanation = cached.explain()
    reason = explanation.reason or explanation.bypass
    if reason is not None:
        error = f"{tokenizer}: prompts would go past the cache: {reason}"
        raise UserError(error)
    source = f"{len(conversations):,} conversations, {concurrent:,} at a time, {name}"
    backend = backend_for(inner)
    return source, of_texts(texts, backend, explanation.boundary_tokens)


def take_turns(
    conversations: Sequence[Iterator[str]], concurrent: int
) -> Iterator[str]:
    """Yield prompts of so many conversations in turn; the next one follows a finished.

    >>> list(take_turns([iter("abc"), iter("12"), iter("x")], 2))
    ['a', '1', 'b', '2', 'c', 'x']
    """
    waiting = deque(conversations)
    active: deque[Iterator[str]] = deque()
    while waiting or active:
        if waiting and len(active) < concurrent:
            active.append(waiting.popleft())
            continue
        conversation = active.popleft()
        prompt = next(conversation, None)
        if prompt is not None:
            yield prompt
            active.append(conversation)


def _measure(
    source: str, workload: Workload, sizes: Sequence[int], *, shown: bool
) -> Report:
    n_runs = 1 + (len(sizes) or len(DEFAULT_SHARES))
    total = n_runs * len(workload.texts)
    with progress_bar("running", total, shown=shown) as advance:
        unbounded = run(workload, UNBOUNDED, advance)
        outcomes = [
            run(workload, size, advance)
            for size in sizes or _default_sizes(unbounded.memory_bytes)
        ]
    return Report(source, unbounded, outcomes, workload.is_synthetic)


def _default_sizes(unique_bytes: int) -> list[int]:
    return [max(1, round(share * unique_bytes)) for share in DEFAULT_SHARES]


def _show(report: Report) -> None:
    output = Console()
    output.print(report.table())
    line = Console(soft_wrap=True, highlight=False, markup=False).print
    line(report.subtitle())
    line(f"attainable without a budget: {report.unbounded.token_hit_ratio:.1%}")
    for outcome in report.outcomes:
        if outcome.oversized:
            line(
                f"at {decimal(outcome.max_memory_bytes)}: {outcome.oversized:,} times a"
                " prompt alone was over a budget and not stored"
            )
    if report.is_synthetic:
        line(
            "A trace has no text: only the budget of ids (max_memory_bytes) is applied,"
            " not the resident one."
        )
