"""What is stored, and what is charged for it: the plain model's segments and sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from tokcache._trie import NODE_BYTES, SEGMENT_HEADER

MIN_BUCKETS = 64
BUCKET_BYTES = 8
ID_BYTES = 4


class Identity(NamedTuple):
    """Say what makes two segments the same; roots and anchors share nothing."""

    root: int
    anchor: int | None  # index of the token just before; None at the start of a text
    text: str
    is_tail: bool


class Piece(NamedTuple):
    """Hold a segment or the tail of one text, with its ids where they are known."""

    identity: Identity
    token: int | None  # index of the boundary token at its end; None: a tail
    ids: tuple[int, ...] | None


@dataclass(eq=False)
class Segment:
    """Interned text with its ids, shared by all nodes that hold it."""

    identity: Identity
    ids: tuple[int, ...]
    holds: int = 0

    @property
    def charge(self) -> int:
        """Return the bytes that it takes."""
        return segment_charge(self.identity.text, len(self.ids))


def buckets_for(entries: int, buckets: int) -> int:
    """Return the buckets of a hash table: doubled when full, halved at a quarter."""
    buckets = max(buckets, MIN_BUCKETS)
    while entries > buckets:
        buckets *= 2
    while buckets > MIN_BUCKETS and 4 * entries < buckets:
        buckets //= 2
    return buckets


@dataclass(frozen=True)
class Charges:
    """Sum up what is charged against the budgets. Immutable: a plan can be dropped."""

    segments: int = 0
    nodes: int = 0
    segment_buckets: int = 0
    node_buckets: int = 0
    memory_bytes: int = 0
    segment_bytes: int = 0
    sketch_bytes: int = 0

    @property
    def resident_bytes(self) -> int:
        """Return the bytes that everything stored takes."""
        return (
            NODE_BYTES * self.nodes
            + self.segment_bytes
            + BUCKET_BYTES * (self.segment_buckets + self.node_buckets)
            + self.sketch_bytes
        )

    def with_nodes(self, more: int) -> Charges:
        """Charge so many nodes more, or fewer."""
        nodes = self.nodes + more
        buckets = buckets_for(nodes, self.node_buckets)
        return replace(self, nodes=nodes, node_buckets=buckets)

    def with_segment(self, segment: Segment, sign: int) -> Charges:
        """Charge one segment more (``sign`` 1), or fewer (-1)."""
        segments = self.segments + sign
        return replace(
            self,
            segments=segments,
            segment_buckets=buckets_for(segments, self.segment_buckets),
            memory_bytes=self.memory_bytes + sign * ID_BYTES * len(segment.ids),
            segment_bytes=self.segment_bytes + sign * segment.charge,
        )


def charge(size: int) -> int:
    """Return what a block of ``size`` bytes takes from malloc."""
    return max(32, (size + 8 + 15) // 16 * 16)


def segment_charge(text: str, n_ids: int) -> int:
    """Return what a segment takes: header, ids, and its text as narrow as it fits."""
    widest = max(map(ord, text), default=0)
    kind = 1 if widest < 1 << 8 else 2 if widest < 1 << 16 else 4
    return charge(SEGMENT_HEADER + ID_BYTES * n_ids + kind * len(text))
