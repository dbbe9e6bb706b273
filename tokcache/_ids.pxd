# cython: language_level=3
"""TokenIds, for the modules that make them."""

from libc.stdint cimport uint32_t


cdef class TokenIds:
    cdef uint32_t* data
    cdef Py_ssize_t length
    cdef bint is_filled


cdef TokenIds token_ids_uninitialised(Py_ssize_t length)
cdef bint copy_plain_ids(list items, Py_ssize_t n, uint32_t* out) noexcept
