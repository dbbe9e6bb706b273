# cython: language_level=3
"""What stays: a wheel of generations, and a gate before it. Header only.

The *wheel* lists the leaves in four buckets by rank, and goes round: the oldest leaf of
the bucket under the hand is the next to go. A rank is the hand of some moment and up to
three more, so every listed rank is one of the four from the hand on. Only leaves are
listed: a hit moves one node however long its path is, the rest of the path just counts,
and no child outlives its parent.

The *gate* is open to everything new until more is lost by that than won: then a newcomer
must out-rank what it would displace, and a first sighting has no rank.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

from tokcache._sketch cimport COUNT_MAX, ENTRIES_A_LINE, sketch, sketch_halve
from tokcache._store cimport node, store
from tokcache._text cimport tokcache_fold


cdef extern from *:
    """
    /* For measuring what the policy costs a hit: TOKCACHE_NO_POLICY=1 at build time
       leaves only the move of the deepest leaf. */
    #ifdef TOKCACHE_NO_POLICY
    #define TOKCACHE_HAS_POLICY 0
    #else
    #define TOKCACHE_HAS_POLICY 1
    #endif
    """
    const bint TOKCACHE_HAS_POLICY


cdef enum:
    BUCKETS = 4
    RANK_MAX = BUCKETS - 1  # above the hand
    # All of these are as found by replaying an hour of chat traffic.
    EPOCH_SIGHTINGS = 10  # an entry
    EPOCH_MIN_ENTRIES = 32
    GATE_REQUESTS = 100  # between two looks
    HOT = 9  # sightings from which a hit says nothing for or against the gate
    REGRET = 2  # sightings from which a miss is one that should have been a hit


cdef struct wheel:
    node[BUCKETS] buckets  # ends.newer is the oldest leaf, ends.older the newest
    node planned  # leaves that a plan has taken out, the first one oldest
    uint32_t hand
    uint16_t epoch
    bint is_closed
    int64_t hits  # tokens, not of what is hot anyway; decaying
    int64_t regrets  # tokens; decaying
    uint64_t sightings  # in this epoch
    uint64_t requests


cdef inline uint32_t path_key(
    const uint64_t* keys, uint32_t parent, uint64_t hash
) noexcept nogil:
    """Return the key of a path that goes on with a segment of this hash."""
    return <uint32_t> tokcache_fold(hash ^ keys[2], parent ^ keys[3])


cdef inline void _list_init(node* ends) noexcept nogil:
    ends.newer = ends
    ends.older = ends


cdef inline void wheel_init(wheel* w) noexcept nogil:
    cdef int i
    for i in range(BUCKETS):
        _list_init(&w.buckets[i])
    _list_init(&w.planned)


cdef inline void wheel_reset(wheel* w) noexcept nogil:
    """Forget all that was learned; no leaf is listed any more."""
    w.is_closed = False
    w.hits = 0
    w.regrets = 0
    w.sightings = 0
    w.requests = 0


cdef inline void _insert_between(node* leaf, node* older, node* newer) noexcept nogil:
    leaf.older = older
    leaf.newer = newer
    older.newer = leaf
    newer.older = leaf


cdef inline bint leaf_is_listed(const node* leaf) noexcept nogil:
    return leaf.newer != NULL


cdef inline void leaf_remove(node* leaf) noexcept nogil:
    leaf.older.newer = leaf.newer
    leaf.newer.older = leaf.older
    leaf.newer = NULL
    leaf.older = NULL


cdef inline node* _bucket(wheel* w, uint32_t rank) noexcept nogil:
    return &w.buckets[rank % BUCKETS]


cdef inline uint32_t later(uint32_t rank, uint32_t other) noexcept nogil:
    """Return the higher of two ranks, which may wrap around.

    Ranks lie close together: a parent's is at most that of its last use, and since then
    one of its leaves has stayed ahead of the hand.
    """
    return rank if <int32_t> (rank - other) > 0 else other


cdef inline void leaf_add_newest(wheel* w, node* leaf) noexcept nogil:
    _insert_between(leaf, _bucket(w, leaf.rank).older, _bucket(w, leaf.rank))


cdef inline void leaf_add_oldest(wheel* w, node* leaf, uint32_t rank) noexcept nogil:
    _insert_between(leaf, _bucket(w, rank), _bucket(w, rank).newer)


cdef inline void leaf_plan(wheel* w, node* leaf) noexcept nogil:
    """Put a leaf that is in no bucket behind those that a plan has taken out."""
    _insert_between(leaf, w.planned.older, &w.planned)


cdef inline node* wheel_oldest(wheel* w, uint32_t* hand) noexcept nogil:
    """Return the leaf to go next, the hand moved to it over empty buckets, or NULL."""
    cdef int i
    for i in range(BUCKETS):
        if _bucket(w, hand[0] + i).newer != _bucket(w, hand[0] + i):
            hand[0] += i
            return _bucket(w, hand[0]).newer
    return NULL


cdef inline uint32_t rank_of(const wheel* w, int count) noexcept nogil:
    """Return the rank that so many sightings, at least one, are worth now."""
    return w.hand + <uint32_t> min(<int> RANK_MAX, count - w.is_closed)


cdef inline void node_age(const wheel* w, node* n) noexcept nogil:
    """Bring a count up to the epoch."""
    cdef uint16_t behind = w.epoch - n.epoch
    n.count = n.count >> min(behind, <uint16_t> 8)
    n.epoch = w.epoch


cdef inline int64_t node_sight(wheel* w, node* n) noexcept nogil:
    """Count a resident that was asked for; return its ids unless it is hot anyway."""
    cdef uint32_t rank
    if n.epoch != w.epoch:
        node_age(w, n)
    n.count += n.count < COUNT_MAX
    rank = rank_of(w, n.count)
    if <int32_t> (rank - n.rank) > 0:
        n.rank = rank
    return n.segment.n_ids if n.count < HOT else 0


cdef inline void path_sighted(
    wheel* w, node* reached, uint64_t sightings, int64_t hits
) noexcept nogil:
    """Note that so many nodes were sighted; the last one, if a leaf, is the newest."""
    w.sightings += sightings
    w.hits += hits
    if leaf_is_listed(reached):
        leaf_remove(reached)
        leaf_add_newest(w, reached)


cdef inline void _epoch_end(wheel* w, sketch* counts) noexcept nogil:
    sketch_halve(counts)
    w.epoch += 1
    w.sightings = 0


cdef inline bint _is_nearly_full(const store* s) noexcept nogil:
    return (
        s.used.memory_bytes > s.max_memory_bytes - s.max_memory_bytes // 10
        or s.used.resident_bytes > s.max_resident_bytes - s.max_resident_bytes // 10
    )


cdef inline void request_count(wheel* w, sketch* counts, const store* s) noexcept nogil:
    """Count a request; now and then end an epoch, or move the gate."""
    cdef uint64_t entries = s.used.n_nodes
    if not TOKCACHE_HAS_POLICY:
        return
    if counts.n_lines:
        # Where the budget keeps the sketch small, it must not fill up meanwhile.
        entries = min(entries, counts.n_lines * ENTRIES_A_LINE)
    if w.sightings >= EPOCH_SIGHTINGS * max(entries, <uint64_t> EPOCH_MIN_ENTRIES):
        _epoch_end(w, counts)
    w.requests += 1
    if w.requests % GATE_REQUESTS:
        return
    if _is_nearly_full(s):
        if 2 * w.regrets > 3 * w.hits:
            w.is_closed = True
        elif 10 * w.regrets < 9 * w.hits:
            w.is_closed = False
    w.hits = w.hits * 4 // 5
    w.regrets = w.regrets * 4 // 5
