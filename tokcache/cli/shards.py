"""Write ids as shards: streamed, under a temporary name until they are whole."""

from __future__ import annotations

import array
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["FORMATS", "Shard", "replace_whole"]

TEMPORARY = ".tmp"

# Room for any shape; numpy itself leaves as much.
_NPY_HEADER_BYTES = 128


def replace_whole(temporary: Path, path: Path) -> None:
    """Give a file that is whole its name, so that a crash leaves all of it or none."""
    with temporary.open("rb+") as stream:
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Writer(Protocol):
    """Take the ids of some texts after another, and write what is left at the end."""

    def add(self, ids: bytes, lengths: array.array[int], first: int) -> None: ...
    def close(self) -> None: ...


class Shard:
    """Write one shard, in some format.

    Memory: one chunk; for ``parquet`` also the places of the chunks before it.
    """

    def __init__(self, folder: Path, number: int, kind: str) -> None:
        suffixes, open_writer = FORMATS[kind]
        name = f"shard-{number:05d}"
        self.paths = [folder / f"{name}{suffix}" for suffix in suffixes]
        self._temporary = [path.with_name(path.name + TEMPORARY) for path in self.paths]
        self._writer = open_writer(self._temporary)
        self._is_open = True
        self.n_ids = 0
        self.n_texts = 0

    def add(self, ids: bytes, lengths: array.array[int], first: int) -> None:
        """Append texts by their ids and lengths; ``first`` ids came before them."""
        self._writer.add(ids, lengths, first)
        self.n_ids += len(ids) // 4
        self.n_texts += len(lengths)

    def finish(self) -> None:
        """Write the rest, and give the files their names."""
        self._close()
        for temporary, path in zip(self._temporary, self.paths, strict=True):
            replace_whole(temporary, path)

    def abandon(self) -> None:
        """Remove what has no name yet."""
        try:
            self._close()
        finally:
            for temporary in self._temporary:
                temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._writer.close()


class _Table:
    """Write columns ``ids`` (lists of uint32) and ``offset`` (ids before the text)."""

    def __init__(
        self, path: Path, open_writer: Callable[[Any, Path, Any], Any]
    ) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra, and slow to import

        self._pa = pa
        self._schema = pa.schema(
            [
                pa.field(
                    "ids", pa.list_(pa.field("item", pa.uint32(), nullable=False))
                ),
                pa.field("offset", pa.int64(), nullable=False),
            ]
        )
        self._writer = open_writer(pa, path, self._schema)

    def add(self, ids: bytes, lengths: array.array[int], first: int) -> None:
        pa = self._pa
        n_texts = len(lengths)
        values = self._column(pa.uint32(), len(ids) // 4, ids)
        starts = self._column(
            pa.int32(), n_texts + 1, array.array("i", _starts(lengths))
        )
        columns = [
            pa.ListArray.from_arrays(starts, values, type=self._schema.field(0).type),
            self._column(pa.int64(), n_texts, _starts(lengths, first)[:-1]),
        ]
        self._write(pa.record_batch(columns, schema=self._schema))

    def _column(self, kind: Any, length: int, content: Any) -> Any:
        """Make an array of what lies in a buffer, without a copy."""
        buffers = [None, self._pa.py_buffer(content)]
        return self._pa.Array.from_buffers(kind, length, buffers)

    def _write(self, batch: Any) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Parquet(_Table):
    """Write Parquet, one row group a chunk."""

    def __init__(self, paths: Sequence[Path]) -> None:
        def open_writer(_: Any, path: Path, schema: Any) -> Any:
            import pyarrow.parquet as pq  # noqa: PLC0415 - as pyarrow itself

            # Statistics of ids say nothing. Dictionaries do not fit: ids are many.
            return pq.ParquetWriter(
                path,
                schema,
                compression="zstd",
                use_dictionary=False,
                write_statistics=False,
                store_schema=True,
            )

        super().__init__(paths[0], open_writer)

    def _write(self, batch: Any) -> None:
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))


class _Arrow(_Table):
    """Write Arrow's file format, one record batch a chunk."""

    def __init__(self, paths: Sequence[Path]) -> None:
        def open_writer(pa: Any, path: Path, schema: Any) -> Any:
            self._sink = pa.OSFile(str(path), "wb")
            return pa.ipc.new_file(self._sink, schema)

        super().__init__(paths[0], open_writer)

    def close(self) -> None:
        super().close()
        self._sink.close()


class _Npy:
    """Write two arrays of numpy: the ids, and where each text's begin in them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._ids, self._offsets = (path.open("wb") for path in paths)
        self._n_ids, self._n_texts = 0, 0
        for stream in (self._ids, self._offsets):
            stream.write(bytes(_NPY_HEADER_BYTES))
        self._offsets.write(bytes(8))

    def add(self, ids: bytes, lengths: array.array[int], first: int) -> None:  # noqa: ARG002
        self._ids.write(ids)
        ends = _starts(lengths, self._n_ids)[1:]
        self._offsets.write(ends)
        self._n_ids += len(ids) // 4
        self._n_texts += len(lengths)

    def close(self) -> None:
        for stream, kind, length in (
            (self._ids, "u4", self._n_ids),
            (self._offsets, "i8", self._n_texts + 1),
        ):
            stream.seek(0)
            stream.write(_npy_header(kind, length))
            stream.close()


# What the files of a shard end with, and what writes them.
FORMATS: Mapping[str, tuple[Sequence[str], Callable[[Sequence[Path]], _Writer]]] = {
    "parquet": ((".parquet",), _Parquet),
    "arrow": ((".arrow",), _Arrow),
    "npy": ((".ids.npy", ".offsets.npy"), _Npy),
}


def _starts(lengths: array.array[int], first: int = 0) -> array.array[int]:
    return array.array("q", itertools.accumulate(lengths, initial=first))


def _npy_header(kind: str, length: int) -> bytes:
    """Return numpy's header, version 1.0, always as long."""
    order = "<" if sys.byteorder == "little" else ">"
    fields = (
        f"{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({length},), }}"
    )
    magic = b"\x93NUMPY\x01\x00" + (_NPY_HEADER_BYTES - 10).to_bytes(2, "little")
    return magic + fields.ljust(_NPY_HEADER_BYTES - 11).encode("ascii") + b"\n"
