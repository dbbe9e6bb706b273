# cython: language_level=3
"""What one wrapper counts; changed under the lock of its trie."""

from libc.stdint cimport int64_t


cdef class Counters:
    cdef int64_t hits
    cdef int64_t misses
    cdef int64_t cached_tokens
    cdef int64_t uncached_tokens
    cdef int64_t pass_throughs
    cdef int64_t self_check_failures
