# cython: language_level=3
"""Every invariant of the trie, asserted: for tests and debug builds. Header only."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from tokcache._policy cimport BUCKETS, COUNT_MAX, RANK_MAX
from tokcache._sketch cimport MIN_LINES, sketch_bytes, sketch_may_have
from tokcache._store cimport (
    charge,
    is_tail,
    node,
    segment,
    segment_charge,
    segment_text,
    store,
)
from tokcache._trie cimport NO_TOKEN, trie


cdef extern from *:
    str PyUnicode_FromKindAndData(int kind, const void* data, Py_ssize_t length)


cdef inline str stored_text(segment* s):
    # Not a codec: those are Python code, in which the trie's lock may be let go.
    return PyUnicode_FromKindAndData(s.kind, segment_text(s), s.length)


cdef inline int check_invariants(trie* t) except -1:
    cdef store* s = &t.store
    cdef segment* entry
    cdef node* n
    cdef uint64_t b
    cdef int64_t memory = 0
    cdef int64_t resident = 0
    cdef uint32_t i
    holds = {}
    children = {}
    per_root = {}
    root_memory = {}
    root_resident = {}
    listed = set()
    for b in range(s.segment_buckets):
        entry = s.segments[b]
        while entry != NULL:
            assert entry.hash & (s.segment_buckets - 1) == b
            assert entry.is_charged
            memory += 4 * <int64_t> entry.n_ids
            resident += segment_charge(entry)
            holds[<size_t> entry] = 0
            root_memory[entry.root] = root_memory.get(entry.root, 0) + 4 * entry.n_ids
            root_resident[entry.root] = (
                root_resident.get(entry.root, 0) + segment_charge(entry)
            )
            entry = entry.next
    assert len(holds) == s.used.n_segments
    for b in range(BUCKETS):
        n = t.wheel.buckets[b].newer
        while n != &t.wheel.buckets[b]:
            assert n.n_children == 0 and n.segment != NULL
            assert n.newer.older == n and n.older.newer == n
            assert n.rank % BUCKETS == b
            assert 0 <= <int32_t> (n.rank - t.wheel.hand) <= RANK_MAX
            listed.add(<size_t> n)
            n = n.newer
    assert t.wheel.planned.newer == t.wheel.planned.older == &t.wheel.planned
    seen = set()
    for b in range(s.node_buckets):
        n = s.nodes[b]
        while n != NULL:
            seen.add(<size_t> n)
            holds[<size_t> n.segment] += 1
            children[<size_t> n.parent] = children.get(<size_t> n.parent, 0) + 1
            key = (n.segment.root, is_tail(n))
            per_root[key] = per_root.get(key, 0) + 1
            resident += charge(sizeof(node))
            assert n.n_ids == n.parent.n_ids + n.segment.n_ids
            assert n.count <= COUNT_MAX
            assert (<size_t> n in listed) == (n.n_children == 0)
            assert not (is_tail(n) and n.n_children)
            if n.parent.segment == NULL:
                assert n.parent == &t.roots[n.segment.root].top
                assert n.segment.anchor == NO_TOKEN
            else:
                assert n.segment.anchor == n.parent.segment.token
                assert n.segment.root == n.parent.segment.root
            if n.last_child != NULL:
                assert n.last_child.parent == n
            n = n.next
    assert len(seen) == s.used.n_nodes
    assert listed <= seen
    for b in range(s.node_buckets):
        n = s.nodes[b]
        while n != NULL:
            assert n.parent.segment == NULL or <size_t> n.parent in seen
            assert n.last_child == NULL or <size_t> n.last_child in seen
            assert children.get(<size_t> n, 0) == n.n_children
            n = n.next
    for b in range(s.segment_buckets):
        entry = s.segments[b]
        while entry != NULL:
            assert holds[<size_t> entry] == entry.holds > 0
            entry = entry.next
    for i in range(t.n_roots):
        assert t.roots[i].n_segments == per_root.get((i, False), 0)
        assert t.roots[i].n_tails == per_root.get((i, True), 0)
        assert t.roots[i].memory_bytes == root_memory.get(i, 0)
        assert t.roots[i].resident_bytes == root_resident.get(i, 0) + charge(
            sizeof(node)
        ) * (per_root.get((i, False), 0) + per_root.get((i, True), 0))
        n = &t.roots[i].top
        assert children.get(<size_t> n, 0) == n.n_children
    # Fewer only where memory was refused.
    assert s.segment_buckets <= s.used.segment_buckets
    assert s.node_buckets <= s.used.node_buckets
    resident += 8 * <int64_t> (s.used.segment_buckets + s.used.node_buckets)
    resident += sketch_bytes(t.counts.n_lines)
    assert t.counts.n_lines == 0 or (
        t.counts.n_lines >= MIN_LINES
        and sketch_may_have(t.counts.n_lines, s.max_resident_bytes)
    )
    assert memory == s.used.memory_bytes and resident == s.used.resident_bytes
    assert s.used.memory_bytes <= s.max_memory_bytes
    assert s.used.resident_bytes <= s.max_resident_bytes
    return 0
