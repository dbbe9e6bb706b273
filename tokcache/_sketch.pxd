# cython: language_level=3
"""How often was this seen lately? A count-min sketch of 4-bit counters. Header only.

A key has one counter in each of four rows, all in one cache line; its count is the least
of them, which other keys can only raise. One more sighting raises only those that are
less than the new count (a conservative update): a busy neighbour's counter stays.

Keys are already hashed with the trie's secret, so nobody can aim at another's counters.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy


cdef enum:
    COUNT_MAX = 15
    SKETCH_ROWS = 4
    LINE_BYTES = 64
    ROW_BYTES = 16
    # A line of 128 counters for four entries, or two after a doubling: 16 to 32 bytes an
    # entry. With 12 sightings an entry of what is not resident in an epoch, a first one is
    # taken for a later one 20 to 3 times in a hundred (with 8 bytes, 85 times); an epoch
    # has fewer.
    ENTRIES_A_LINE = 4
    MIN_LINES = 8
    # The share of the resident budget that it may take. Where the smallest is more than
    # that there is none, and every sighting counts as the first.
    SKETCH_SHARE = 16


cdef struct sketch:
    void* block  # as allocated
    uint8_t* lines  # where its first cache line begins
    uint64_t n_lines  # a power of two, or zero
    int shift  # the top bits of a mixed key are the number of its line


cdef inline int64_t sketch_bytes(uint64_t n_lines) noexcept nogil:
    """Return what so many lines take from the allocator, the alignment included."""
    cdef int64_t size = LINE_BYTES * <int64_t> (n_lines + 1)
    return size + 16 if n_lines else 0


cdef inline bint sketch_may_have(uint64_t n_lines, int64_t budget) noexcept nogil:
    return sketch_bytes(n_lines) <= budget // SKETCH_SHARE


cdef inline uint64_t lines_for(
    uint64_t entries, uint64_t n_lines, int64_t budget
) noexcept nogil:
    """Return how many lines suit so many entries: doubled when full, halved at a quarter."""
    while n_lines * ENTRIES_A_LINE < entries and sketch_may_have(2 * n_lines, budget):
        n_lines *= 2
    while n_lines > MIN_LINES and 4 * entries < n_lines * ENTRIES_A_LINE:
        n_lines //= 2
    return n_lines


cdef inline uint64_t _mixed(uint32_t key) noexcept nogil:
    return <uint64_t> key * <uint64_t> 0x9E3779B97F4A7C15


cdef inline uint8_t* _line(const sketch* s, uint64_t mixed) noexcept nogil:
    return s.lines + (mixed >> s.shift) * LINE_BYTES


cdef inline int _counter(const uint8_t* line, uint64_t mixed, int row) noexcept nogil:
    cdef int column = <int> (mixed >> (8 + 5 * row)) & 31
    return line[row * ROW_BYTES + column // 2] >> (4 * (column & 1)) & 15


cdef inline void _set_counter(
    uint8_t* line, uint64_t mixed, int row, int count
) noexcept nogil:
    cdef int column = <int> (mixed >> (8 + 5 * row)) & 31
    cdef uint8_t* place = line + row * ROW_BYTES + column // 2
    cdef int shift = 4 * (column & 1)
    place[0] = <uint8_t> ((place[0] & ~(15 << shift)) | count << shift)


cdef inline int sketch_count(const sketch* s, uint32_t key) noexcept nogil:
    """Return at least how often a key was seen; zero if there is no sketch."""
    cdef uint64_t mixed = _mixed(key)
    cdef int least = COUNT_MAX
    cdef int row
    if s.n_lines == 0:
        return 0
    for row in range(SKETCH_ROWS):
        least = min(least, _counter(_line(s, mixed), mixed, row))
    return least


cdef inline void sketch_raise(sketch* s, uint32_t key, int count) noexcept nogil:
    """Make a key's count at least so much."""
    cdef uint64_t mixed = _mixed(key)
    cdef uint8_t* line
    cdef int row
    if s.n_lines == 0:
        return
    line = _line(s, mixed)
    for row in range(SKETCH_ROWS):
        if _counter(line, mixed, row) < count:
            _set_counter(line, mixed, row, count)


cdef inline void sketch_halve(sketch* s) noexcept nogil:
    """Halve every counter."""
    cdef uint64_t* words = <uint64_t*> s.lines
    cdef uint64_t i
    for i in range(s.n_lines * (LINE_BYTES // 8)):
        words[i] = words[i] >> 1 & <uint64_t> 0x7777777777777777


cdef inline void _merge_line(uint8_t* out, const uint8_t* other) noexcept nogil:
    cdef int i
    for i in range(LINE_BYTES):
        out[i] = max(out[i] & 15, other[i] & 15) | max(out[i] & 240, other[i] & 240)


cdef inline int64_t sketch_resize(sketch* s, uint64_t n_lines) noexcept nogil:
    """Change the number of lines and return by how many bytes it grew.

    Counts stay: a line is split into two equal ones, or two are merged into one with the
    larger of their counters. Without memory everything stays as it is.
    """
    cdef sketch made
    cdef uint64_t i, old
    made.block = calloc(n_lines + 1, LINE_BYTES)
    if made.block == NULL:
        return 0
    made.lines = <uint8_t*> (
        (<size_t> made.block + LINE_BYTES - 1) & ~(<size_t> LINE_BYTES - 1)
    )
    made.n_lines = n_lines
    made.shift = 64
    while n_lines > 1:
        made.shift -= 1
        n_lines //= 2
    for i in range(max(made.n_lines, s.n_lines) if s.n_lines else 0):
        # The number of a line is the top bits of a hash: more lines, more bits.
        old = i * s.n_lines // max(made.n_lines, s.n_lines)
        _merge_line(
            made.lines + i * made.n_lines // max(made.n_lines, s.n_lines) * LINE_BYTES,
            s.lines + old * LINE_BYTES,
        )
    old = s.n_lines
    free(s.block)
    s[0] = made
    return sketch_bytes(made.n_lines) - sketch_bytes(old)


cdef inline void sketch_free(sketch* s) noexcept nogil:
    free(s.block)
    s.block = NULL
    s.lines = NULL
    s.n_lines = 0
