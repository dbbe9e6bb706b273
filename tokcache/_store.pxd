# cython: language_level=3
"""Segments and nodes: the two hash tables, references, bytes. Header only.

A *segment* is interned text with its payload: one block of memory, shared by every path
of its root that contains it. A *node* is a segment under one path. Both come from
malloc one by one, so their weights add up exactly and an eviction gives its bytes back;
nodes made together lie side by side all the same.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from tokcache._text cimport text_copy, text_equal, text_view, tokcache_fold


cdef enum:
    MIN_BUCKETS = 64
    # A malloc chunk: eight bytes of its own, multiples of sixteen, at least 32.
    CHUNK_HEADER = 8
    CHUNK_STEP = 16
    CHUNK_MIN = 32


cdef struct segment:
    segment* next  # in its bucket
    uint64_t hash
    uint32_t holds  # nodes, and links under way, that need it
    uint32_t n_ids
    uint32_t length  # code points
    uint32_t root
    int32_t anchor  # token just before it; -1 at the start of a text
    int32_t token  # boundary token at its end; -1 for a tail
    uint32_t mark  # the last weighing that counted it
    uint8_t kind  # bytes a code point
    uint8_t is_charged  # not yet, where only a link under way needs it
    # The ids follow, then the text.


cdef struct node:
    segment* segment  # NULL for a root
    node* last_child  # the one used last
    node* parent
    uint64_t n_ids  # from the root through this node
    uint32_t n_children
    uint32_t key  # of the path, in the sketch
    uint32_t rank  # the hand at which it may go
    uint16_t epoch  # in which its count was last right
    uint8_t count  # sightings, halved at each epoch
    node* next  # in its bucket
    node* newer  # in the list of leaves, which only leaves are in
    node* older


ctypedef fused entry:
    # What the two hash tables chain.
    segment
    node


cdef struct root_info:
    node top
    uint64_t clears
    int64_t n_segments  # segment nodes
    int64_t n_tails  # tail nodes
    int64_t memory_bytes
    int64_t resident_bytes  # nodes and segments, not the tables
    int64_t insertions
    int64_t evictions
    int64_t oversized
    int64_t refused
    bint is_closed  # nobody walks from it any more
    uint32_t next_closed  # where this one is closed: the number of one closed before


cdef struct charges:
    # What is charged against the budgets. A plan changes them and puts them back.
    int64_t memory_bytes
    int64_t resident_bytes
    uint64_t n_segments
    uint64_t n_nodes
    uint64_t segment_buckets
    uint64_t node_buckets


cdef struct store:
    charges used
    segment** segments
    node** nodes
    # As many as are charged, but while a link is under way, or where memory was refused.
    uint64_t segment_buckets
    uint64_t node_buckets
    int64_t max_memory_bytes
    int64_t max_resident_bytes
    uint64_t[4] keys  # of the hash
    uint64_t hash_mask  # all ones, but in tests that force collisions
    uint64_t version  # changes whenever a node is freed
    uint32_t mark


cdef inline int64_t charge(int64_t size) noexcept nogil:
    """Return what a block of ``size`` bytes takes from the allocator."""
    size = (size + CHUNK_HEADER + CHUNK_STEP - 1) // CHUNK_STEP * CHUNK_STEP
    return max(size, <int64_t> CHUNK_MIN)


cdef inline uint32_t* segment_ids(segment* s) noexcept nogil:
    return <uint32_t*> (<char*> s + sizeof(segment))


cdef inline void* segment_text(segment* s) noexcept nogil:
    return <char*> s + sizeof(segment) + <size_t> s.n_ids * 4


cdef inline int64_t segment_size(
    int64_t n_ids, int64_t length, int kind
) noexcept nogil:
    return <int64_t> sizeof(segment) + n_ids * 4 + length * kind


cdef inline int64_t segment_charge(const segment* s) noexcept nogil:
    return charge(segment_size(s.n_ids, s.length, s.kind))


cdef inline bint is_tail(const node* n) noexcept nogil:
    return n.segment.token < 0


cdef inline uint64_t identity_state(
    uint32_t root, int32_t anchor, bint tail
) noexcept nogil:
    """Return what a segment's identity adds to the hash of its text."""
    return (<uint64_t> root << 33) ^ (<uint64_t> <uint32_t> anchor << 1) ^ <uint64_t> tail


cdef inline uint64_t _node_hash(
    const store* s, const node* parent, const segment* child
) noexcept nogil:
    return tokcache_fold(
        <uint64_t> <size_t> parent ^ s.keys[0], <uint64_t> <size_t> child ^ s.keys[1]
    )


cdef inline uint64_t _node_bucket(
    const store* s, const node* parent, const segment* child
) noexcept nogil:
    return _node_hash(s, parent, child) & (s.node_buckets - 1)


# Both tables chain through their entries, so doubling and halving move pointers only and
# halving cannot fail. An entry of bucket b of n is in b or b + n after a doubling.

cdef inline uint64_t buckets_for(uint64_t entries, uint64_t buckets) noexcept nogil:
    """Return what a table of ``buckets`` is charged with when it has so many entries."""
    buckets = max(buckets, <uint64_t> MIN_BUCKETS)
    while buckets < entries:
        buckets *= 2
    while buckets > MIN_BUCKETS and 4 * entries < buckets:
        buckets //= 2
    return buckets


cdef inline void _charge_segments(charges* used, int64_t more) noexcept nogil:
    cdef uint64_t before = used.segment_buckets
    used.n_segments += <uint64_t> more
    used.segment_buckets = buckets_for(used.n_segments, before)
    used.resident_bytes += 8 * (<int64_t> used.segment_buckets - <int64_t> before)


cdef inline void charge_segment(charges* used, const segment* s) noexcept nogil:
    _charge_segments(used, 1)
    used.memory_bytes += 4 * <int64_t> s.n_ids
    used.resident_bytes += segment_charge(s)


cdef inline void uncharge_segment(charges* used, const segment* s) noexcept nogil:
    _charge_segments(used, -1)
    used.memory_bytes -= 4 * <int64_t> s.n_ids
    used.resident_bytes -= segment_charge(s)


cdef inline void charge_nodes(charges* used, int64_t more) noexcept nogil:
    cdef uint64_t before = used.node_buckets
    used.n_nodes += <uint64_t> more
    used.node_buckets = buckets_for(used.n_nodes, before)
    used.resident_bytes += (
        more * charge(sizeof(node))
        + 8 * (<int64_t> used.node_buckets - <int64_t> before)
    )


cdef inline uint64_t _bucket(const store* s, const entry* e, uint64_t buckets) noexcept nogil:
    """Return where an entry is in a table of so many buckets."""
    if entry is segment:
        return e.hash & (buckets - 1)
    else:
        return _node_hash(s, e.parent, e.segment) & (buckets - 1)


cdef inline bint _grow(
    const store* s, entry*** table, uint64_t* buckets, uint64_t wanted
) noexcept nogil:
    """Double a table until it has so many buckets; false without memory."""
    cdef uint64_t b, at, old = buckets[0]
    cdef entry** grown
    cdef entry* moved
    cdef entry* following
    if wanted == old:
        return True
    grown = <entry**> realloc(table[0], wanted * sizeof(entry*))
    if grown == NULL:
        return False
    table[0] = grown
    buckets[0] = wanted
    memset(grown + old, 0, (wanted - old) * sizeof(entry*))
    for b in range(old):
        moved = grown[b]
        grown[b] = NULL
        while moved != NULL:
            following = moved.next
            at = _bucket(s, moved, wanted)
            moved.next = grown[at]
            grown[at] = moved
            moved = following
    return True


cdef inline uint64_t _buckets_to_link(uint64_t entries, uint64_t buckets) noexcept nogil:
    """Return how many buckets are enough while a link is under way: two entries in each.

    With one in each, a full cache of just less than a power of two would grow its tables
    for every path and halve them when it is linked.
    """
    buckets = max(buckets, <uint64_t> MIN_BUCKETS)
    while 2 * buckets < entries:
        buckets *= 2
    return buckets


cdef inline bint tables_reserve(store* s, uint64_t more) noexcept nogil:
    """Make buckets to link so many more entries with; false without memory."""
    cdef uint64_t n_segments = _buckets_to_link(
        s.used.n_segments + more, s.segment_buckets
    )
    cdef uint64_t n_nodes = _buckets_to_link(s.used.n_nodes + more, s.node_buckets)
    return _grow(s, &s.segments, &s.segment_buckets, n_segments) and _grow(
        s, &s.nodes, &s.node_buckets, n_nodes
    )


cdef inline void _settle(
    const store* s, entry*** table, uint64_t* buckets, uint64_t charged
) noexcept nogil:
    """Give a table as many buckets as are charged, or keep it without memory for more."""
    cdef uint64_t b, half
    cdef entry* last
    cdef entry** shrunk
    while buckets[0] > max(charged, <uint64_t> MIN_BUCKETS):
        half = buckets[0] // 2
        for b in range(half):
            if table[0][b] == NULL:
                table[0][b] = table[0][b + half]
                continue
            last = table[0][b]
            while last.next != NULL:
                last = last.next
            last.next = table[0][b + half]
        buckets[0] = half
        shrunk = <entry**> realloc(table[0], half * sizeof(entry*))
        if shrunk != NULL:
            table[0] = shrunk
    if charged == 0:
        free(table[0])
        table[0] = NULL
        buckets[0] = 0
    elif buckets[0] < charged:
        _grow(s, table, buckets, charged)


cdef inline void tables_settle(store* s) noexcept nogil:
    """Have as many buckets as are charged; without memory, those that there are do."""
    _settle(s, &s.segments, &s.segment_buckets, s.used.segment_buckets)
    _settle(s, &s.nodes, &s.node_buckets, s.used.node_buckets)


cdef inline segment* segment_find(
    const store* s, uint64_t hash, uint32_t root, int32_t anchor, bint tail,
    const text_view* view, Py_ssize_t start, Py_ssize_t end,
) noexcept nogil:
    """Return the resident segment with this identity, its text compared, or NULL."""
    cdef segment* entry
    if s.segment_buckets == 0:
        return NULL
    entry = s.segments[hash & (s.segment_buckets - 1)]
    while entry != NULL:
        if (
            entry.hash == hash
            and entry.length == end - start
            and entry.root == root
            and entry.anchor == anchor
            and (entry.token < 0) == tail
            and text_equal(view, start, segment_text(entry), entry.kind, end - start)
        ):
            return entry
        entry = entry.next
    return NULL


cdef inline segment* segment_new(
    store* s, uint64_t hash, uint32_t root, int32_t anchor, int32_t token,
    const text_view* view, Py_ssize_t start, Py_ssize_t end, int kind,
    const uint32_t* ids, int64_t n_ids,
) noexcept nogil:
    """Make a segment that nobody holds and nothing is charged for; NULL without memory."""
    cdef uint64_t bucket
    cdef int64_t i
    cdef segment* made = <segment*> malloc(<size_t> segment_size(n_ids, end - start, kind))
    if made == NULL:
        return NULL
    made.hash = hash
    made.holds = 0
    made.n_ids = <uint32_t> n_ids
    made.length = <uint32_t> (end - start)
    made.root = root
    made.anchor = anchor
    made.token = token
    made.mark = s.mark  # no later weighing has it, until the marks come round
    made.kind = <uint8_t> kind
    made.is_charged = False
    for i in range(n_ids):
        segment_ids(made)[i] = ids[i]
    text_copy(view, start, end, kind, segment_text(made))
    bucket = hash & (s.segment_buckets - 1)
    made.next = s.segments[bucket]
    s.segments[bucket] = made
    return made


cdef inline void segment_release(store* s, segment* held) noexcept nogil:
    """Give one hold back; the last one frees the segment."""
    cdef segment** place
    held.holds -= 1
    if held.holds:
        return
    place = &s.segments[held.hash & (s.segment_buckets - 1)]
    while place[0] != held:
        place = &place[0].next
    place[0] = held.next
    if held.is_charged:
        uncharge_segment(&s.used, held)
    free(held)


cdef inline node* node_find(
    const store* s, const node* parent, const segment* child
) noexcept nogil:
    cdef node* entry
    if s.node_buckets == 0:
        return NULL
    entry = s.nodes[_node_bucket(s, parent, child)]
    while entry != NULL and not (entry.parent == parent and entry.segment == child):
        entry = entry.next
    return entry


cdef inline void node_add(store* s, node* made) noexcept nogil:
    """Put a node that is charged into the table, which has room for it."""
    cdef uint64_t bucket = _node_bucket(s, made.parent, made.segment)
    made.next = s.nodes[bucket]
    s.nodes[bucket] = made


cdef inline void node_remove(store* s, node* gone) noexcept nogil:
    """Take a childless node out of the table and its parent, and free it."""
    cdef node** place = &s.nodes[_node_bucket(s, gone.parent, gone.segment)]
    while place[0] != gone:
        place = &place[0].next
    place[0] = gone.next
    if gone.parent.last_child == gone:
        gone.parent.last_child = NULL
    gone.parent.n_children -= 1
    s.version += 1
    charge_nodes(&s.used, -1)
    segment_release(s, gone.segment)
    free(gone)


cdef inline int64_t tables_bound(int64_t n_segments, int64_t n_nodes) noexcept nogil:
    """Return the most bytes that tables of so many entries are left with."""
    return 8 * (
        max(<int64_t> MIN_BUCKETS, 4 * n_segments) + max(<int64_t> MIN_BUCKETS, 4 * n_nodes)
    )
