"""Read files of lines in chunks, from any place that a chunk ended at."""

from __future__ import annotations

import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tokcache.cli.errors import UserError
from tokcache.cli.inputs import open_input, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

__all__ = ["START", "Chunk", "Place", "Source", "Spans", "Stamp", "read_chunks"]

# A path, and numbers and contents of lines in it.
Spans: TypeAlias = "Sequence[tuple[str, Sequence[tuple[int, bytes]]]]"

# How much of an unpacked stream is skipped at once.
_SKIP_BYTES = 2**20


class Place(NamedTuple):
    """Say where in the input a line begins, as counted in the unpacked files."""

    file: int = 0
    byte: int = 0
    line: int = 0


START = Place()


class Stamp(NamedTuple):
    """Tell by size and time of change whether a file is still the same."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        """Look at a file that is there."""
        try:
            found = Path(path).stat()
        except OSError as problem:
            raise unreadable(path, problem) from problem
        if not stat.S_ISREG(found.st_mode):  # a pipe cannot be read again
            error = f"{path}: not a file"
            raise UserError(error)
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Source:
    """Name one input file, and say how it was when the work began."""

    path: str
    stamp: Stamp

    def check(self) -> None:
        """Raise if it is not that file any more: what was read is worth nothing."""
        if Stamp.of(self.path) != self.stamp:
            error = f"{self.path}: it changed while it was read"
            raise UserError(error)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines that follow each other, and where the next one begins.

    Blank lines are left out. ``n_read`` are the bytes of the files, packed or not, up
    to the end.
    """

    spans: Spans
    end: Place
    n_read: int


def read_chunks(
    sources: Sequence[Source], start: Place, chunk_bytes: int
) -> Iterator[Chunk]:
    """Cut all lines from ``start`` on into chunks of so many bytes, lines being whole.

    Where chunks end depends on nothing but the lines from ``start`` on.
    """
    spans: list[tuple[str, list[tuple[int, bytes]]]] = []
    n_bytes = 0
    n_before = sum(source.stamp.size for source in sources[: start.file])
    at = start
    for number in range(start.file, len(sources)):
        source = sources[number]
        at = start if number == start.file else Place(number)
        with _opened(source, at) as (stream, raw):
            lines: list[tuple[int, bytes]] = []
            while line := _next_line(stream, source, at):
                at = Place(number, at.byte + len(line), at.line + 1)
                n_bytes += len(line)
                if line.strip():
                    lines.append((at.line, line.rstrip(b"\r\n")))
                if n_bytes >= chunk_bytes:
                    if lines:
                        spans.append((source.path, lines))
                    yield Chunk(spans, at, n_before + raw.tell())
                    spans, lines, n_bytes = [], [], 0
            if lines:
                spans.append((source.path, lines))
        source.check()
        n_before += source.stamp.size
    if n_bytes:
        yield Chunk(spans, at, n_before)


class _opened:  # noqa: N801 - used as a function
    """Open a source at a place; give the stream and the file below it."""

    def __init__(self, source: Source, at: Place) -> None:
        source.check()
        self._source, self._at = source, at

    def __enter__(self) -> tuple[BinaryIO, BinaryIO]:
        source, at = self._source, self._at
        try:
            self._stream = open_input(Path(source.path))
            raw = getattr(self._stream, "fileobj", None)
            if raw is None:
                self._stream.seek(at.byte)
                return self._stream, self._stream
            left = at.byte
            while left:
                left -= len(self._stream.read(min(left, _SKIP_BYTES))) or left
        except (EOFError, zlib.error, OSError) as problem:
            raise unreadable(source.path, problem) from problem
        return self._stream, raw

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def _next_line(stream: BinaryIO, source: Source, at: Place) -> bytes:
    try:
        return stream.readline()
    except (EOFError, zlib.error, OSError) as problem:
        where = f"{source.path}:{at.line + 1}"
        raise unreadable(where, problem) from problem
