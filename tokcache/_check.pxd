# cython: language_level=3
"""Every invariant of the trie, asserted: for tests and debug builds. Header only."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tokcache._link cimport SIGHTING_TABLE_BYTES
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


cdef inline str stored_text(segment* s):
    if s.kind == 1:
        return (<const char*> segment_text(s))[: s.length].decode("latin-1")
    if s.kind == 2:
        return (<const char*> segment_text(s))[: s.length * 2].decode(
            "utf-16-le", "surrogatepass"
        )
    return (<const char*> segment_text(s))[: s.length * 4].decode(
        "utf-32-le", "surrogatepass"
    )


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
    listed = set()
    for b in range(s.segment_buckets):
        entry = s.segments[b]
        while entry != NULL:
            assert entry.hash & (s.segment_buckets - 1) == b
            memory += 4 * <int64_t> entry.n_ids
            resident += segment_charge(entry)
            holds[<size_t> entry] = 0
            entry = entry.next
    assert len(holds) == s.n_segments
    n = t.leaves.ends.newer
    while n != &t.leaves.ends:
        assert n.n_children == 0 and n.segment != NULL
        assert n.newer.older == n and n.older.newer == n
        listed.add(<size_t> n)
        n = n.newer
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
            assert n.depth == n.parent.depth + 1
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
    assert len(seen) == s.n_nodes and s.n_pending == 0
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
        n = &t.roots[i].top
        assert children.get(<size_t> n, 0) == n.n_children
    resident += 8 * <int64_t> (s.segment_buckets + s.node_buckets)
    if t.sightings != NULL:
        resident += SIGHTING_TABLE_BYTES
    assert memory == s.memory_bytes and resident == s.resident_bytes
    assert s.memory_bytes <= s.max_memory_bytes
    assert s.resident_bytes <= s.max_resident_bytes
    return 0
