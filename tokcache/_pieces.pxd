# cython: language_level=3
"""Pieces and runs: what follows a cached prefix, cut and grouped. Header only."""

from libc.stdint cimport int32_t
from libc.stdlib cimport realloc

from tokcache._scan cimport Scanner, scan_cursor, scan_match
from tokcache._text cimport text_view
from tokcache._trie cimport NO_TOKEN, piece, walk


cdef enum:
    # Known pieces of so few characters in all, between two unknown ones, are encoded
    # again with them: an inner call costs 4 to 15 us, encoding about 0.5 us a character.
    BRIDGE_CHARS_MAX = 32


cdef struct piece_list:
    piece* items
    Py_ssize_t n
    Py_ssize_t size


cdef struct run:
    Py_ssize_t first  # its first piece
    Py_ssize_t end  # the piece behind its last
    bint is_fed


cdef struct run_list:
    run* items
    Py_ssize_t n
    Py_ssize_t size


cdef inline bint pieces_reserve(piece_list* pieces, Py_ssize_t n) noexcept nogil:
    """Make room for so many; false without memory."""
    cdef Py_ssize_t size
    cdef piece* grown
    if n > pieces.size:
        size = 2 * n + 6
        grown = <piece*> realloc(pieces.items, <size_t> size * sizeof(piece))
        if grown == NULL:
            return False
        pieces.items = grown
        pieces.size = size
    return True


cdef inline bint _append(
    piece_list* pieces, Py_ssize_t start, Py_ssize_t end, int32_t anchor, int32_t token
) noexcept nogil:
    cdef piece* p
    if not pieces_reserve(pieces, pieces.n + 1):
        return False
    p = &pieces.items[pieces.n]
    p.start = start
    p.end = end
    p.anchor = anchor
    p.token = token
    p.is_known = False
    p.ids_at = 0
    p.n_ids = 0
    pieces.n += 1
    return True


cdef inline bint pieces_cut(
    piece_list* pieces, Scanner scanner, const text_view* view, const walk* reached
) noexcept nogil:
    """Cut what follows a walk into segments and a tail; false without memory.

    Their kinds and hashes are still to be set. A text in which no boundary was found or matched gives no piece at all.
    """
    cdef scan_cursor cursor
    cdef scan_match match
    cdef Py_ssize_t position = reached.position
    cdef int32_t anchor = reached.anchor
    scanner.begin(&cursor, view, position)
    while scanner.next_boundary(&cursor, &match):
        if not _append(pieces, position, match.end, anchor, match.token):
            return False
        position = match.end
        anchor = match.token
    if anchor == NO_TOKEN or position == view.length:
        return True
    return _append(pieces, position, view.length, anchor, NO_TOKEN)


cdef inline bint runs_group(run_list* runs, const piece_list* pieces) noexcept nogil:
    """Group unknown pieces, and short known ones between them; false without memory."""
    cdef Py_ssize_t n_unknown = 0
    cdef Py_ssize_t i, gap
    cdef run* r
    cdef run* grown
    runs.n = 0
    for i in range(pieces.n):
        n_unknown += not pieces.items[i].is_known
    if n_unknown == 0:
        return True
    if n_unknown > runs.size:
        grown = <run*> realloc(runs.items, <size_t> n_unknown * sizeof(run))
        if grown == NULL:
            return False
        runs.items = grown
        runs.size = n_unknown
    i = 0
    while i < pieces.n:
        if pieces.items[i].is_known:
            i += 1
            continue
        r = &runs.items[runs.n]
        runs.n += 1
        r.first = i
        r.is_fed = False
        while True:
            while i < pieces.n and not pieces.items[i].is_known:
                i += 1
            r.end = i
            gap = i
            while gap < pieces.n and pieces.items[gap].is_known:
                gap += 1
            if (
                gap == pieces.n
                or pieces.items[gap].start - pieces.items[i].start > BRIDGE_CHARS_MAX
            ):
                break
            i = gap
    return True
