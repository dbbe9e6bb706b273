# cython: language_level=3
"""A prompt between its walk and its link."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tokcache._ids cimport TokenIds
from tokcache._pieces cimport piece_list, run, run_list
from tokcache._text cimport text_view
from tokcache._trie cimport piece, walk
from tokcache._walker cimport Walker


cdef enum feed_status:
    TAKEN = 0
    EACH_SEGMENT = 1  # boundary ids differ from the scan: encode each segment by itself
    WHOLE_TEXT = 2  # an anchor or a boundary is not where it must be: encode the text


cdef class Plan:
    cdef readonly Walker walker
    cdef str text
    cdef text_view view
    cdef bint special
    cdef int64_t started  # in ns; 0 if encodes are not timed
    cdef walk reached
    cdef uint64_t version
    cdef uint64_t clears
    cdef uint32_t* pool  # the matched path's ids, then those of the pieces as they come
    cdef int64_t pool_size
    cdef int64_t pool_used
    cdef int64_t n_matched
    cdef int64_t matched_at  # in the pool, unless
    cdef bint is_held  # the lock is, since the walk: what it matched is still there
    cdef piece_list pieces
    cdef run_list runs
    cdef readonly bint has_boundary
    cdef readonly bint hit
    cdef readonly int64_t cached_tokens
    cdef readonly int64_t uncached_tokens
    cdef readonly tuple untried

    cdef int _reserve(self, int64_t more) except -1
    cdef int _prepare(self) except -1
    cdef void _begin(self, str text, const walk* w, bint special, int64_t started) noexcept
    cdef int _let_go(self) except -1
    cdef int _cut(self) except -1
    cdef bint _has_untried(self) noexcept
    cdef int _note_untried(self) except -1
    cdef int _group(self) except -1
    cdef int _find_known(self, bint copies) except -1
    cdef run* _checked_run(self, Py_ssize_t i) except NULL
    cdef str _with_anchor(self, const piece* first, Py_ssize_t end)
    cdef str _run_text(self, const run* r)
    cdef int64_t _take(self, ids) except -1
    cdef feed_status _feed(self, run* r, ids) except? WHOLE_TEXT
    cdef feed_status _check(self, run* r, int64_t start) noexcept
    cdef TokenIds _finish(self)
    cdef TokenIds _collected(self)
    cdef int64_t _weigh(self) except -1
    cdef void _write(self, uint32_t* out) noexcept nogil
    cdef int _conclude(self) except -1
    cdef TokenIds _finish_whole(self, TokenIds result)
    cdef bint _split(self, const run* r, int64_t start) noexcept
    cdef int _link(self) except -1
    cdef int _count(self) except -1
