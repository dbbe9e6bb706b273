# ruff: noqa: S101 - `check` is there to assert, the rest states what is known
"""A slow, obvious model of the trie: nodes in dicts, leaves in one ordered list."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tokcache._trie import (
    LONGEST_SHORT_TAIL,
    NODE_BYTES,
    SEGMENT_HEADER,
    SIGHTING_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGHTING_MIN_BUDGET = 256 * 1024  # below it the table of sightings would be most of it
MIN_BUCKETS = 64
BUCKET_BYTES = 8
ID_BYTES = 4


class Identity(NamedTuple):
    """What makes two segments the same. Nothing is shared across roots or anchors."""

    root: int
    anchor: int | None  # index of the token just before; None at the start of a text
    text: str
    is_tail: bool


class Piece(NamedTuple):
    """A segment or the tail of one text, with its ids where they are known."""

    identity: Identity
    token: int | None  # index of the boundary token at its end; None: a tail
    ids: tuple[int, ...] | None


@dataclass(eq=False)
class Segment:
    """Interned text with its ids, shared by all nodes that hold it."""

    identity: Identity
    ids: tuple[int, ...]
    holds: int = 0


@dataclass(eq=False)
class Node:
    """A segment under one path. A root has neither segment nor parent."""

    root: int
    segment: Segment | None = None
    parent: Node | None = None
    children: dict[Identity, Node] = field(default_factory=dict)

    def path(self) -> list[Segment]:
        """Return the segments from the root to this node."""
        found = []
        node: Node | None = self
        while node is not None and node.segment is not None:
            found.append(node.segment)
            node = node.parent
        return found[::-1]


@dataclass
class Table:
    """Count the buckets of a hash table: doubled when full, halved at a quarter."""

    entries: int = 0
    buckets: int = 0

    def change(self, by: int) -> None:
        """Note that there are so many entries more, or fewer."""
        self.entries += by
        if by > 0:
            self.buckets = max(self.buckets, MIN_BUCKETS)
        while self.entries > self.buckets:
            self.buckets *= 2
        while self.buckets > MIN_BUCKETS and 4 * self.entries < self.buckets:
            self.buckets //= 2


def charge(size: int) -> int:
    """Return what a block of ``size`` bytes takes from malloc."""
    return max(32, (size + 8 + 15) // 16 * 16)


def segment_charge(text: str, n_ids: int) -> int:
    """Return what a segment takes: header, ids, and its text as narrow as it fits."""
    widest = max(map(ord, text), default=0)
    kind = 1 if widest < 1 << 8 else 2 if widest < 1 << 16 else 4
    return charge(SEGMENT_HEADER + ID_BYTES * n_ids + kind * len(text))


class ReferenceTrie:
    """Own the segments and nodes of one cache, within two budgets of bytes.

    The leaves of all roots are in one list, least recently used first, and the first
    goes first. ``check`` recomputes from the nodes what is otherwise kept as sums.
    """

    def __init__(self, max_memory_bytes: int, max_resident_bytes: int) -> None:
        if max_memory_bytes < 0 or max_resident_bytes < 0:
            raise ValueError("a budget must be >= 0")
        self.max_memory_bytes = max_memory_bytes
        self.max_resident_bytes = max_resident_bytes
        self.roots: list[Node] = []
        self.clears: list[int] = []  # how often each root was cleared
        self.segments: dict[Identity, Segment] = {}
        self.lru: OrderedDict[Node, None] = OrderedDict()
        self.sightings: set[Identity] | None = None
        self.insertions = self.evictions = self.oversized = 0
        self._forget_sizes()

    def _forget_sizes(self) -> None:
        self._segment_table = Table()
        self._node_table = Table()
        self._segment_bytes = 0
        self.memory_bytes = 0
        self.sightings = None

    @property
    def resident_bytes(self) -> int:
        """Return the bytes that everything stored takes."""
        return (
            NODE_BYTES * self._node_table.entries
            + self._segment_bytes
            + BUCKET_BYTES * (self._segment_table.buckets + self._node_table.buckets)
            + (SIGHTING_BYTES if self.sightings is not None else 0)
        )

    def open_root(self) -> int:
        """Add a root, where walks begin, and return its number."""
        self.roots.append(Node(len(self.roots)))
        self.clears.append(0)
        return len(self.roots) - 1

    def clear(self, root: int | None = None) -> None:
        """Drop what is cached under one root, or everything, tables included.

        Plans made before and finished after insert nothing. Not counted as evictions.
        """
        for node in reversed(self._nodes(root)):
            self.lru.pop(node, None)
            self._drop(node)
        for number in range(len(self.roots)) if root is None else [root]:
            self.clears[number] += 1
        if root is None:
            self._forget_sizes()

    def usage(
        self, root: int | None = None
    ) -> tuple[int, int, int, int, int, int, int]:
        """Return entries, tails, both kinds of bytes, insertions, evictions, oversized.

        Entries and tails are those of one root if it is given.
        """
        nodes = self._nodes(root)
        tails = sum(node.segment.identity.is_tail for node in nodes if node.segment)
        return (
            len(nodes) - tails,
            tails,
            self.memory_bytes,
            self.resident_bytes,
            self.insertions,
            self.evictions,
            self.oversized,
        )

    def leaves(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return the leaves, the next victim first, as (root, texts of the path)."""
        return [
            (leaf.root, tuple(segment.identity.text for segment in leaf.path()))
            for leaf in self.lru
        ]

    def check(self) -> None:
        """Assert that every sum and list is what the nodes say it is."""
        nodes = self._nodes()
        holds = Counter(node.segment for node in nodes)
        segments = self.segments.values()
        assert holds == {segment: segment.holds for segment in segments}
        assert set(self.lru) == {node for node in nodes if not node.children}
        assert self._node_table.entries == len(nodes)
        assert self._segment_table.entries == len(self.segments)
        assert self.memory_bytes == sum(ID_BYTES * len(s.ids) for s in segments)
        assert self._segment_bytes == sum(
            segment_charge(s.identity.text, len(s.ids)) for s in segments
        )
        assert self.memory_bytes <= self.max_memory_bytes
        assert self.resident_bytes <= self.max_resident_bytes

    def _nodes(self, root: int | None = None) -> list[Node]:
        """Return all nodes of one root or of all, parents before their children."""
        if root is not None and not 0 <= root < len(self.roots):
            msg = f"no root has the number {root}"
            raise ValueError(msg)
        found = []
        level = self.roots if root is None else [self.roots[root]]
        while level:
            level = [child for node in level for child in node.children.values()]
            found += level
        return found

    def walk(self, root: int, pieces: Sequence[Piece]) -> list[Node]:
        """Return the nodes along the pieces, as far as they exist."""
        node = self.roots[root]
        path = []
        for piece in pieces:
            child = node.children.get(piece.identity)
            if child is None:
                break
            node = child
            path.append(node)
        return path

    def touch(self, path: Sequence[Node]) -> None:
        """Move the end of a path, if it is a leaf, to the young end of the list."""
        if path and path[-1] in self.lru:
            self.lru.move_to_end(path[-1])

    def link(self, root: int, pieces: list[Piece], *, tails_allowed: bool) -> None:
        """Make nodes for all pieces of one text, where admission and budgets allow."""
        if pieces[-1].token is None and not (
            tails_allowed and self._admits_tail(pieces[-1].identity)
        ):
            pieces = pieces[:-1]
        path = self.walk(root, pieces)
        if len(path) == len(pieces):
            pass
        elif self._fits(pieces):
            self._extend(root, path, pieces[len(path) :])
        else:
            self.oversized += 1
        self.touch(path)
        self._make_room()  # the table of sightings may be new

    def _admits_tail(self, tail: Identity) -> bool:
        """Tell whether a tail is short, resident or seen before; remember it if not."""
        if len(tail.text) <= LONGEST_SHORT_TAIL or tail in self.segments:
            return True
        if self.sightings is None:
            if self.max_resident_bytes < SIGHTING_MIN_BUDGET:
                return False
            self.sightings = set()
        was_seen = tail in self.sightings
        self.sightings.add(tail)
        return was_seen

    def _fits(self, pieces: Sequence[Piece]) -> bool:
        """Weigh a whole path, shared segments once, as if nothing else were stored."""
        distinct = {piece.identity: len(piece.ids or ()) for piece in pieces}
        memory = ID_BYTES * sum(distinct.values())
        resident = NODE_BYTES * len(pieces)
        resident += sum(segment_charge(key.text, n) for key, n in distinct.items())
        for entries in (len(distinct), len(pieces)):
            resident += BUCKET_BYTES * max(MIN_BUCKETS, 4 * entries)
        if self.sightings is not None:
            resident += SIGHTING_BYTES
        return memory <= self.max_memory_bytes and resident <= self.max_resident_bytes

    def _extend(self, root: int, path: list[Node], new: Sequence[Piece]) -> None:
        """Add the new pieces below a path, and make room for them first."""
        node = path[-1] if path else self.roots[root]
        self.lru.pop(node, None)  # pinned
        segments = [self._hold(piece) for piece in new]
        self._node_table.change(len(new))
        self._make_room(pinned=node)
        for piece, segment in zip(new, segments, strict=True):
            child = Node(root, segment, node)
            node.children[piece.identity] = child
            node = child
            path.append(node)
            self.insertions += piece.token is not None
        self.lru[node] = None

    def _hold(self, piece: Piece) -> Segment:
        """Return the segment of a piece, made if it is new, held once more."""
        segment = self.segments.get(piece.identity)
        if segment is None:
            assert piece.ids is not None
            segment = self.segments[piece.identity] = Segment(piece.identity, piece.ids)
            self._segment_table.change(1)
            self._segment_bytes += segment_charge(piece.identity.text, len(piece.ids))
            self.memory_bytes += ID_BYTES * len(piece.ids)
        segment.holds += 1
        return segment

    def _make_room(self, pinned: Node | None = None) -> None:
        """Evict from the old end until both budgets hold, but never the pinned node."""
        while self.lru and (
            self.memory_bytes > self.max_memory_bytes
            or self.resident_bytes > self.max_resident_bytes
        ):
            victim, _ = self.lru.popitem(last=False)
            parent = victim.parent
            self._drop(victim)
            self.evictions += 1
            if parent and parent.segment and not parent.children and parent != pinned:
                self.lru[parent] = None
                self.lru.move_to_end(parent, last=False)

    def _drop(self, node: Node) -> None:
        """Take a childless node away, and its segment if no other holds it."""
        segment, parent = node.segment, node.parent
        assert segment is not None
        assert parent is not None
        assert not node.children
        del parent.children[segment.identity]
        self._node_table.change(-1)
        segment.holds -= 1
        if not segment.holds:
            del self.segments[segment.identity]
            self._segment_table.change(-1)
            self._segment_bytes -= segment_charge(
                segment.identity.text, len(segment.ids)
            )
            self.memory_bytes -= ID_BYTES * len(segment.ids)
