# cython: language_level=3
"""Filters that keep ordinary text away from the trie of tokens. Header only.

They tell at which of BLOCK places together a token may begin, without a branch for each
place. Tokens with few different first code points are looked for by comparison with
those. What that lets pass, and every place where first code points are many, is looked
up in a hash table by its first KEY code points, of all tokens; an entry says what
may follow those. Code points are folded to bytes first, so that one table serves every
kind of text. All this may let pass what begins no token, never hold back what does.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from tokcache._text cimport code_t


cdef enum:
    BLOCK = 32  # places looked at together
    KEY = 4  # code points that a place is looked up by
    WINDOW = KEY + 1  # and the one that follows them
    MAX_FIRST = 4  # first code points that are searched for by comparison
    MANY = MAX_FIRST + 1
    # 26 random words let 0.2 % of all windows pass, 10,000 in 256 KiB 0.6 %. A quarter of
    # that table is nearer to the processor, and yet half as fast: what passes wrongly
    # goes through the trie.
    SLOTS_A_KEY = 64
    SLOTS_MAX = 1 << 18
    SHORT = 0x80  # in a slot: a token with fewer than KEY code points begins so


cdef struct token_filter:
    uint32_t[MAX_FIRST] first  # in order; unused places repeat the first one
    int[3] n_first  # those that fit 1, 2 and 4 bytes; or MANY, whatever the text
    uint8_t[256] starts  # by a folded first code point
    uint8_t[256] follows  # which of seven bits stands for a folded code point
    uint8_t* slots  # by a hash of a key; the bits of what follows it in some token
    int shift  # of a product, to its slot
    # Tokens shorter than a key are all known by as much as the shortest of them has.
    uint32_t short_mask  # what of a key that is; 0: there are none


cdef inline uint8_t filter_fold(uint32_t code) noexcept nogil:
    """Make a byte of a code point: itself, if it is of Latin-1."""
    return <uint8_t> (code ^ code >> 8 ^ code >> 16)


cdef inline uint64_t fibonacci(uint64_t key) noexcept nogil:
    """Multiply by 2**64 / golden ratio: the upper half depends on all lower bits."""
    return key * <uint64_t> 0x9E3779B97F4A7C15


cdef inline uint64_t filter_slot(const token_filter* f, uint32_t key) noexcept nogil:
    return fibonacci(key) >> f.shift


cdef inline uint32_t _key(const code_t* data) noexcept nogil:
    """Fold what a place is looked up by (for bytes this compiles to one load)."""
    return (
        filter_fold(data[0])
        | <uint32_t> filter_fold(data[1]) << 8
        | <uint32_t> filter_fold(data[2]) << 16
        | <uint32_t> filter_fold(data[3]) << 24
    )


cdef inline uint8_t _window_bits(
    const token_filter* f, const code_t* data, bint has_short
) noexcept nogil:
    """Return bits that are not all 0 if a token may begin with this window."""
    cdef uint32_t key = _key(data)
    cdef uint8_t bits = f.slots[filter_slot(f, key)] & f.follows[filter_fold(data[KEY])]
    if has_short:
        bits |= f.slots[filter_slot(f, key & f.short_mask)] & SHORT
    return bits


cdef inline bint filter_starts(const token_filter* f, uint32_t code) noexcept nogil:
    """Tell whether a token may begin with this code point."""
    return f.starts[filter_fold(code)]


cdef inline bint filter_passes(
    const token_filter* f, const code_t* data, Py_ssize_t at, Py_ssize_t limit
) noexcept nogil:
    """Tell whether a token may begin at ``at``, if its first code point is one."""
    return limit - at < WINDOW or _window_bits(f, data + at, f.short_mask != 0)


cdef inline bint filter_has_first(
    const token_filter* f, int n_first, const code_t* data
) noexcept nogil:
    """Tell whether any of BLOCK code points is a first one (compiles to vectors)."""
    cdef code_t a = <code_t> f.first[0]
    cdef code_t b = <code_t> f.first[1]
    cdef code_t c = <code_t> f.first[2]
    cdef code_t d = <code_t> f.first[3]
    cdef code_t found = 0
    cdef int i
    if n_first == 1:
        for i in range(BLOCK):
            found |= <code_t> (data[i] == a)
    elif n_first == 2:
        for i in range(BLOCK):
            found |= <code_t> (data[i] == a) | <code_t> (data[i] == b)
    else:
        for i in range(BLOCK):
            found |= (
                <code_t> (data[i] == a)
                | <code_t> (data[i] == b)
                | <code_t> (data[i] == c)
                | <code_t> (data[i] == d)
            )
    return found != 0


cdef inline uint32_t _gathered(const uint8_t* flags) noexcept nogil:
    """Make a bit each of BLOCK bytes that are 0 or 1."""
    cdef uint32_t bits = 0
    cdef uint64_t eight
    cdef int i, j
    for i in range(0, BLOCK, 8):
        eight = 0
        for j in range(8):
            eight |= <uint64_t> flags[i + j] << 8 * j
        # The product moves bit 8 * j to bit 56 + j.
        bits |= <uint32_t> (eight * <uint64_t> 0x0102040810204080 >> 56) << i
    return bits


cdef inline uint32_t filter_firsts(
    const token_filter* f, int n_first, const code_t* data
) noexcept nogil:
    """Return a bit for each of BLOCK code points that is a first one."""
    cdef code_t a = <code_t> f.first[0]
    cdef code_t b = <code_t> f.first[1]
    cdef code_t c = <code_t> f.first[2]
    cdef code_t d = <code_t> f.first[3]
    cdef uint8_t[BLOCK] found
    cdef int i
    if n_first == 1:
        for i in range(BLOCK):
            found[i] = data[i] == a
    else:
        for i in range(BLOCK):
            found[i] = (
                <uint8_t> (data[i] == a)
                | <uint8_t> (data[i] == b)
                | <uint8_t> (data[i] == c)
                | <uint8_t> (data[i] == d)
            )
    return _gathered(found)


cdef inline uint32_t _windows(
    const token_filter* f, const uint8_t* folded, bint has_short
) noexcept nogil:
    cdef uint32_t places = 0
    cdef uint8_t passes
    cdef int i, j
    # In eights, which compilers unroll. Where it stands is only asked if anything passed:
    # that takes twice as long, and in most eights nothing does.
    for i in range(0, BLOCK, 8):
        passes = 0
        for j in range(i, i + 8):
            passes |= _window_bits(f, folded + j, has_short)
        if passes:
            for j in range(8):
                places |= (
                    <uint32_t> (_window_bits(f, folded + i + j, has_short) != 0) << i + j
                )
    return places


cdef inline uint32_t filter_windows(
    const token_filter* f, const code_t* data
) noexcept nogil:
    """Return a bit for each of BLOCK places whose window passes.

    Reads BLOCK + WINDOW - 1 code points.
    """
    cdef uint8_t[BLOCK + WINDOW - 1] buffer
    cdef const uint8_t* folded = buffer
    cdef int i
    if code_t is uint8_t:
        folded = data
    else:
        for i in range(BLOCK + WINDOW - 1):
            buffer[i] = filter_fold(data[i])
    return _windows(f, folded, True) if f.short_mask else _windows(f, folded, False)


cdef inline uint32_t filter_key(str content, Py_ssize_t n) noexcept:
    """Fold up to ``n`` code points of a token, zeros behind them."""
    cdef uint32_t key = 0
    cdef Py_ssize_t i
    for i in range(min(n, len(content))):
        key |= <uint32_t> filter_fold(content[i]) << 8 * i
    return key
