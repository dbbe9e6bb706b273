"""One peer: how it encodes, what it wraps, how its answer becomes ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def no_bytes() -> int | None:
    """Answer for a peer that does not say how many bytes it holds."""
    return None


@dataclass(frozen=True)
class Peer:
    """Encode with one library.

    ``encode`` is what is timed. ``to_list`` turns its answer into ids, untimed. ``raw``
    gives the ids of the library that it wraps, without its cache, or of the library
    itself. ``held_bytes`` is what its own counters say, if it has any.
    ``has_family_ids`` tells that its vocabulary is that of the measured family.
    """

    name: str
    version: str
    encode: Callable[[str], Any]
    raw: Callable[[str], list[int]]
    to_list: Callable[[Any], list[int]]
    held_bytes: Callable[[], int | None] = field(default=no_bytes)
    has_family_ids: bool = True


class MissingPeerError(Exception):
    """Say why a peer is left out."""
