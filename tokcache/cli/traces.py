"""Read prefix traces: requests whose prompts are known by hashes only.

Two published formats, told apart by their keys:

- Mooncake, one request a line: ``timestamp`` in ms, ``input_length`` and ``hash_ids``,
  one for each block of 512 tokens.
- WEKA, one session a line: ``block_size`` and ``requests``, each with ``t`` in seconds
  from the session's start, ``in`` tokens and ``hash_ranges``; sub-agents nest.

In both an equal id means an equal prefix up to the end of its block.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tokcache.cli.errors import UserError
from tokcache.cli.inputs import json_objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Trace", "TraceRequest", "read_trace", "trace_format"]

Format = Literal["Mooncake", "WEKA"]

MOONCAKE_BLOCK = 512

# WEKA's blocks are 64 tokens; messages are longer, so blocks are taken together.
WEKA_GROUP_TOKENS = 512

# WEKA's files do not say when a session began. Fixed, so that runs can be compared.
_SEED = 1


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Hold one prompt: its segments by number, and the tokens behind the last."""

    path: tuple[int, ...]
    n_tail: int

    def n_tokens(self, lengths: Sequence[int]) -> int:
        """Return how many tokens the prompt has."""
        return sum(lengths[number] for number in self.path) + self.n_tail


@dataclass(slots=True)
class Trace:
    """Hold requests in the order of their arrival.

    Segments are numbered by prefix: an equal number means an equal prefix, so a number
    has one parent. ``lengths`` has the tokens of each.
    """

    requests: list[TraceRequest] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


class _Prefixes:
    """Number prefixes by what they extend, their last block's name and its length."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object, int], int] = {}
        self.lengths: list[int] = []

    def extend(self, parent: int, name: object, length: int) -> int:
        """Return the number of the prefix that is one segment longer."""
        number = self._numbers.setdefault((parent, name, length), len(self.lengths))
        if number == len(self.lengths):
            self.lengths.append(length)
        return number


def trace_format(path: str) -> Format | None:
    """Tell the format of a file by its first line; None if it is no trace."""
    for _, entry in json_objects(path, '"messages", "text" or "hash_ids"'):
        if "hash_ids" in entry:
            return "Mooncake"
        return "WEKA" if "requests" in entry else None
    return None


def read_trace(
    paths: Sequence[str], kind: Format, *, hours: float, limit: int | None = None
) -> Trace:
    """Read traces of one format, as one stream of requests.

    Nothing is shared across files of Mooncake's format, whose ids are a file's own.
    WEKA's sessions begin at random within so many ``hours``. ``limit`` is the number of
    lines to read. Raises :class:`UserError` beginning with ``file:line``.
    """
    prefixes = _Prefixes()
    timed: list[tuple[float, TraceRequest]] = []
    starts = random.Random(_SEED)  # noqa: S311 - arrival times, no secrets
    n_lines = 0
    for path in paths:
        for where, entry in json_objects(path, _KEYS[kind]):
            if limit is not None and n_lines >= limit:
                break
            n_lines += 1
            if kind == "Mooncake":
                timed.append(_mooncake(entry, where, path, prefixes))
            else:
                start = starts.uniform(0, hours * 3600)
                timed += _session(entry, where, n_lines, start, prefixes)
    if not timed:
        error = f"no requests in {', '.join(paths)}"
        raise UserError(error)
    timed.sort(key=lambda request: request[0])  # stable: the file's order decides ties
    return Trace([request for _, request in timed], prefixes.lengths)


_KEYS: dict[Format, str] = {
    "Mooncake": '"timestamp", "input_length" and "hash_ids"',
    "WEKA": '"block_size" and "requests"',
}


def _mooncake(
    entry: dict[str, Any], where: str, path: str, prefixes: _Prefixes
) -> tuple[float, TraceRequest]:
    time = _number(entry, "timestamp", where)
    n_tokens = _count(entry, "input_length", where)
    ids = entry.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        error = f'{where}: "hash_ids" is not a list of integers'
        raise UserError(error)
    if n_tokens <= MOONCAKE_BLOCK * (len(ids) - 1):
        error = f'{where}: "input_length" is too small for {len(ids)} "hash_ids"'
        raise UserError(error)
    names = [(path, each) for each in ids]
    n_tail = max(0, n_tokens - MOONCAKE_BLOCK * len(ids))
    numbers = _path(names, n_tokens - n_tail, MOONCAKE_BLOCK, prefixes)
    return time, TraceRequest(numbers, n_tail)


def _path(
    names: Sequence[object], n_tokens: int, length: int, prefixes: _Prefixes
) -> tuple[int, ...]:
    """Give the segments of a prompt numbers, all of one length but perhaps the last."""
    number = -1
    path = []
    for name in names:
        taken = min(length, n_tokens)
        number = prefixes.extend(number, name, taken)
        path.append(number)
        n_tokens -= taken
    return tuple(path)


@dataclass(frozen=True, slots=True)
class _Session:
    """Hold what the requests of a WEKA session share, sub-agents' too."""

    number: int
    block: int
    prefixes: _Prefixes


@dataclass(slots=True)
class _Shared:
    """Number the blocks of tools and system prompt, which sessions share.

    The data has no ids across sessions; equal sizes of both are taken for equal texts.
    Only a request that begins as the first one of its agent did has them.
    """

    sizes: tuple[int, int]
    ids: Sequence[int] = ()


def _session(
    entry: dict[str, Any], where: str, number: int, start: float, prefixes: _Prefixes
) -> Iterator[tuple[float, TraceRequest]]:
    block = _count(entry, "block_size", where)
    if block < 1:
        error = f'{where}: "block_size" is not a positive integer'
        raise UserError(error)
    return _agent(entry, where, start, _Session(number, block, prefixes))


def _agent(
    entry: dict[str, Any], where: str, start: float, session: _Session
) -> Iterator[tuple[float, TraceRequest]]:
    requests = entry.get("requests")
    if not isinstance(requests, list):
        error = f'{where}: "requests" is not a list'
        raise UserError(error)
    tools, system = (
        _count(entry, key, where) for key in ("tool_tokens", "system_tokens")
    )
    shared = _Shared((tools, system))
    block = session.block
    for index, request in enumerate(requests, 1):
        inner = f"{where}: request {index}"
        if not isinstance(request, dict):
            error = f"{inner} is not an object"
            raise UserError(error)
        time = start + _number(request, "t", inner)
        if request.get("type") == "subagent":
            yield from _agent(request, inner, time, session)
            continue
        ids = _ids(request.get("hash_ranges"), inner)
        n_tokens = _count(request, "in", inner)
        if n_tokens <= block * (len(ids) - 1):
            error = f'{inner}: "in" is too small for {len(ids)} blocks of {block}'
            raise UserError(error)
        n_tail = max(0, n_tokens - block * len(ids))
        names = _groups(ids, session, shared)
        length = _per_group(block) * block
        yield (
            time,
            TraceRequest(
                _path(names, n_tokens - n_tail, length, session.prefixes), n_tail
            ),
        )


def _per_group(block: int) -> int:
    return max(1, WEKA_GROUP_TOKENS // block)


def _ids(ranges: Any, where: str) -> list[int]:
    ids: list[int] = []
    try:
        for first, count in ranges:
            ids.extend(range(first, first + count))
    except (TypeError, ValueError) as problem:
        error = f'{where}: "hash_ranges" is not a list of [first, count]'
        raise UserError(error) from problem
    return ids


def _groups(ids: Sequence[int], session: _Session, shared: _Shared) -> list[object]:
    """Name groups of blocks: an id stands for the whole prefix, so by their last."""
    size = _per_group(session.block)
    lasts = [*ids[size - 1 :: size]]
    if len(ids) % size:
        lasts.append(ids[-1])
    n_shared = sum(shared.sizes) // session.block // size
    if not shared.ids and len(lasts) >= n_shared:
        shared.ids = lasts[:n_shared]
    names: list[object] = [(session.number, last) for last in lasts]
    for index, last in enumerate(shared.ids[: len(ids) // size]):
        if lasts[index] != last:
            break
        names[index] = (shared.sizes, index)
    return names


def _number(entry: dict[str, Any], key: str, where: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        error = f'{where}: "{key}" is not a number'
        raise UserError(error)
    return value


def _count(entry: dict[str, Any], key: str, where: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        error = f'{where}: "{key}" is not a count of tokens'
        raise UserError(error)
    return value
