# cython: language_level=3
"""TokenIds and JoinedIds, for the modules that make them."""

from libc.stdint cimport int64_t, uint32_t


cdef class TokenIds:
    cdef uint32_t* data
    cdef Py_ssize_t length
    cdef bint is_filled


cdef class JoinedIds:
    cdef uint32_t* data
    cdef Py_ssize_t n_ids
    cdef Py_ssize_t size
    cdef int64_t* ends
    cdef Py_ssize_t n_texts
    cdef Py_ssize_t ends_size

    cdef uint32_t* room(self, Py_ssize_t n) except NULL
    cdef void commit(self, Py_ssize_t n) noexcept


cdef TokenIds token_ids_uninitialised(Py_ssize_t length)
cdef bint copy_plain_ids(list items, Py_ssize_t n, uint32_t* out) noexcept
