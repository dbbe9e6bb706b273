# cython: language_level=3
"""Link and evict: what changes the trie. Header only.

A link weighs the whole path and allocates all of it first; what fails so far changes
nothing. Then it goes from the root to the leaf: each segment's victims are planned, and
only if it may displace them all are they evicted and the segment linked; else it and what
follows are dropped. So the path is linked as far as it was admitted.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from tokcache._policy cimport (
    BUCKETS,
    REGRET,
    leaf_add_newest,
    leaf_add_oldest,
    leaf_is_listed,
    leaf_plan,
    leaf_remove,
    later,
    node_age,
    path_key,
    rank_of,
    wheel_oldest,
    wheel_reset,
)
from tokcache._sketch cimport (
    COUNT_MAX,
    MIN_LINES,
    lines_for,
    sketch_bytes,
    sketch_count,
    sketch_free,
    sketch_may_have,
    sketch_raise,
    sketch_resize,
)
from tokcache._store cimport (
    charge,
    charge_nodes,
    charge_segment,
    charges,
    is_tail,
    node,
    node_add,
    node_remove,
    root_info,
    segment,
    segment_charge,
    segment_find,
    segment_new,
    segment_release,
    segment_size,
    store,
    tables_bound,
    tables_reserve,
    tables_settle,
    uncharge_segment,
)
from tokcache._text cimport text_view
from tokcache._trie cimport (
    LINKED,
    NO_MEMORY,
    OVERSIZED,
    TAIL_CHARS,
    link_status,
    piece,
    trie,
)


cdef enum:
    MAX_LENGTH = 0x7FFFFFFF  # of a segment, in code points and in ids


cdef inline uint32_t piece_key(
    const trie* t, uint32_t parent, const piece* p
) noexcept nogil:
    """Return what a piece's sightings go by: its path, or a long tail's own identity."""
    if p.token < 0 and p.end - p.start > TAIL_CHARS:
        parent = 0
    return path_key(t.store.keys, parent, p.hash)


cdef inline void sight_pieces(
    trie* t, const node* reached, piece* pieces, Py_ssize_t n
) noexcept nogil:
    """Count pieces that were asked for and are not resident below a node."""
    cdef piece* p
    cdef uint32_t parent = reached.key
    cdef Py_ssize_t i
    if n and t.counts.n_lines == 0 and (
        sketch_may_have(MIN_LINES, t.store.max_resident_bytes)
    ):
        t.store.used.resident_bytes += sketch_resize(&t.counts, MIN_LINES)
    for i in range(n):
        p = &pieces[i]
        p.key = piece_key(t, parent, p)
        p.count = min(sketch_count(&t.counts, p.key) + 1, <int> COUNT_MAX)
        if p.count >= REGRET:
            t.wheel.regrets += p.n_ids
        parent = p.key
    t.wheel.sightings += <uint64_t> n


cdef inline void remember_pieces(trie* t, const piece* pieces, Py_ssize_t n) noexcept nogil:
    """Keep the counts of pieces that were not linked; a node has its own until it goes."""
    cdef Py_ssize_t i
    for i in range(n):
        sketch_raise(&t.counts, pieces[i].key, pieces[i].count)


cdef inline bint is_admitted(
    trie* t, uint32_t root, const text_view* view, const piece* p
) noexcept nogil:
    """Tell whether a piece is no long tail, or one seen before or under another path."""
    return (
        p.token >= 0
        or p.end - p.start <= TAIL_CHARS
        or p.count > 1
        or segment_find(&t.store, p.hash, root, p.anchor, True, view, p.start, p.end)
        != NULL
    )


cdef inline void _forget_last(root_info* root, const segment* held) noexcept nogil:
    """Take a segment off what its root holds if the hold to be given back is the last."""
    if held.holds == 1 and held.is_charged:
        root.memory_bytes -= 4 * <int64_t> held.n_ids
        root.resident_bytes -= segment_charge(held)


cdef inline void evict(trie* t, node* leaf) noexcept nogil:
    """Free a leaf. Its parent, if it has no other children, is the next to go."""
    cdef node* parent = leaf.parent
    cdef root_info* root = t.roots[leaf.segment.root]
    if is_tail(leaf):
        root.n_tails -= 1
    else:
        root.n_segments -= 1
    root.resident_bytes -= charge(sizeof(node))
    _forget_last(root, leaf.segment)
    leaf_remove(leaf)
    node_remove(&t.store, leaf)
    if parent.n_children == 0 and parent.segment != NULL:
        parent.rank = later(parent.rank, t.wheel.hand)
        leaf_add_oldest(&t.wheel, parent, parent.rank)


cdef inline bint _is_over(const store* s) noexcept nogil:
    return (
        s.used.memory_bytes > s.max_memory_bytes
        or s.used.resident_bytes > s.max_resident_bytes
    )


cdef inline bint evict_next(trie* t) noexcept nogil:
    """Evict one leaf and keep its count in the sketch; false if there is none."""
    cdef node* victim = wheel_oldest(&t.wheel, &t.wheel.hand)
    if victim == NULL:
        return False
    node_age(&t.wheel, victim)
    sketch_raise(&t.counts, victim.key, victim.count)
    t.roots[victim.segment.root].evictions += 1
    t.evictions += 1
    evict(t, victim)
    return True


cdef inline Py_ssize_t plan_victims(
    trie* t, const node* spared, int count
) noexcept nogil:
    """Return how many leaves must go until both budgets hold, or -1 if they may not.

    They may not where the path that asks for the room comes up itself, and, the gate
    being closed, where a leaf's rank is not below that of so many sightings. All lists
    and charges are as they were; only the hand has moved over empty buckets.
    """
    cdef store* s = &t.store
    cdef charges before = s.used
    cdef Py_ssize_t n = 0
    cdef node* victim = wheel_oldest(&t.wheel, &t.wheel.hand)
    cdef uint32_t hand = t.wheel.hand
    cdef uint32_t limit = rank_of(&t.wheel, count)
    cdef node* parent
    while _is_over(s):
        victim = wheel_oldest(&t.wheel, &hand)
        if victim == NULL or victim == spared or (
            t.wheel.is_closed and <int32_t> (limit - hand) <= 0
        ):
            n = -1
            break
        parent = victim.parent
        leaf_remove(victim)
        leaf_plan(&t.wheel, victim)
        charge_nodes(&s.used, -1)
        victim.segment.holds -= 1
        if victim.segment.holds == 0:
            uncharge_segment(&s.used, victim.segment)
        parent.n_children -= 1
        if parent.n_children == 0 and parent.segment != NULL:
            leaf_add_oldest(&t.wheel, parent, later(parent.rank, hand))
        n += 1
    # Undone in reverse, so each goes back to the old end that it came from.
    while t.wheel.planned.older != &t.wheel.planned:
        victim = t.wheel.planned.older
        parent = victim.parent
        leaf_remove(victim)
        if parent.n_children == 0 and parent.segment != NULL:
            leaf_remove(parent)
        parent.n_children += 1
        victim.segment.holds += 1
        leaf_add_oldest(&t.wheel, victim, victim.rank)
    s.used = before
    return n


cdef inline void make_room(trie* t) noexcept nogil:
    """Evict until both budgets hold."""
    while _is_over(&t.store) and evict_next(t):
        pass


cdef inline void pin(node* reached) noexcept nogil:
    """Keep a node, and so its ancestors: it counts one child that does not exist.

    A leaf stays where it is listed, and a plan that comes to it stops.
    """
    reached.n_children += 1


cdef inline void unpin(trie* t, node* reached) noexcept nogil:
    reached.n_children -= 1
    if reached.n_children == 0 and reached.segment != NULL and not leaf_is_listed(reached):
        reached.rank = later(reached.rank, t.wheel.hand)
        leaf_add_newest(&t.wheel, reached)


cdef inline void settle(trie* t) noexcept nogil:
    """End a change, nothing being pinned: the sketch suits the entries, budgets hold."""
    cdef uint64_t n_lines
    if t.counts.n_lines:
        n_lines = lines_for(
            t.store.used.n_nodes, t.counts.n_lines, t.store.max_resident_bytes
        )
        if n_lines != t.counts.n_lines:
            t.store.used.resident_bytes += sketch_resize(&t.counts, n_lines)
    make_room(t)
    tables_settle(&t.store)


cdef inline bint _fits(trie* t, const node* leaf) noexcept nogil:
    """Weigh a whole path, shared payloads once, against both budgets."""
    cdef store* s = &t.store
    cdef int64_t memory = 0
    cdef int64_t resident = sketch_bytes(t.counts.n_lines)
    cdef int64_t distinct = 0
    cdef int64_t depth = 0
    cdef const node* n = leaf
    s.mark += 1
    while n.segment != NULL:
        if n.segment.mark != s.mark:
            n.segment.mark = s.mark
            distinct += 1
            memory += 4 * <int64_t> n.segment.n_ids
            resident += segment_charge(n.segment)
        depth += 1
        n = n.parent
    resident += depth * charge(sizeof(node)) + tables_bound(distinct, depth)
    return memory <= s.max_memory_bytes and resident <= s.max_resident_bytes


cdef inline bint _could_fit(const trie* t, const piece* pieces, Py_ssize_t n) noexcept nogil:
    """Refuse early what is over a budget by one piece or its nodes alone."""
    cdef const piece* p
    cdef Py_ssize_t i
    if n > t.store.max_resident_bytes // charge(sizeof(node)):
        return False
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


cdef inline void _discard_chain(trie* t, node* chain) noexcept nogil:
    """Free the nodes of a path that are not linked, from the first one down."""
    cdef node* child
    while chain != NULL:
        child = chain.last_child
        _forget_last(t.roots[chain.segment.root], chain.segment)
        segment_release(&t.store, chain.segment)
        free(chain)
        chain = child


cdef inline node* _make_chain(
    trie* t, uint32_t root, node* reached, const text_view* view, const piece* pieces,
    Py_ssize_t n, const uint32_t* ids, node** leaf,
) noexcept nogil:
    """Make the new nodes of a path, each holding its segment, and return the first.

    Each has the next as ``last_child`` and counts it. NULL without memory.
    """
    cdef store* s = &t.store
    cdef node* first = NULL
    cdef node* parent = reached
    cdef node* made
    cdef segment* found
    cdef const piece* p
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
            _discard_chain(t, first)
            return NULL
        found.holds += 1
        made.segment = found
        made.last_child = NULL
        made.parent = parent
        made.n_ids = parent.n_ids + found.n_ids
        made.n_children = 0
        made.key = p.key
        made.epoch = t.wheel.epoch
        made.count = <uint8_t> p.count
        made.newer = NULL
        made.older = NULL
        if first == NULL:
            first = made
        else:
            parent.last_child = made
        parent = made
    leaf[0] = parent
    return first


cdef inline bint _admit(trie* t, node* made) noexcept nogil:
    """Charge a node and evict what must go for it; false, and nothing done, if refused."""
    cdef store* s = &t.store
    cdef charges before = s.used
    cdef bint is_new = not made.segment.is_charged
    cdef Py_ssize_t n_victims
    charge_nodes(&s.used, 1)
    if is_new:
        made.segment.is_charged = True
        charge_segment(&s.used, made.segment)
    if not _is_over(s):
        return True
    n_victims = plan_victims(t, made.parent, made.count)
    if n_victims < 0:
        s.used = before
        if is_new:
            made.segment.is_charged = False
        return False
    while n_victims > 0:
        evict_next(t)
        n_victims -= 1
    return True


cdef inline void _link_node(
    trie* t, node* made, bint is_new, bint goes_on
) noexcept nogil:
    """Make an admitted node the newest leaf of its bucket.

    Where a path goes on from a leaf, as the next turn of a conversation does, it keeps
    that leaf's rank: else what is left of finished conversations would outrank it.
    """
    cdef root_info* info = t.roots[made.segment.root]
    node_add(&t.store, made)
    if leaf_is_listed(made.parent):
        leaf_remove(made.parent)
    made.parent.last_child = made
    made.parent.n_children += 1
    made.rank = rank_of(&t.wheel, made.count)
    if goes_on and not t.wheel.is_closed:
        made.rank = later(made.rank, made.parent.rank)
    leaf_add_newest(&t.wheel, made)
    info.resident_bytes += charge(sizeof(node))
    if is_new:
        info.memory_bytes += 4 * <int64_t> made.segment.n_ids
        info.resident_bytes += segment_charge(made.segment)
    if is_tail(made):
        info.n_tails += 1
    else:
        info.n_segments += 1
        info.insertions += 1
        t.insertions += 1


cdef inline link_status link_pinned(
    trie* t, uint32_t root, node* reached, const text_view* view, const piece* pieces,
    Py_ssize_t n, const uint32_t* ids, Py_ssize_t* n_linked,
) noexcept nogil:
    """Add the pieces below a pinned node, of which the first is not yet a child."""
    cdef store* s = &t.store
    cdef node* made
    cdef node* following
    cdef node* leaf
    cdef bint is_new
    cdef bint goes_on = reached.segment != NULL and leaf_is_listed(reached)
    if not _could_fit(t, pieces, n):
        t.roots[root].oversized += 1
        t.oversized += 1
        return OVERSIZED
    if not tables_reserve(s, <uint64_t> n):
        return NO_MEMORY
    made = _make_chain(t, root, reached, view, pieces, n, ids, &leaf)
    if made == NULL:
        return NO_MEMORY
    if not _fits(t, leaf):
        _discard_chain(t, made)
        t.roots[root].oversized += 1
        t.oversized += 1
        return OVERSIZED
    while made != NULL:
        following = made.last_child
        is_new = not made.segment.is_charged
        if not _admit(t, made):
            t.roots[root].refused += 1
            t.refused += 1
            _discard_chain(t, made)
            break
        made.last_child = NULL
        _link_node(t, made, is_new, goes_on)
        n_linked[0] += 1
        made = following
    return LINKED


cdef inline void _drop_leaves_of(trie* t, uint32_t root, bint every) noexcept nogil:
    """Free all nodes of a root, leaves first, as each becomes one.

    The lists are those of all roots: it stops as soon as this one has no more.
    """
    cdef const root_info* info = NULL if every else t.roots[root]
    cdef node* ends
    cdef node* n
    cdef node* following
    cdef node* parent
    cdef int i
    for i in range(BUCKETS):
        ends = &t.wheel.buckets[i]
        n = ends.newer
        while n != ends and (every or info.n_segments + info.n_tails):
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
    _drop_leaves_of(t, root, False)
    tables_settle(&t.store)


cdef inline void clear_all(trie* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_roots):
        t.roots[i].clears += 1
    _drop_leaves_of(t, 0, True)
    sketch_free(&t.counts)
    wheel_reset(&t.wheel)
    t.store.used.segment_buckets = 0
    t.store.used.node_buckets = 0
    t.store.used.resident_bytes = 0
    tables_settle(&t.store)
