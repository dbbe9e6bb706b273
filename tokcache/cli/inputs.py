"""Read conversations and options that users wrote."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tokcache.cli.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokcache.chat import Message

__all__ = [
    "Conversation",
    "file_bytes",
    "json_objects",
    "open_input",
    "parse_line",
    "parse_size",
    "read_conversations",
    "unreadable",
]

GZIP_MAGIC = b"\x1f\x8b"

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)\s*", re.IGNORECASE)
_MAX_BYTES = 2**56  # what processors can address
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Conversation:
    """One line of input: messages, or a text that is the prompt."""

    where: str
    messages: Sequence[Message] | None
    tools: Sequence[Any] | None
    text: str | None


def read_conversations(
    paths: Sequence[str], limit: int | None = None
) -> list[Conversation]:
    """Read the first ``limit`` conversations of JSONL files, gzipped or not.

    Blank lines are skipped. Raises :class:`UserError` beginning with ``file:line``
    where a line is not what it should be.
    """
    conversations: list[Conversation] = []
    for path in paths:
        for where, entry in json_objects(path, '"messages" or "text"'):
            if limit is not None and len(conversations) >= limit:
                return conversations
            conversations.append(_parse(entry, where))
    if not conversations:
        error = f"no conversations in {', '.join(paths)}"
        raise UserError(error)
    return conversations


def json_objects(path: str, keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSONL file, gzipped or not, each with its ``file:line``.

    Blank lines are skipped. ``keys`` says in an error what an object should have.
    """
    for number, line in _lines(path):
        where = f"{path}:{number}"
        yield where, _decode(line, where, keys)


def parse_size(size: str) -> int:
    """Return the bytes that a size such as ``64MiB``, ``1.5 GB`` or ``4096`` names.

    ``KiB`` and plain ``K`` are 1,024 bytes, ``kB`` is 1,000; so on for M, G and T.
    """
    match = _SIZE.fullmatch(size)
    if match is None or (match[3] and not match[2]):
        error = f"bad size {size!r}: write it like 64MiB, 1.5GB or 4096"
        raise UserError(error)
    number, prefix, binary, byte = match.groups()
    base = 1000 if byte and not binary else 1024
    n_bytes = int(Decimal(number) * base ** _POWERS[prefix.lower()])
    if n_bytes > _MAX_BYTES:
        error = f"bad size {size!r}: no machine has that much memory"
        raise UserError(error)
    return n_bytes


def file_bytes(path: Path) -> bytes:
    """Return a file's content, unpacked if it is gzipped."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == GZIP_MAGIC else content
    except (EOFError, zlib.error, OSError) as problem:
        raise unreadable(path, problem) from problem


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with open_input(Path(path)) as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line.rstrip(b"\r\n")
    except (EOFError, zlib.error, OSError) as problem:
        where = f"{path}:{number + 1}" if number else path
        raise unreadable(where, problem) from problem


def open_input(path: Path) -> BinaryIO:
    """Open a file for reading bytes, unpacked if it is gzipped."""
    with path.open("rb") as stream:
        zipped = stream.read(2) == GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path)) if zipped else path.open("rb")


def unreadable(where: object, problem: Exception) -> UserError:
    """Return what to tell of a file that could not be read or written."""
    reason = getattr(problem, "strerror", None) or str(problem) or "cannot be read"
    return UserError(f"{where}: {reason}")


def parse_line(
    line: bytes, where: str, *, text_key: str = "text", messages_key: str = "messages"
) -> Conversation:
    """Return what a line of JSON holds under the given keys.

    Raises :class:`UserError` beginning with ``where``.
    """
    keys = f'"{messages_key}" or "{text_key}"'
    return _parse(
        _decode(line, where, keys),
        where,
        text_key=text_key,
        messages_key=messages_key,
    )


def _decode(line: bytes, where: str, keys: str) -> dict[str, Any]:
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        error = f"{where}: not UTF-8 (byte {problem.start + 1} of the line)"
        raise UserError(error) from problem
    except json.JSONDecodeError as problem:
        error = f"{where}: not JSON: {problem.msg} (column {problem.colno})"
        raise UserError(error) from problem
    except ValueError as problem:  # a number with thousands of digits
        error = f"{where}: not JSON that can be read: {problem}"
        raise UserError(error) from problem
    except RecursionError as problem:
        error = f"{where}: not JSON that can be read: nested too deeply"
        raise UserError(error) from problem
    if not isinstance(entry, dict):
        error = f"{where}: not a JSON object with {keys}"
        raise UserError(error)
    return entry


def _parse(
    entry: dict[str, Any],
    where: str,
    *,
    text_key: str = "text",
    messages_key: str = "messages",
) -> Conversation:
    tools = entry.get("tools")
    if tools is not None and not isinstance(tools, list):
        error = f'{where}: "tools" is not a list'
        raise UserError(error)
    if messages_key not in entry and isinstance(entry.get(text_key), str):
        return Conversation(where, None, None, entry[text_key])
    if entry.get(messages_key) is None:
        error = f'{where}: no "{messages_key}" (a list) and no "{text_key}" (a string)'
        raise UserError(error)
    messages = _messages(entry[messages_key], where, messages_key)
    return Conversation(where, messages, tools, None)


def _messages(messages: object, where: str, key: str) -> Sequence[Message]:
    if not isinstance(messages, list):
        error = f'{where}: "{key}" is not a list'
        raise UserError(error)
    if not messages:
        error = f"{where}: no messages: the list is empty"
        raise UserError(error)
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            error = f'{where}: message {index + 1} is not an object with a "role"'
            raise UserError(error)
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(isinstance(c, dict) for c in calls):
            error = (
                f'{where}: "tool_calls" of message {index + 1} is not a list of objects'
            )
            raise UserError(error)
    return messages
