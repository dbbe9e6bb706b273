# cython: language_level=3
"""The trie, for the module that walks and links on behalf of wrappers."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from tokcache._policy cimport wheel
from tokcache._scan cimport Scanner, scan_cursor
from tokcache._sketch cimport sketch
from tokcache._store cimport node, root_info, segment, store
from tokcache._text cimport text_view


cdef enum:
    TAIL_CHARS = 64  # a tail up to this long is stored at once, a longer one when seen again
    NO_TOKEN = -1


cdef enum link_status:
    LINKED
    OVERSIZED  # the path alone is over a budget: nothing changed
    NO_MEMORY  # nothing changed
    STALE  # cleared, or the path was evicted, since the walk: nothing changed


cdef struct piece:
    # A segment or the tail of a text, on its way into the trie.
    Py_ssize_t start
    Py_ssize_t end
    int32_t anchor
    int32_t token  # NO_TOKEN: the tail
    int kind
    bint is_known  # its payload was found under some path of the root
    uint64_t hash
    int64_t ids_at
    int64_t n_ids
    # Set by a link:
    uint32_t key  # in the sketch
    int count  # sightings, this one included


cdef struct walk:
    node* reached
    Py_ssize_t position
    int32_t anchor
    bint is_complete


cdef struct trie:
    store store
    wheel wheel
    sketch counts  # of what is not resident
    root_info** roots
    uint32_t n_roots
    uint32_t n_closed
    uint32_t last_closed  # root, where one is closed
    int64_t insertions
    int64_t evictions
    int64_t oversized
    int64_t refused  # prompts of which not everything was admitted


cdef class Trie:
    cdef trie t

    cdef int walk(
        self, uint32_t root, Scanner scanner, const text_view* view, walk* w,
        bint is_request,
    ) except -1
    cdef segment* find(self, uint32_t root, const text_view* view, const piece* p) noexcept
    cdef uint64_t hash_piece(self, uint32_t root, const text_view* view, const piece* p) noexcept nogil
    cdef void clear_root(self, uint32_t root, bint close) noexcept
    cdef link_status link(
        self, uint32_t root, walk* w, const text_view* view, piece* pieces, Py_ssize_t n,
        const uint32_t* ids, bint tails_allowed,
    ) noexcept


cdef void copy_path(const node* reached, uint32_t* out) noexcept nogil
