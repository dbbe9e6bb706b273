# cython: language_level=3
"""One wrapper's view of one root."""

from libc.stdint cimport int64_t, uint32_t

from tokcache._counters cimport Counters
from tokcache._ids cimport TokenIds
from tokcache._scan cimport Scanner
from tokcache._trie cimport Trie, walk


cdef class Walker:
    cdef readonly Trie trie
    cdef readonly Scanner scanner
    cdef uint32_t root
    cdef bint owns_root
    cdef uint32_t* affixes  # before, then after
    cdef Py_ssize_t n_before
    cdef Py_ssize_t n_after
    cdef readonly bint has_affixes
    cdef bint extend_on_hit
    cdef bint cache_tails
    cdef Counters tally

    cdef object _lookup(self, str text, bint special, bint count_only, bint counts)
    cdef TokenIds _hit(self, const walk* w, bint special, int64_t started, bint counts)
    cdef int _count_hit(self, int64_t n_ids, int64_t started) except -1
    cdef TokenIds _result(self, int64_t n_ids, bint special)
    cdef uint32_t* _put_around(self, uint32_t* out, int64_t n_ids, bint special) noexcept nogil
    cdef int64_t _affix_length(self, bint special) noexcept nogil
