# cython: language_level=3
"""The added-token scanner, for the modules that walk with it."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from tokcache._filter cimport token_filter
from tokcache._text cimport text_view


cdef enum token_status:
    UNTRIED = 0  # eligible; never seen as a boundary yet
    TRUSTED = 1
    REFUSED = 2


cdef struct radix_edge:
    uint64_t key  # parent node and first code point, plus one; 0: free
    uint32_t child  # the node it leads to; 0: a leaf, there are no longer tokens
    uint32_t label  # where its label begins in the pool
    uint32_t length  # of the label
    int32_t token  # the token that ends here, or -1


cdef struct phase_index:
    radix_edge* edges
    uint32_t* pool
    uint64_t edge_mask
    int n_tokens
    token_filter filter


cdef struct scan_cursor:
    text_view view
    Py_ssize_t at  # where the chain of matches goes on
    bint is_known  # is the next phase-1 match known?
    Py_ssize_t start  # of that match; the text's length if there is none
    Py_ssize_t end
    int32_t token


cdef struct scan_match:
    Py_ssize_t start
    Py_ssize_t end
    int32_t token


cdef class Scanner:
    cdef phase_index[2] phases
    cdef uint8_t* statuses
    cdef uint32_t* ids
    cdef uint64_t* id_table  # token index and id, open addressing
    cdef uint64_t id_mask
    cdef readonly tuple contents

    cdef void begin(self, scan_cursor* cursor, const text_view* view, Py_ssize_t at) noexcept nogil
    cdef bint next_match(self, scan_cursor* cursor, scan_match* match) noexcept nogil
    cdef bint next_boundary(self, scan_cursor* cursor, scan_match* match) noexcept nogil
    cdef int32_t boundary_of_id(self, uint32_t token_id) noexcept nogil
    cdef int _index_ids(self, Py_ssize_t n) except -1
    cdef list _scan(self, str text, Py_ssize_t start, bint only_boundaries)
    cdef Py_ssize_t _checked(self, Py_ssize_t index) except -1
