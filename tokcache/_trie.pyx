# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""The trie of cached prefixes: roots, walk, link, eviction; the class that owns the memory.

A walk compares the text with the child used last and goes on; only where that fails and
there are other children does it look for the segment's end and hash it. Its cost is
linear in the text, whatever else is cached.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from tokcache._check cimport check_invariants, stored_text
from tokcache._link cimport (
    clear_all,
    clear_root as clear_one_root,
    is_admitted,
    link_pinned,
    piece_key,
    pin,
    remember_pieces,
    settle,
    sight_pieces,
    unpin,
)
from tokcache._policy cimport (
    BUCKETS,
    TOKCACHE_HAS_POLICY,
    node_age,
    node_sight,
    path_sighted,
    request_count,
    wheel,
    wheel_init,
)
from tokcache._scan cimport Scanner, scan_cursor, scan_match
from tokcache._sketch cimport LINE_BYTES
from tokcache._store cimport (
    charge,
    identity_state,
    node,
    node_find,
    root_info,
    segment,
    segment_find,
    segment_ids,
    segment_text,
)
from tokcache._text cimport text_equal, text_hash, text_narrowest, text_of, text_view

import os


# Before CPython 3.12 whatever makes an object may run the collector, and with it a
# finalizer that evicts what is being walked: what makes many is done without it.
cdef extern from *:
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept


NODE_BYTES = charge(sizeof(node))
SEGMENT_HEADER = sizeof(segment)
LONGEST_SHORT_TAIL = TAIL_CHARS


cdef inline bint _matches(
    const node* child, const text_view* view, Py_ssize_t at
) noexcept nogil:
    """Tell whether the text goes on with this child."""
    cdef segment* s = child.segment
    cdef Py_ssize_t left = view.length - at
    if s.length > left or (s.token < 0 and s.length != left):
        return False
    return text_equal(view, at, segment_text(s), s.kind, s.length)


cdef void copy_path(const node* reached, uint32_t* out) noexcept nogil:
    """Copy the payloads of a path, which fill ``reached.n_ids`` places."""
    out += reached.n_ids
    while reached.segment != NULL:
        out -= reached.segment.n_ids
        memcpy(out, segment_ids(reached.segment), <size_t> reached.segment.n_ids * 4)
        reached = reached.parent


cdef tuple path_texts(const node* n):
    """Return the texts of a path."""
    cdef list texts = []
    while n.segment != NULL:
        texts.append(stored_text(n.segment))
        n = n.parent
    return tuple(reversed(texts))


@cython.final
cdef class Trie:
    """Own the memory of one cache: its segments, nodes, tables and budgets, in bytes.

    ``max_memory_bytes`` bounds the payloads (four bytes an id, shared ones once),
    ``max_resident_bytes`` everything that storing prompts takes. Both hold whenever a
    call returns. ``hash_seed`` fixes the otherwise random keys of the hash and
    ``hash_bits`` shortens it: with 0, everything collides. Both are for tests.

    Thread safety: every public method locks the object on free-threaded builds, and
    keeps the GIL on others.
    """

    def __cinit__(
        self, max_memory_bytes, max_resident_bytes, *, hash_seed=None, hash_bits=64
    ):
        cdef int i
        wheel_init(&self.t.wheel)
        self.t.store.max_memory_bytes = max_memory_bytes
        self.t.store.max_resident_bytes = max_resident_bytes
        if max_memory_bytes < 0 or max_resident_bytes < 0:
            raise ValueError("a budget must be >= 0")
        if not 0 <= hash_bits <= 64:
            raise ValueError(f"hash_bits must be from 0 to 64, got {hash_bits}")
        self.t.store.hash_mask = (1 << hash_bits) - 1
        if hash_seed is None:
            hash_seed = int.from_bytes(os.urandom(32), "little")
        for i in range(4):
            # Odd, so that no key is zero and switches a multiplication off.
            self.t.store.keys[i] = (
                (hash_seed >> (64 * i)) * 0x9E3779B97F4A7C15 + 2 * i + 1
            ) & 0xFFFFFFFFFFFFFFFF | 1

    def __dealloc__(self):
        cdef uint32_t i
        if self.t.wheel.planned.newer == NULL:
            return  # the constructor was not even entered
        clear_all(&self.t)
        for i in range(self.t.n_roots):
            free(self.t.roots[i])
        free(self.t.roots)

    def open_root(self):
        """Add a root, where walks begin, and return its number. It is never evicted."""
        cdef root_info** grown
        cdef root_info* root
        cdef uint32_t number
        with cython.critical_section(self):
            if self.t.n_closed:
                number = self.t.last_closed
                self.t.last_closed = self.t.roots[number].next_closed
                self.t.n_closed -= 1
                self.t.roots[number].is_closed = False
                return number
            grown = <root_info**> realloc(
                self.t.roots, (self.t.n_roots + 1) * sizeof(root_info*)
            )
            if grown == NULL:
                raise MemoryError
            self.t.roots = grown
            root = <root_info*> calloc(1, sizeof(root_info))
            if root == NULL:
                raise MemoryError
            grown[self.t.n_roots] = root
            self.t.n_roots += 1
            return self.t.n_roots - 1

    def clear(self, root=None):
        """Drop what is cached under one root, or everything.

        What was begun before and ends after is not inserted.
        """
        cdef uint32_t number
        with cython.critical_section(self):
            if root is None:
                clear_all(&self.t)
            else:
                number = _checked_root(&self.t, root)
                clear_one_root(&self.t, number)

    def close_root(self, root):
        """Drop what a root holds and free its number; nobody may walk from it any more."""
        with cython.critical_section(self):
            self.clear_root(_checked_root(&self.t, root), True)

    cdef void clear_root(self, uint32_t root, bint close) noexcept:
        """Drop what a root holds; a closed one may be given out again. The lock is held."""
        cdef root_info* info = self.t.roots[root]
        clear_one_root(&self.t, root)
        if close and not info.is_closed:
            info.is_closed = True
            info.next_closed = self.t.last_closed
            self.t.last_closed = root
            self.t.n_closed += 1
            info.insertions = info.evictions = info.oversized = info.refused = 0

    def usage(self, root=None):
        """Return what one root holds and what happened to its prompts, or of all together.

        Entries, tails, memory and resident bytes, insertions, evictions, prompts that alone
        are over a budget, prompts of which not everything was admitted, and whether the
        gate is closed. The resident bytes of a root are those of its nodes and segments;
        tables and sketch, and what closed roots counted, are in the sums only. O(roots).
        """
        cdef int64_t entries = 0
        cdef int64_t tails = 0
        cdef uint32_t i
        cdef root_info* info
        with cython.critical_section(self):
            if root is not None:
                info = self.t.roots[<uint32_t> _checked_root(&self.t, root)]
                return (
                    info.n_segments,
                    info.n_tails,
                    info.memory_bytes,
                    info.resident_bytes,
                    info.insertions,
                    info.evictions,
                    info.oversized,
                    info.refused,
                    bool(self.t.wheel.is_closed),
                )
            for i in range(self.t.n_roots):
                entries += self.t.roots[i].n_segments
                tails += self.t.roots[i].n_tails
            return (
                entries,
                tails,
                self.t.store.used.memory_bytes,
                self.t.store.used.resident_bytes,
                self.t.insertions,
                self.t.evictions,
                self.t.oversized,
                self.t.refused,
                bool(self.t.wheel.is_closed),
            )

    def leaves(self):
        """Return the leaves, the next victim first, as (root, texts of the path)."""
        cdef node* ends
        cdef node* n
        cdef int i
        cdef list found = []
        cdef bint collects = PyGC_Disable()
        try:
            with cython.critical_section(self):
                for i in range(BUCKETS):
                    ends = &self.t.wheel.buckets[(self.t.wheel.hand + i) % BUCKETS]
                    n = ends.newer
                    while n != ends:
                        found.append((n.segment.root, path_texts(n)))
                        n = n.newer
        finally:
            if collects:
                PyGC_Enable()
        return found

    def residents(self):
        """Return all nodes as (root, texts of the path, sightings, rank from the hand)."""
        cdef node* n
        cdef uint64_t b
        cdef list found = []
        cdef bint collects = PyGC_Disable()
        try:
            with cython.critical_section(self):
                for b in range(self.t.store.node_buckets):
                    n = self.t.store.nodes[b]
                    while n != NULL:
                        node_age(&self.t.wheel, n)
                        found.append((
                            n.segment.root,
                            path_texts(n),
                            n.count,
                            <int32_t> (n.rank - self.t.wheel.hand),
                        ))
                        n = n.next
        finally:
            if collects:
                PyGC_Enable()
        return found

    def policy(self):
        """Return hand, epoch, its sightings, requests, both sums of the gate, the sketch."""
        cdef wheel* w = &self.t.wheel
        with cython.critical_section(self):
            return (
                w.hand,
                w.epoch,
                w.sightings,
                w.requests,
                w.hits,
                w.regrets,
                (<const char*> self.t.counts.lines)[: self.t.counts.n_lines * LINE_BYTES],
            )

    def key(self, root, parent, anchor, str text not None, bint tail):
        """Return the key by which a piece below a path with the key ``parent`` is counted.

        The key of a root is 0, the anchor at the start of a text -1.
        """
        cdef text_view view = text_of(text)
        cdef piece p
        p.start = 0
        p.end = view.length
        p.anchor = anchor
        p.token = NO_TOKEN if tail else 0
        p.kind = text_narrowest(&view, 0, view.length)
        p.hash = self.hash_piece(root, &view, &p)
        return piece_key(&self.t, parent, &p)

    def check(self):
        """Assert every invariant. Walks everything: for tests and debug builds."""
        cdef bint collects = PyGC_Disable()
        try:
            with cython.critical_section(self):
                check_invariants(&self.t)
        finally:
            if collects:
                PyGC_Enable()

    cdef uint64_t hash_piece(
        self, uint32_t root, const text_view* view, const piece* p
    ) noexcept nogil:
        return self.t.store.hash_mask & text_hash(
            view, p.start, p.end, p.kind,
            identity_state(root, p.anchor, p.token < 0), self.t.store.keys,
        )

    cdef segment* find(
        self, uint32_t root, const text_view* view, const piece* p
    ) noexcept:
        return segment_find(
            &self.t.store, p.hash, root, p.anchor, p.token < 0, view, p.start, p.end
        )

    cdef int walk(
        self, uint32_t root, Scanner scanner, const text_view* view, walk* w,
        bint is_request,
    ) except -1:
        """Follow the text from the root as far as it is cached. The lock is held.

        The nodes of a request are counted on the way, while they are at hand.
        """
        cdef scan_cursor cursor
        cdef scan_match match
        cdef piece p
        cdef segment* found
        cdef node* at = &self.t.roots[root].top
        cdef node* child
        cdef Py_ssize_t position = 0
        cdef int32_t anchor = NO_TOKEN
        cdef bint is_scanning = False
        cdef bint is_sighted = is_request and TOKCACHE_HAS_POLICY
        cdef uint64_t sightings = 0
        cdef int64_t hits = 0
        while position < view.length:
            child = at.last_child
            if child == NULL or not _matches(child, view, position):
                if at.n_children <= <uint32_t> (child != NULL):
                    break
                if not is_scanning:
                    is_scanning = True
                    scanner.begin(&cursor, view, position)
                cursor.at = position
                p.start = position
                p.anchor = anchor
                if scanner.next_boundary(&cursor, &match):
                    p.end = match.end
                    p.token = match.token
                else:
                    p.end = view.length
                    p.token = NO_TOKEN
                p.kind = text_narrowest(view, p.start, p.end)
                p.hash = self.hash_piece(root, view, &p)
                found = self.find(root, view, &p)
                child = node_find(&self.t.store, at, found) if found != NULL else NULL
                if child == NULL:
                    break
                at.last_child = child
            at = child
            anchor = at.segment.token
            position += at.segment.length
            if is_sighted:
                hits += node_sight(&self.t.wheel, at)
                sightings += 1
        w.reached = at
        w.position = position
        w.anchor = anchor
        w.is_complete = position == view.length
        if is_request:
            path_sighted(&self.t.wheel, at, sightings, hits)
            request_count(&self.t.wheel, &self.t.counts, &self.t.store)
        return 0

    cdef link_status link(
        self, uint32_t root, walk* w, const text_view* view, piece* pieces, Py_ssize_t n,
        const uint32_t* ids, bint tails_allowed,
    ) noexcept:
        """Link the pieces that follow where a walk ended. The lock is held.

        ``w.reached`` must be alive. The last piece may be a tail; whether it is linked is
        decided here.
        """
        cdef node* reached = w.reached
        cdef node* child
        cdef segment* found
        cdef link_status status = LINKED
        cdef Py_ssize_t n_linked = 0
        cdef Py_ssize_t n_admitted
        cdef uint64_t sightings = 0
        cdef int64_t hits = 0
        if n and pieces[n - 1].token < 0 and not tails_allowed:
            n -= 1
        # Another call may have linked the same pieces meanwhile.
        while n:
            found = self.find(root, view, pieces)
            child = node_find(&self.t.store, reached, found) if found != NULL else NULL
            if child == NULL:
                break
            reached.last_child = child
            reached = child
            hits += node_sight(&self.t.wheel, reached)
            sightings += 1
            pieces += 1
            n -= 1
        path_sighted(&self.t.wheel, reached, sightings, hits)
        pin(reached)
        sight_pieces(&self.t, reached, pieces, n)
        n_admitted = n
        if n and not is_admitted(&self.t, root, view, &pieces[n - 1]):
            n_admitted -= 1
        if n_admitted:
            status = link_pinned(
                &self.t, root, reached, view, pieces, n_admitted, ids, &n_linked
            )
        remember_pieces(&self.t, pieces + n_linked, n - n_linked)
        unpin(&self.t, reached)
        settle(&self.t)
        return status


cdef uint32_t _checked_root(const trie* t, root) except? 0xFFFFFFFF:
    if not 0 <= root < t.n_roots or t.roots[<uint32_t> root].is_closed:
        raise ValueError(f"no root has the number {root}")
    return root
