# ruff: noqa: S101 - `check` is there to assert, the rest states what is known
"""A slow, obvious model of the trie: nodes in dicts, victims tried out on copies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tokcache._trie import LONGEST_SHORT_TAIL, NODE_BYTES, Trie
from tokcache.reference_policy import (
    COUNT_MAX,
    HOT,
    RANK_MAX,
    REGRET,
    Entry,
    Sketch,
    Wheel,
)
from tokcache.reference_store import (
    BUCKET_BYTES,
    ID_BYTES,
    MIN_BUCKETS,
    Charges,
    Identity,
    Piece,
    Segment,
    segment_charge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(eq=False)
class Node(Entry):
    """A segment under one path. A root has neither segment nor parent."""

    root: int = 0
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

    def texts(self) -> tuple[str, ...]:
        """Return the texts of the path."""
        return tuple(segment.identity.text for segment in self.path())


@dataclass
class Events:
    """Count what happened to the prompts of one root."""

    insertions: int = 0
    evictions: int = 0
    oversized: int = 0
    refused: int = 0


class ReferenceTrie:
    """Own the segments and nodes of one cache, within two budgets of bytes.

    What was seen how often goes by the compiled trie's own keys, which depend on
    ``hash_seed`` and ``hash_bits`` as they do there. ``check`` recomputes what is kept
    as sums from the nodes.
    """

    def __init__(
        self,
        max_memory_bytes: int,
        max_resident_bytes: int,
        *,
        hash_seed: int | None = None,
        hash_bits: int = 64,
    ) -> None:
        if max_memory_bytes < 0 or max_resident_bytes < 0:
            raise ValueError("a budget must be >= 0")
        self.max_memory_bytes = max_memory_bytes
        self.max_resident_bytes = max_resident_bytes
        self.roots: list[Node] = []
        self.clears: list[int] = []  # how often each root was cleared
        self.events: list[Events] = []  # of each root
        self.segments: dict[Identity, Segment] = {}
        self.wheel = Wheel()
        self._keys = Trie(0, 0, hash_seed=hash_seed, hash_bits=hash_bits)
        self._forget()

    def _forget(self) -> None:
        self.used = Charges()
        self.sketch = Sketch(self.max_resident_bytes)
        self.wheel.reset()

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of all payloads."""
        return self.used.memory_bytes

    @property
    def resident_bytes(self) -> int:
        """Return the bytes that everything stored takes."""
        return self.used.resident_bytes

    def open_root(self) -> int:
        """Add a root, where walks begin, and return its number."""
        self._keys.open_root()
        self.roots.append(Node(root=len(self.roots)))
        self.clears.append(0)
        self.events.append(Events())
        return len(self.roots) - 1

    def clear(self, root: int | None = None) -> None:
        """Drop what is cached under one root, or everything, tables included.

        Plans made before and finished after insert nothing. Not counted as evictions.
        """
        for node in reversed(self._nodes(root)):
            self.wheel.remove(node)
            self._drop(node)
        for number in range(len(self.roots)) if root is None else [root]:
            self.clears[number] += 1
        if root is None:
            self._forget()

    def usage(
        self, root: int | None = None
    ) -> tuple[int, int, int, int, int, int, int, int, bool]:
        """Return what the compiled trie's method of this name does."""
        nodes = self._nodes(root)
        tails = sum(node.segment.identity.is_tail for node in nodes if node.segment)
        if root is None:
            memory, resident = self.memory_bytes, self.resident_bytes
            events = self.events
        else:
            segments = {node.segment for node in nodes if node.segment}
            memory = sum(ID_BYTES * len(segment.ids) for segment in segments)
            resident = sum(segment.charge for segment in segments)
            resident += NODE_BYTES * len(nodes)
            events = [self.events[root]]
        return (
            len(nodes) - tails,
            tails,
            memory,
            resident,
            sum(each.insertions for each in events),
            sum(each.evictions for each in events),
            sum(each.oversized for each in events),
            sum(each.refused for each in events),
            self.wheel.is_closed,
        )

    def leaves(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return the leaves, the next victim first, as (root, texts of the path)."""
        return [(leaf.root, leaf.texts()) for leaf in self._listed()]

    def residents(self) -> list[tuple[int, tuple[str, ...], int, int]]:
        """Return nodes as (root, texts of the path, sightings, rank from the hand)."""
        nodes = self._nodes()
        for node in nodes:
            self.wheel.age(node)
        return [
            (node.root, node.texts(), node.count, node.rank - self.wheel.hand)
            for node in nodes
        ]

    def policy(self) -> tuple[int, int, int, int, int, int, bytes]:
        """Return hand, epoch, its sightings, requests, the gate's sums, the sketch."""
        wheel = self.wheel
        return (
            wheel.hand,
            wheel.epoch,
            wheel.sightings,
            wheel.requests,
            wheel.hits,
            wheel.regrets,
            bytes(self.sketch),
        )

    def _listed(self) -> list[Node]:
        return [entry for entry in self.wheel.listed() if isinstance(entry, Node)]

    def check(self) -> None:
        """Assert that every sum and list is what the nodes say it is."""
        nodes = self._nodes()
        holds = Counter(node.segment for node in nodes)
        segments = self.segments.values()
        assert holds == {segment: segment.holds for segment in segments}
        assert set(self._listed()) == {node for node in nodes if not node.children}
        for leaf in self._listed():
            assert leaf in self.wheel.buckets[leaf.rank]
            assert 0 <= leaf.rank - self.wheel.hand <= RANK_MAX
        assert self.used.nodes == len(nodes)
        assert self.used.segments == len(self.segments)
        assert self.memory_bytes == sum(ID_BYTES * len(s.ids) for s in segments)
        assert self.used.segment_bytes == sum(s.charge for s in segments)
        assert self.used.sketch_bytes == Sketch.bytes_of(len(self.sketch.lines))
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
        """Note a request that matched a path."""
        self._sight(path)
        self.wheel.count_request(
            self.sketch,
            self.used.nodes,
            nearly_full=self._is_over(self.used, share=10),
        )

    def _sight(self, path: Sequence[Node]) -> None:
        """Count each node of a path; its end, if a leaf, is its bucket's newest."""
        for node in path:
            assert node.segment is not None
            was_listed = self.wheel.remove(node)
            self.wheel.sight(node)
            if was_listed:
                self.wheel.add(node)
            if node.count < HOT:
                self.wheel.hits += len(node.segment.ids)

    def _is_over(self, used: Charges, share: int | None = None) -> bool:
        """Tell whether a budget is exceeded, or all of it but one part of so many."""
        return any(
            bytes_used > budget - (budget // share if share else 0)
            for bytes_used, budget in (
                (used.memory_bytes, self.max_memory_bytes),
                (used.resident_bytes, self.max_resident_bytes),
            )
        )

    def link(
        self, root: int, pieces: list[Piece], n_matched: int, *, tails_allowed: bool
    ) -> None:
        """Make nodes for what follows a matched path, as far as it is admitted."""
        if pieces[-1].token is None and not tails_allowed:
            pieces = pieces[:-1]
        path = self.walk(root, pieces)
        self._sight(path[n_matched:])
        reached = path[-1] if path else self.roots[root]
        if self.wheel.remove(reached):  # where nothing was sighted, too
            self.wheel.add(reached)
        new = self._sight_pieces(reached, pieces[len(path) :])
        admitted = new
        if new and not self._is_admitted_tail(*new[-1]):
            admitted = new[:-1]
        n_linked = 0
        if admitted and not self._fits(pieces[: len(path) + len(admitted)]):
            self.events[root].oversized += 1
        elif admitted:
            n_linked = self._extend(reached, admitted)
        for _, entry in new[n_linked:]:  # a node has its own count until it goes
            self.sketch.raise_to(entry.key, entry.count)
        if reached.segment and not reached.children and reached not in self.wheel:
            reached.rank = max(reached.rank, self.wheel.hand)
            self.wheel.add(reached)
        self.sketch.suit(self.used.nodes)
        self._charge_sketch()
        while self._is_over(self.used) and self.wheel.buckets:
            self._evict(pinned=None)

    def _charge_sketch(self) -> None:
        size = Sketch.bytes_of(len(self.sketch.lines))
        self.used = replace(self.used, sketch_bytes=size)

    def _sight_pieces(
        self, parent: Entry, pieces: Sequence[Piece]
    ) -> list[tuple[Piece, Entry]]:
        """Count pieces that are not resident below a node, each with its new entry."""
        if pieces:
            self.sketch.start()
            self._charge_sketch()
        found = []
        key = parent.key
        for piece in pieces:
            root, before, text, is_tail = piece.identity
            anchor = -1 if before is None else before
            key = self._keys.key(root, key, anchor, text, is_tail)
            count = min(self.sketch.count(key) + 1, COUNT_MAX)
            found.append((piece, Entry(key, count)))
            self.wheel.sightings += 1
            if count >= REGRET:
                self.wheel.regrets += len(piece.ids or ())
        return found

    def _is_admitted_tail(self, piece: Piece, entry: Entry) -> bool:
        """Tell whether a piece is no long tail, or one seen before or resident."""
        return (
            piece.token is not None
            or len(piece.identity.text) <= LONGEST_SHORT_TAIL
            or entry.count > 1
            or piece.identity in self.segments
        )

    def _fits(self, pieces: Sequence[Piece]) -> bool:
        """Weigh a whole path, shared segments once, as if nothing else were stored."""
        distinct = {piece.identity: len(piece.ids or ()) for piece in pieces}
        memory = ID_BYTES * sum(distinct.values())
        resident = NODE_BYTES * len(pieces) + self.used.sketch_bytes
        resident += sum(segment_charge(key.text, n) for key, n in distinct.items())
        for entries in (len(distinct), len(pieces)):
            resident += BUCKET_BYTES * max(MIN_BUCKETS, 4 * entries)
        return memory <= self.max_memory_bytes and resident <= self.max_resident_bytes

    def _extend(self, reached: Node, new: Sequence[tuple[Piece, Entry]]) -> int:
        """Add pieces below a node until one is refused; return how many were not."""
        made: dict[Identity, Segment] = {}
        segments = []
        for piece, _ in new:  # all are held before anything is evicted
            segment = self.segments.get(piece.identity) or made.get(piece.identity)
            if segment is None:
                assert piece.ids is not None
                segment = made[piece.identity] = Segment(piece.identity, piece.ids)
            segment.holds += 1
            segments.append(segment)
        parent = reached
        goes_on = reached in self.wheel
        for i, (piece, entry) in enumerate(new):
            if not self._admit(parent, segments[i], entry.count, pinned=reached):
                self.events[reached.root].refused += 1
                for segment in segments[i:]:
                    self._release(segment)
                return i
            rank = self.wheel.rank_of(entry.count)
            if goes_on and not self.wheel.is_closed:
                rank = max(rank, parent.rank)
            child = Node(
                key=entry.key,
                count=entry.count,
                epoch=self.wheel.epoch,
                rank=rank,
                root=reached.root,
                segment=segments[i],
                parent=parent,
            )
            self.wheel.remove(parent)
            self.wheel.add(child)
            parent.children[piece.identity] = child
            parent = child
            self.events[reached.root].insertions += piece.token is not None
        return len(new)

    def _admit(
        self, parent: Node, segment: Segment, count: int, *, pinned: Node
    ) -> bool:
        """Charge a node and evict what must go for it, unless it is refused."""
        used = self.used.with_nodes(1)
        if segment.identity not in self.segments:
            used = used.with_segment(segment, 1)
        n_victims = self._plan(used, parent, count, pinned=pinned)
        if n_victims is None:
            return False
        self.used = used
        self.segments[segment.identity] = segment
        for _ in range(n_victims):
            self._evict(pinned=pinned)
        return True

    def _plan(
        self, used: Charges, spared: Node, count: int, *, pinned: Node
    ) -> int | None:
        """Return how many must go until the budgets hold; None if they may not.

        They may not where the new node's parent comes up itself, and, the gate being
        closed, where a leaf's rank is not below that of so many sightings.
        """
        if self._is_over(used):
            self.wheel.advance()
        limit = self.wheel.rank_of(count)
        buckets = {rank: [*bucket] for rank, bucket in self.wheel.buckets.items()}
        holds: Counter[Segment | None] = Counter()
        gone: set[Entry] = set()
        while self._is_over(used):
            rank = min((rank for rank in buckets if buckets[rank]), default=None)
            if rank is None or (self.wheel.is_closed and rank >= limit):
                return None
            victim = buckets[rank].pop(0)
            if victim is spared:
                return None
            assert isinstance(victim, Node)
            assert victim.segment is not None
            assert victim.parent is not None
            gone.add(victim)
            holds[victim.segment] += 1
            used = used.with_nodes(-1)
            if holds[victim.segment] == victim.segment.holds:
                used = used.with_segment(victim.segment, -1)
            parent = victim.parent
            if (
                parent.segment
                and parent is not pinned
                and gone.issuperset(parent.children.values())
            ):
                buckets.setdefault(max(parent.rank, rank), []).insert(0, parent)
        return len(gone)

    def _evict(self, *, pinned: Node | None) -> None:
        """Drop the next victim. A parent that is a leaf now is next in its bucket."""
        self.wheel.advance()
        victim = self._listed()[0]
        parent = victim.parent
        self.wheel.age(victim)
        self.sketch.raise_to(victim.key, victim.count)
        self.wheel.remove(victim)
        self._drop(victim)
        self.events[victim.root].evictions += 1
        if parent and parent.segment and not parent.children and parent is not pinned:
            parent.rank = max(parent.rank, self.wheel.hand)
            self.wheel.add(parent, oldest=True)

    def _drop(self, node: Node) -> None:
        """Take a childless node away, and its segment if no other holds it."""
        segment, parent = node.segment, node.parent
        assert segment is not None
        assert parent is not None
        assert not node.children
        del parent.children[segment.identity]
        self.used = self.used.with_nodes(-1)
        self._release(segment)

    def _release(self, segment: Segment) -> None:
        """Give one hold back; the last one drops the segment."""
        segment.holds -= 1
        if not segment.holds and self.segments.get(segment.identity) is segment:
            del self.segments[segment.identity]
            self.used = self.used.with_segment(segment, -1)
