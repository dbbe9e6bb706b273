# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True
"""Faults on purpose, compiled as the core is: whoever watches the core must see them."""

from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    /* Else the compiler sees that nobody reads what was written, and leaves it out. */
    #define planted_keep(block) __asm__ volatile("" : : "r"(block) : "memory")
    """
    void planted_keep(void* block) noexcept


cdef uint32_t* _made(Py_ssize_t n) except NULL:
    cdef uint32_t* block = <uint32_t*> malloc(<size_t> n * 4)
    cdef Py_ssize_t i
    if block == NULL:
        raise MemoryError
    for i in range(n):
        block[i] = <uint32_t> i
    return block


def read_beyond(Py_ssize_t n):
    """Read the place behind the last one."""
    cdef uint32_t* block = _made(n)
    cdef uint32_t found = block[n]
    free(block)
    return found


def write_beyond(Py_ssize_t n):
    """Write to the place behind the last one."""
    cdef uint32_t* block = _made(n)
    block[n] = 1
    planted_keep(block)
    free(block)


def read_freed(Py_ssize_t n):
    """Read what was given back."""
    cdef uint32_t* block = _made(n)
    free(block)
    return block[0]


def branch_on_unset(Py_ssize_t n):
    """Decide by what nobody has written."""
    cdef uint32_t* block = <uint32_t*> malloc(<size_t> n * 4)
    if block == NULL:
        raise MemoryError
    cdef bint found = block[n // 2] > 7
    free(block)
    return found


def overflow(int32_t n):
    """Add one to a number, which must not be the largest."""
    return n + 1


def shift(int32_t n):
    """Shift by so many bits, which must not be more than there are."""
    return (<int32_t> 1) << n


def leak(Py_ssize_t n):
    """Forget a block."""
    return _made(n)[0]
