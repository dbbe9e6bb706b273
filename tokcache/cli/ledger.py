"""Keep what is needed to go on after a crash: settings, and the whole shards."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from tokcache.cli.errors import UserError
from tokcache.cli.inputs import unreadable
from tokcache.cli.shards import TEMPORARY, replace_whole
from tokcache.cli.stream import START, Place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokcache.cli.shards import Shard

__all__ = ["BAD_LINES", "MANIFEST", "SHARDS", "Ledger", "Tally"]

MANIFEST = "manifest.json"
SHARDS = "shards.jsonl"
BAD_LINES = "bad_lines.jsonl"


@dataclass(frozen=True, slots=True)
class Tally:
    """Sum up what is done: everything before ``end``, in whole shards."""

    end: Place = START
    n_shards: int = 0
    n_texts: int = 0
    n_ids: int = 0
    n_bad: int = 0
    bad_bytes: int = 0


class Ledger:
    """Keep the files of one output folder beside its shards.

    ``manifest.json`` holds the settings and the inputs, ``shards.jsonl`` a line for
    each shard that is whole, and one at the end that says so; ``bad_lines.jsonl`` the
    lines that were left out. None holds a time or anything else that differs from run
    to run. A lock keeps a second run out while the ledger is open.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], *, resume: bool
    ) -> None:
        """Begin in an empty folder, or go on in one that the same settings began.

        Raises :class:`UserError` where that is not so.
        """
        self.folder = folder
        manifest = folder / MANIFEST
        try:
            folder.mkdir(parents=True, exist_ok=True)
            others = [
                path.name for path in folder.iterdir() if path.suffix != TEMPORARY
            ]
            if manifest.exists() and resume:
                _compare(json.loads(manifest.read_bytes()), settings, manifest)
            elif others or (not resume and any(folder.iterdir())):
                what = f"no {MANIFEST}" if resume else "--resume goes on with a run"
                error = f"{folder}: not empty ({what})"
                raise UserError(error)
            else:
                temporary = manifest.with_name(MANIFEST + TEMPORARY)
                temporary.write_bytes(_json(settings, indent=2))
                replace_whole(temporary, manifest)
            self._shards = _open(folder / SHARDS)
            self._lock()
            self.tally, self.is_complete = self._read()
            self._bad = _open(folder / BAD_LINES)
            self._bad.truncate(self.tally.bad_bytes)
            self._bad.seek(self.tally.bad_bytes)
        except OSError as problem:
            raise unreadable(folder, problem) from problem
        except ValueError as problem:
            error = f"{manifest}: not a manifest of this command: {problem}"
            raise UserError(error) from problem
        self._n_bad = self.tally.n_bad

    def _lock(self) -> None:
        try:
            fcntl.lockf(self._shards, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            error = f"{self.folder}: another run is at work in it"
            raise UserError(error) from problem

    def _read(self) -> tuple[Tally, bool]:
        """Read the lines; one that was cut off by a crash is cut off for good."""
        tally = Tally()
        end = 0
        for line in self._shards:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            end += len(line)
            if "complete" in entry:
                return tally, True
            tally = replace(
                tally,
                end=Place(*entry["end"]),
                n_shards=tally.n_shards + 1,
                n_texts=tally.n_texts + entry["texts"],
                n_ids=tally.n_ids + entry["ids"],
                n_bad=entry["bad_lines"],
                bad_bytes=entry["bad_bytes"],
            )
        self._shards.truncate(end)
        self._shards.seek(end)
        return tally, False

    def note_bad(self, message: str) -> None:
        """Write down a line that was left out."""
        self._bad.write(_json({"error": message}))
        self._n_bad += 1

    def note_shard(self, shard: Shard, end: Place) -> None:
        """Write down that a shard is whole, and where the next one begins."""
        _sync(self._bad)
        bad_bytes = self._bad.tell()
        entry = {
            "files": [path.name for path in shard.paths],
            "texts": shard.n_texts,
            "ids": shard.n_ids,
            "bad_lines": self._n_bad,
            "bad_bytes": bad_bytes,
            "end": end,
        }
        self._shards.write(_json(entry))
        _sync(self._shards)
        tally = self.tally
        self.tally = Tally(
            end,
            tally.n_shards + 1,
            tally.n_texts + shard.n_texts,
            tally.n_ids + shard.n_ids,
            self._n_bad,
            bad_bytes,
        )

    def note_complete(self) -> None:
        """Write down that nothing is left to do."""
        _sync(self._bad)
        tally = replace(self.tally, n_bad=self._n_bad, bad_bytes=self._bad.tell())
        self.tally = tally
        entry = {
            "complete": True,
            "shards": tally.n_shards,
            "texts": tally.n_texts,
            "ids": tally.n_ids,
            "bad_lines": tally.n_bad,
        }
        self._shards.write(_json(entry))
        _sync(self._shards)
        self.is_complete = True

    def close(self) -> None:
        """Let others into the folder."""
        self._bad.close()
        self._shards.close()


def _compare(
    there: Mapping[str, Any], settings: Mapping[str, Any], manifest: Path
) -> None:
    """Refuse to go on with other settings: the shards would not fit each other."""
    wanted = json.loads(_json(settings))
    names = [
        name for name in {**there, **wanted} if there.get(name) != wanted.get(name)
    ]
    if names:
        error = f"{manifest}: that run had other settings: {', '.join(names)}"
        raise UserError(error)


def _open(path: Path) -> BinaryIO:
    """Open for reading and writing; make it if it is not there."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "rb+")


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _json(value: object, indent: int | None = None) -> bytes:
    # Escaped: paths may have bytes that are no UTF-8.
    return json.dumps(value, indent=indent).encode("ascii") + b"\n"
