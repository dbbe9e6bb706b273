# cython: language_level=3
"""A view of a str's code points: read, compare, narrow, hash. Header only.

A str keeps its code points in 1, 2 or 4 bytes each (PEP 393). Stored text is kept in the
narrowest of the three that fits it, so that a segment found once in an ASCII prompt is
found again in a prompt that has gained an emoji. Nothing is transcoded.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset


cdef extern from *:
    """
    #include <stdint.h>

    /* The two halves of a 64 x 64 bit product, folded by exclusive or: one
       multiplication mixes sixteen bytes (the step of the wyhash family). */
    static inline uint64_t tokcache_fold(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    uint64_t tokcache_fold(uint64_t a, uint64_t b) noexcept nogil
    int PyUnicode_KIND(object text) noexcept
    const void* PyUnicode_DATA(object text) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept


cdef struct text_view:
    const void* data
    Py_ssize_t length  # code points
    int kind  # bytes a code point: 1, 2 or 4


ctypedef fused code_t:
    uint8_t
    uint16_t
    uint32_t


cdef enum:
    # Code points compared between two looks at the result: long enough to be
    # vectorised, short enough to stop early.
    COMPARE_BLOCK = 64
    # Bytes hashed at a time; wide text is narrowed into a buffer of this size.
    HASH_BLOCK = 1024


cdef inline text_view text_of(str text):
    """View a str; valid as long as the str lives."""
    cdef text_view view
    view.data = PyUnicode_DATA(text)
    view.length = PyUnicode_GET_LENGTH(text)
    view.kind = PyUnicode_KIND(text)
    return view


cdef inline bint _widening_equal(
    const code_t* wide, const void* narrow, int narrow_kind, Py_ssize_t length
) noexcept nogil:
    """Compare wide code points with narrower ones, a block at a time."""
    cdef const uint8_t* one = <const uint8_t*> narrow
    cdef const uint16_t* two = <const uint16_t*> narrow
    cdef code_t difference
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t stop, i
    while at < length:
        stop = min(at + COMPARE_BLOCK, length)
        difference = 0
        if narrow_kind == 1:
            for i in range(at, stop):
                difference |= wide[i] ^ <code_t> one[i]
        else:
            for i in range(at, stop):
                difference |= wide[i] ^ <code_t> two[i]
        if difference:
            return False
        at = stop
    return True


cdef inline bint text_equal(
    const text_view* view, Py_ssize_t at, const void* stored, int kind, Py_ssize_t length
) noexcept nogil:
    """Tell whether ``length`` code points from ``at`` are the stored ones."""
    cdef const char* data = <const char*> view.data + at * view.kind
    if kind == view.kind:
        return memcmp(data, stored, <size_t> (length * kind)) == 0
    if kind > view.kind:
        # Kept in the narrowest kind, so it has a code point that the view cannot hold.
        return False
    if view.kind == 2:
        return _widening_equal[uint16_t](<const uint16_t*> data, stored, kind, length)
    return _widening_equal[uint32_t](<const uint32_t*> data, stored, kind, length)


cdef inline code_t _all_bits(const code_t* data, Py_ssize_t length) noexcept nogil:
    cdef code_t bits = 0
    cdef Py_ssize_t i
    for i in range(length):
        bits |= data[i]
    return bits


cdef inline int text_narrowest(
    const text_view* view, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    """Return the fewest bytes a code point (1, 2 or 4) that fit the range."""
    cdef uint32_t bits
    if view.kind == 1:
        return 1
    if view.kind == 2:
        bits = _all_bits[uint16_t](<const uint16_t*> view.data + start, end - start)
    else:
        bits = _all_bits[uint32_t](<const uint32_t*> view.data + start, end - start)
    if bits < 0x100:
        return 1
    return 2 if bits < 0x10000 else 4


cdef inline void text_copy(
    const text_view* view, Py_ssize_t start, Py_ssize_t end, int kind, void* out
) noexcept nogil:
    """Copy the range into ``out`` with ``kind`` bytes a code point, which must fit."""
    cdef Py_ssize_t length = end - start
    cdef const uint16_t* two = <const uint16_t*> view.data
    cdef const uint32_t* four = <const uint32_t*> view.data
    cdef Py_ssize_t i
    if kind == view.kind:
        memcpy(out, <const char*> view.data + start * kind, <size_t> (length * kind))
    elif view.kind == 2:
        for i in range(length):
            (<uint8_t*> out)[i] = <uint8_t> two[start + i]
    elif kind == 1:
        for i in range(length):
            (<uint8_t*> out)[i] = <uint8_t> four[start + i]
    else:
        for i in range(length):
            (<uint16_t*> out)[i] = <uint16_t> four[start + i]


cdef inline uint64_t _read64(const uint8_t* data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline uint64_t _hash_block(
    const uint8_t* data, size_t size, uint64_t state, const uint64_t* keys
) noexcept nogil:
    cdef uint64_t a = state ^ keys[0]
    cdef uint64_t b = state ^ keys[1]
    cdef uint8_t rest[32]
    cdef size_t left = size
    while left >= 32:
        a = tokcache_fold(_read64(data) ^ a, _read64(data + 8) ^ keys[2])
        b = tokcache_fold(_read64(data + 16) ^ b, _read64(data + 24) ^ keys[3])
        data += 32
        left -= 32
    if left:
        memset(rest, 0, 32)
        memcpy(rest, data, left)
        a = tokcache_fold(_read64(rest) ^ a, _read64(rest + 8) ^ keys[2])
        b = tokcache_fold(_read64(rest + 16) ^ b, _read64(rest + 24) ^ keys[3])
    return tokcache_fold(a ^ <uint64_t> size, b ^ keys[3])


cdef inline uint64_t text_hash(
    const text_view* view, Py_ssize_t start, Py_ssize_t end, int kind, uint64_t state,
    const uint64_t* keys
) noexcept nogil:
    """Hash the range as it would be stored; equal for all kinds that may hold it.

    ``kind`` is the narrowest one, ``state`` what else belongs to the identity, ``keys``
    four secret words. A hash only finds candidates: what it finds is always compared.
    """
    cdef uint8_t buffer[HASH_BLOCK]
    cdef Py_ssize_t step = HASH_BLOCK // kind
    cdef Py_ssize_t at = start
    cdef Py_ssize_t stop
    cdef const uint8_t* data
    while at < end:
        stop = min(at + step, end)
        if kind == view.kind:
            data = <const uint8_t*> view.data + at * kind
        else:
            text_copy(view, at, stop, kind, buffer)
            data = buffer
        state = _hash_block(data, <size_t> ((stop - at) * kind), state, keys)
        at = stop
    return tokcache_fold(state ^ keys[0], keys[1] ^ <uint64_t> kind)
