# cython: language_level=3
"""Which leaf goes first: least recently used. Header only.

Only leaves are listed, so a hit moves one node however long its path is, and an
eviction never leaves a child without its parent. A parent that becomes a leaf enters at
the old end: it was kept for its children only.
"""

from tokcache._store cimport node


cdef struct leaf_list:
    node ends  # ends.newer is the oldest leaf, ends.older the newest


cdef inline void leaves_init(leaf_list* leaves) noexcept nogil:
    leaves.ends.newer = &leaves.ends
    leaves.ends.older = &leaves.ends


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


cdef inline void leaf_add_newest(leaf_list* leaves, node* leaf) noexcept nogil:
    _insert_between(leaf, leaves.ends.older, &leaves.ends)


cdef inline void leaf_add_oldest(leaf_list* leaves, node* leaf) noexcept nogil:
    _insert_between(leaf, &leaves.ends, leaves.ends.newer)


cdef inline void leaf_touch(leaf_list* leaves, node* leaf) noexcept nogil:
    """Note a use of the deepest node of a walk; only a leaf has a place to move."""
    if leaf_is_listed(leaf) and leaves.ends.older != leaf:
        leaf_remove(leaf)
        leaf_add_newest(leaves, leaf)


cdef inline node* leaf_victim(leaf_list* leaves) noexcept nogil:
    """Return the leaf to evict next, or NULL if no leaf is listed."""
    if leaves.ends.newer == &leaves.ends:
        return NULL
    return leaves.ends.newer
