"""``tokcache encode``: turn files of texts into shards of ids."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokcache.cli.answer import print_json
from tokcache.cli.errors import UserError
from tokcache.cli.gauge import Gauge
from tokcache.cli.inputs import parse_size, unreadable
from tokcache.cli.ledger import BAD_LINES, Ledger
from tokcache.cli.load import find_tokenizer
from tokcache.cli.options import (  # noqa: TC001 - typer reads annotations
    AddSpecialTokens,
    AsJson,
    TokenizerPath,
)
from tokcache.cli.rendering import find_rendering
from tokcache.cli.shards import FORMATS, Shard
from tokcache.cli.stream import Source, Stamp, read_chunks
from tokcache.cli.work import START_METHODS, Job, encode_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokcache.cli.stream import Chunk
    from tokcache.cli.work import Encoded

__all__ = ["encode"]


def encode(  # noqa: PLR0913 - the options of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help='JSONL, gzipped or not: {"text": "..."} or {"messages": [...],'
            ' "tools": [...]} a line.',
        ),
    ],
    tokenizer: TokenizerPath,
    out: Annotated[
        str,
        typer.Option(metavar="DIR", help="Folder for the shards; it must be empty."),
    ],
    *,
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="parquet, arrow or npy.")
    ] = "parquet",
    processes: Annotated[
        int,
        typer.Option(
            min=1, help="With one, the tokenizer uses all cores; else one core each."
        ),
    ] = 1,
    text_key: Annotated[str, typer.Option(help="Where a line has its text.")] = "text",
    messages_key: Annotated[
        str, typer.Option(help="Where a line has its messages.")
    ] = "messages",
    chat: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Plain chat format to write messages in."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Jinja chat template to write messages in. Without this and without"
            " --chat: the template that lies beside the tokenizer.",
        ),
    ] = None,
    add_special_tokens: AddSpecialTokens = False,
    shard_size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Bytes of ids (4 each) that fill a shard."),
    ] = "128MiB",
    chunk_size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Bytes of lines that are encoded together."),
    ] = "1MiB",
    max_memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Bytes of ids that the cache of a process may hold."
        ),
    ] = "64MiB",
    start_method: Annotated[
        str, typer.Option(help="How several processes begin: spawn or fork.")
    ] = "spawn",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was cut off.")
    ] = False,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help=f"List bad lines in {BAD_LINES} and go on."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tokenize texts into shards: the order is that of the input.

    A run that was cut off, by whatever, goes on with --resume, and leaves the same
    bytes as one that was not.
    """
    _check_name("--format", kind, FORMATS)
    _check_name("--start-method", start_method, START_METHODS)
    file = find_tokenizer(tokenizer)
    rendering = find_rendering(file, chat, template, "--chat")
    if chat is not None or template is not None:
        rendering.renderer()
    job = Job(
        file,
        rendering,
        text_key,
        messages_key,
        add_special_tokens,
        parse_size(max_memory),
    )
    file.load()  # here, so that a file that is none leaves no folder behind
    sources = [Source(path, Stamp.of(path)) for path in files]
    settings = _Settings(kind, _at_least_one(shard_size), _at_least_one(chunk_size))
    ledger = Ledger(Path(out), settings.manifest(job, sources), resume=resume)
    with closing(ledger):
        if ledger.tally.n_bad and not skip_bad:
            error = f"{out}: lines were left out by --skip-bad; go on with it"
            raise UserError(error)
        run = _Run(ledger, settings, sources, skip_bad=skip_bad)
        total = sum(source.stamp.size for source in sources)
        with Gauge(total, shown=not as_json) as gauge:
            started = monotonic()
            if not ledger.is_complete:
                run.work(job, processes, start_method, gauge)
            seconds = monotonic() - started
        report = asdict(ledger.tally) | gauge.report(seconds)
    del report["end"], report["bad_bytes"]
    if as_json:
        print_json(report | {"out": out})
    else:
        typer.echo(_told(report, out))


@dataclass(frozen=True, slots=True)
class _Settings:
    """Hold what the bytes of the shards depend on, beside the job and the inputs."""

    kind: str
    shard_bytes: int
    chunk_bytes: int

    def manifest(self, job: Job, sources: Sequence[Source]) -> Mapping[str, Any]:
        """Return all of it, for another run to be compared with."""
        rendering = asdict(job.rendering)
        # What it is called does not matter, what it says does.
        del rendering["name"], rendering["file"], rendering["option"]
        digest = hashlib.sha256()
        for part in (job.file.content, json.dumps(rendering, sort_keys=True)):
            digest.update(
                hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest()
            )
        libraries = ["tokenizers"] if self.kind == "npy" else ["tokenizers", "pyarrow"]
        return {
            "format": self.kind,
            "shard_bytes": self.shard_bytes,
            "chunk_bytes": self.chunk_bytes,
            "text_key": job.text_key,
            "messages_key": job.messages_key,
            "add_special_tokens": job.add_special_tokens,
            "tokenizer_sha256": digest.hexdigest(),
            "versions": {name: importlib.metadata.version(name) for name in libraries},
            "inputs": [[source.path, *source.stamp] for source in sources],
        }


class _Run:
    """Fill shards with what comes from the chunks."""

    def __init__(
        self,
        ledger: Ledger,
        settings: _Settings,
        sources: Sequence[Source],
        *,
        skip_bad: bool,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._sources = sources
        self._skip_bad = skip_bad

    def work(self, job: Job, n_processes: int, start_method: str, gauge: Gauge) -> None:
        """Encode what is left, and write it down."""
        start = self._ledger.tally.end
        chunks = read_chunks(self._sources, start, self._settings.chunk_bytes)
        encoded = encode_chunks(job, chunks, n_processes, start_method)
        try:
            with closing(encoded):
                self._fill(encoded, gauge)
            self._ledger.note_complete()
        except OSError as problem:  # a full disk
            raise unreadable(self._ledger.folder, problem) from problem

    def _fill(self, found: Iterator[tuple[Chunk, Encoded]], gauge: Gauge) -> None:
        ledger, settings = self._ledger, self._settings
        shard: Shard | None = None
        try:
            for chunk, encoded in found:
                self._note_bad(encoded.bad)
                if shard is None:
                    number = ledger.tally.n_shards
                    shard = Shard(ledger.folder, number, settings.kind)
                first = ledger.tally.n_ids + shard.n_ids
                shard.add(encoded.ids, encoded.lengths, first)
                end = chunk.end
                if shard.n_ids * 4 >= settings.shard_bytes:
                    shard.finish()
                    ledger.note_shard(shard, end)
                    shard = None
                gauge.advance(chunk.n_read, len(encoded.ids) // 4, encoded.n_cached)
            if shard is not None:
                shard.finish()
                ledger.note_shard(shard, end)
                shard = None
        finally:
            if shard is not None:
                shard.abandon()

    def _note_bad(self, messages: Sequence[str]) -> None:
        for message in messages:
            if not self._skip_bad:
                raise UserError(message)
            self._ledger.note_bad(message)


def _check_name(
    option: str, given: str, known: Sequence[str] | Mapping[str, Any]
) -> None:
    if given not in known:
        error = f"{option} {given!r}: known are {', '.join(known)}"
        raise UserError(error)


def _at_least_one(size: str) -> int:
    n_bytes = parse_size(size)
    if not n_bytes:
        error = f"bad size {size!r}: it must be at least 1"
        raise UserError(error)
    return n_bytes


def _told(report: Mapping[str, Any], out: str) -> str:
    """Return two lines for a reader."""
    bad = f", {report['n_bad']:,} bad lines left out" if report["n_bad"] else ""
    return (
        f"{out}: {report['n_texts']:,} texts, {report['n_ids']:,} ids in"
        f" {report['n_shards']:,} shards{bad}\n"
        f"this run: {report['run_ids']:,} ids in {report['run_seconds']:.1f} s,"
        f" {report['ids_per_second']:,.0f} a second, token hit ratio"
        f" {report['token_hit_ratio']:.1%}"
    )
