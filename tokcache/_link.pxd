# cython: language_level=3
"""Link and evict: what changes the trie. Header only.

A link weighs the whole path, then allocates, then evicts, then links; what fails before
the eviction changes nothing. The node where the new path begins is pinned meanwhile.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from tokcache._policy cimport (
    leaf_add_newest,
    leaf_add_oldest,
    leaf_is_listed,
    leaf_remove,
    leaf_victim,
)
from tokcache._store cimport (
    charge,
    is_tail,
    node,
    node_add,
    node_remove,
    nodes_reserve,
    nodes_shrink,
    root_info,
    segment,
    segment_charge,
    segment_find,
    segment_new,
    segment_release,
    segment_size,
    segments_restore,
    store,
    tables_bound,
)
from tokcache._text cimport text_view
from tokcache._trie cimport (
    LINKED,
    NO_MEMORY,
    OVERSIZED,
    link_status,
    piece,
    trie,
)


cdef enum:
    # Long tails seen once are remembered by a 32-bit tag in sets of four, first in first
    # out. Where the whole budget is small the table would be most of it, so there is none.
    SIGHTING_SETS = 1024
    SIGHTING_WAYS = 4
    SIGHTING_TABLE_BYTES = SIGHTING_SETS * SIGHTING_WAYS * 4
    SIGHTING_MIN_BUDGET = 256 * 1024
    MAX_LENGTH = 0x7FFFFFFF  # of a segment, in code points and in ids


cdef inline bint seen_before(trie* t, uint64_t hash) noexcept nogil:
    """Tell whether a long tail was sighted already, and remember that it is now."""
    cdef uint32_t* ways
    cdef uint32_t tag = <uint32_t> (hash >> 32) | 1
    cdef int i
    if t.sightings == NULL:
        if t.store.max_resident_bytes < SIGHTING_MIN_BUDGET:
            return False
        t.sightings = <uint32_t*> calloc(SIGHTING_SETS * SIGHTING_WAYS, 4)
        if t.sightings == NULL:
            return False
        t.store.resident_bytes += SIGHTING_TABLE_BYTES
    ways = t.sightings + (hash & (SIGHTING_SETS - 1)) * SIGHTING_WAYS
    for i in range(SIGHTING_WAYS):
        if ways[i] == tag:
            return True
    for i in range(SIGHTING_WAYS - 1, 0, -1):
        ways[i] = ways[i - 1]
    ways[0] = tag
    return False


cdef inline void evict(trie* t, node* leaf) noexcept nogil:
    cdef node* parent = leaf.parent
    cdef root_info* root = t.roots[leaf.segment.root]
    if is_tail(leaf):
        root.n_tails -= 1
    else:
        root.n_segments -= 1
    leaf_remove(leaf)
    node_remove(&t.store, leaf)
    if parent.n_children == 0 and parent.segment != NULL:
        leaf_add_oldest(&t.leaves, parent)


cdef inline bint _is_over(const store* s) noexcept nogil:
    return s.memory_bytes > s.max_memory_bytes or s.resident_bytes > s.max_resident_bytes


cdef inline void make_room(trie* t) noexcept nogil:
    """Evict until both budgets hold; what is pinned is not in the list."""
    cdef node* victim
    while _is_over(&t.store):
        victim = leaf_victim(&t.leaves)
        if victim == NULL:
            return
        evict(t, victim)
        t.evictions += 1


cdef inline void pin(trie* t, node* reached) noexcept nogil:
    """Keep a node, and so its ancestors: it counts one child that does not exist yet."""
    if reached.segment != NULL and leaf_is_listed(reached):
        leaf_remove(reached)
    reached.n_children += 1


cdef inline void unpin(trie* t, node* reached) noexcept nogil:
    reached.n_children -= 1
    if reached.n_children == 0 and reached.segment != NULL:
        leaf_add_newest(&t.leaves, reached)


cdef inline bint _fits(trie* t, const node* leaf) noexcept nogil:
    """Weigh a whole path, shared payloads once, against both budgets."""
    cdef store* s = &t.store
    cdef int64_t memory = 0
    cdef int64_t resident = 0
    cdef int64_t distinct = 0
    cdef int64_t depth = leaf.depth
    cdef const node* n = leaf
    s.mark += 1
    while n.segment != NULL:
        if n.segment.mark != s.mark:
            n.segment.mark = s.mark
            distinct += 1
            memory += 4 * <int64_t> n.segment.n_ids
            resident += segment_charge(n.segment)
        n = n.parent
    resident += depth * charge(sizeof(node)) + tables_bound(distinct, depth)
    if t.sightings != NULL:
        resident += SIGHTING_TABLE_BYTES
    return memory <= s.max_memory_bytes and resident <= s.max_resident_bytes


cdef inline bint _could_fit(const trie* t, const piece* pieces, Py_ssize_t n) noexcept nogil:
    """Refuse early what is over a budget by one piece alone, before it is copied."""
    cdef const piece* p
    cdef Py_ssize_t i
    for i in range(n):
        p = &pieces[i]
        if p.end - p.start > MAX_LENGTH or p.n_ids > MAX_LENGTH:
            return False
        if (
            4 * p.n_ids > t.store.max_memory_bytes
            or segment_size(p.n_ids, p.end - p.start, p.kind) > t.store.max_resident_bytes
        ):
            return False
    return True


cdef inline void _discard_chain(trie* t, node* chain, node* reached) noexcept nogil:
    cdef node* parent
    while chain != reached:
        parent = chain.parent
        segment_release(&t.store, chain.segment)
        free(chain)
        chain = parent


cdef inline node* _make_chain(
    trie* t, uint32_t root, node* reached, const text_view* view, piece* pieces,
    Py_ssize_t n, const uint32_t* ids,
) noexcept nogil:
    """Make the new nodes of a path, each holding its segment; NULL without memory."""
    cdef store* s = &t.store
    cdef node* chain = reached
    cdef node* made
    cdef segment* found
    cdef piece* p
    cdef Py_ssize_t i
    for i in range(n):
        p = &pieces[i]
        found = segment_find(
            s, p.hash, root, p.anchor, p.token < 0, view, p.start, p.end
        )
        if found == NULL:
            found = segment_new(
                s, p.hash, root, p.anchor, p.token, view, p.start, p.end, p.kind,
                ids + p.ids_at, p.n_ids,
            )
        made = <node*> malloc(sizeof(node)) if found != NULL else NULL
        if made == NULL:
            if found != NULL:
                # Nobody may hold it yet: take a hold so that giving it back frees it.
                found.holds += 1
                segment_release(s, found)
            _discard_chain(t, chain, reached)
            return NULL
        found.holds += 1
        made.segment = found
        made.last_child = NULL
        made.parent = chain
        made.n_ids = chain.n_ids + found.n_ids
        made.n_children = 1  # the next one; the last is set right when it is linked
        made.depth = chain.depth + 1
        made.newer = NULL
        made.older = NULL
        chain = made
    return chain


cdef inline link_status link_pinned(
    trie* t, uint32_t root, node* reached, const text_view* view, piece* pieces,
    Py_ssize_t n, const uint32_t* ids,
) noexcept nogil:
    """Add the pieces below a pinned node, of which the first is not yet a child."""
    cdef store* s = &t.store
    cdef root_info* info = t.roots[root]
    cdef node* chain
    cdef node* linked
    cdef uint64_t buckets = s.segment_buckets
    if not _could_fit(t, pieces, n):
        t.oversized += 1
        return OVERSIZED
    chain = _make_chain(t, root, reached, view, pieces, n, ids)
    if chain == NULL:
        segments_restore(s, buckets)
        return NO_MEMORY
    if not _fits(t, chain):
        _discard_chain(t, chain, reached)
        segments_restore(s, buckets)
        t.oversized += 1
        return OVERSIZED
    if not nodes_reserve(s, s.n_nodes + <uint64_t> n):
        _discard_chain(t, chain, reached)
        segments_restore(s, buckets)
        return NO_MEMORY
    s.n_pending = <uint64_t> n
    s.resident_bytes += n * charge(sizeof(node))
    make_room(t)
    if _is_over(s):
        # Not reached while _fits bounds what the tables are left with.
        s.n_pending = 0
        s.resident_bytes -= n * charge(sizeof(node))
        _discard_chain(t, chain, reached)
        nodes_shrink(s)
        t.oversized += 1
        return OVERSIZED
    chain.n_children = 0
    leaf_add_newest(&t.leaves, chain)
    linked = chain
    while linked != reached:
        node_add(s, linked)
        linked.parent.last_child = linked
        if is_tail(linked):
            info.n_tails += 1
        else:
            info.n_segments += 1
            t.insertions += 1
        linked = linked.parent
    reached.n_children += 1
    return LINKED


cdef inline void drop_leaves_of(trie* t, uint32_t root, bint every) noexcept nogil:
    """Free all nodes of a root, leaves first, as each becomes one."""
    cdef node* n = t.leaves.ends.newer
    cdef node* following
    cdef node* parent
    while n != &t.leaves.ends:
        following = n.newer
        while every or n.segment.root == root:
            parent = n.parent
            evict(t, n)
            if parent.segment == NULL or parent.n_children:
                break
            n = parent
        n = following


cdef inline void clear_root(trie* t, uint32_t root) noexcept nogil:
    t.roots[root].clears += 1
    drop_leaves_of(t, root, False)


cdef inline void clear_all(trie* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_roots):
        t.roots[i].clears += 1
    drop_leaves_of(t, 0, True)
    free(t.store.segments)
    free(t.store.nodes)
    free(t.sightings)
    t.store.segments = NULL
    t.store.nodes = NULL
    t.sightings = NULL
    t.store.segment_buckets = 0
    t.store.node_buckets = 0
    t.store.resident_bytes = 0
