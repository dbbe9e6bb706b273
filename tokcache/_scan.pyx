# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""Find added tokens the way a tokenizer does: leftmost, longest, in two phases.

Phase 1 takes the tokens that are looked for in the raw text, phase 2 those that are
looked for in what phase 1 left. No flag of a token moves this chain of matches, so the
scanner knows none. Each phase is a radix trie whose edges lie in one hash table; a
filter looks at 32 places at a time and keeps ordinary text away from it. The cost is
linear in the text and nearly independent of the number of tokens; a place that passes
costs at most the length of the longest token. The filter takes 256 KiB at most.
"""

from bisect import bisect_right

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from tokcache._filter cimport (
    BLOCK,
    KEY,
    MANY,
    MAX_FIRST,
    SHORT,
    SLOTS_A_KEY,
    SLOTS_MAX,
    WINDOW,
    fibonacci,
    filter_firsts,
    filter_fold,
    filter_has_first,
    filter_key,
    filter_passes,
    filter_slot,
    filter_starts,
    filter_windows,
    token_filter,
)
from tokcache._text cimport code_t, text_of, text_view


cdef extern from *:
    """
    #define tokcache_lowest_bit(bits) __builtin_ctz(bits)
    """
    int lowest_bit "tokcache_lowest_bit"(uint32_t bits) noexcept nogil


cdef enum:
    # Places looked at singly behind a match: others often follow at once, and a block for
    # each would cost more.
    HEAD = 4


cdef inline uint64_t _edge_slot(uint64_t key) noexcept nogil:
    return fibonacci(key) >> 32


cdef inline const radix_edge* _edge(
    const phase_index* index, uint32_t node, uint32_t code
) noexcept nogil:
    """Return the edge that ``code`` begins, or NULL."""
    cdef uint64_t key = ((<uint64_t> node) << 21 | code) + 1
    cdef uint64_t slot = _edge_slot(key) & index.edge_mask
    while index.edges[slot].key:
        if index.edges[slot].key == key:
            return &index.edges[slot]
        slot = (slot + 1) & index.edge_mask
    return NULL


cdef int32_t _longest(
    const phase_index* index, const code_t* data, Py_ssize_t at, Py_ssize_t limit,
    Py_ssize_t* end,
) noexcept nogil:
    """Return the longest token that begins at ``at``, or -1."""
    cdef int32_t best = -1
    cdef uint32_t node = 0
    cdef const radix_edge* edge
    cdef const uint32_t* label
    cdef uint32_t i
    while at < limit:
        edge = _edge(index, node, data[at])
        if edge == NULL or edge.length > limit - at:
            break
        label = index.pool + edge.label
        i = 1
        while i < edge.length and data[at + i] == label[i]:
            i += 1
        if i < edge.length:
            break
        at += edge.length
        if edge.token >= 0:
            best = edge.token
            end[0] = at
        node = edge.child
        if node == 0:
            break
    return best


cdef bint _match_at(
    const phase_index* index, const code_t* data, Py_ssize_t at, Py_ssize_t limit,
    scan_match* match,
) noexcept nogil:
    """Find the longest token that begins at ``at``."""
    match.start = at
    match.token = _longest(index, data, at, limit, &match.end)
    return match.token >= 0


cdef inline bint _find_singly(
    const phase_index* index, const code_t* data, Py_ssize_t at, Py_ssize_t stop,
    Py_ssize_t limit, scan_match* match,
) noexcept nogil:
    """Find a token that begins within ``[at, stop)``, place by place."""
    cdef const token_filter* f = &index.filter
    while at < stop:
        if filter_starts(f, data[at]) and filter_passes(f, data, at, limit):
            if _match_at(index, data, at, limit, match):
                return True
        at += 1
    return False


cdef inline bint _find(
    const phase_index* index, const code_t* data, Py_ssize_t at, Py_ssize_t limit,
    scan_match* match,
) noexcept nogil:
    """Find the leftmost-longest token within ``[at, limit)``."""
    cdef const token_filter* f = &index.filter
    cdef int n_first = f.n_first[sizeof(code_t) // 2]
    cdef bint is_compared = n_first <= MAX_FIRST
    cdef Py_ssize_t last = limit - (BLOCK if is_compared else BLOCK + WINDOW - 1)
    cdef Py_ssize_t stop = min(at + HEAD, limit)
    cdef Py_ssize_t base, place
    cdef uint32_t places
    if n_first == 0:
        return False
    if _find_singly(index, data, at, stop, limit, match):
        return True
    at = stop
    while at < limit:
        if is_compared:
            while at <= last and not filter_has_first(f, n_first, data + at):
                at += BLOCK
        # The last block begins among places that are done.
        base = min(at, last)
        if base < 0 or at - base >= BLOCK:
            break
        if is_compared:
            places = filter_firsts(f, n_first, data + base)
        else:
            places = filter_windows(f, data + base)
        places = places >> (at - base) << (at - base)
        while places:
            place = base + lowest_bit(places)
            places &= places - 1
            if not is_compared or filter_passes(f, data, place, limit):
                if _match_at(index, data, place, limit, match):
                    return True
        at = base + BLOCK
    return _find_singly(index, data, at, limit, limit, match)


cdef inline bint _find_any_kind(
    const phase_index* index, const text_view* view, Py_ssize_t at, Py_ssize_t limit,
    scan_match* match,
) noexcept nogil:
    if index.n_tokens == 0:
        return False
    if view.kind == 1:
        return _find[uint8_t](index, <const uint8_t*> view.data, at, limit, match)
    if view.kind == 2:
        return _find[uint16_t](index, <const uint16_t*> view.data, at, limit, match)
    return _find[uint32_t](index, <const uint32_t*> view.data, at, limit, match)


@cython.final
cdef class Scanner:
    """Scan texts for a fixed set of added tokens.

    ``tokens`` is a sequence of ``(content, id, phase, is_eligible)``; the place in it is
    the token's index everywhere else. Only the ends of eligible tokens are boundaries,
    but all tokens take part in the match. Offsets are in code points.

    Raises ``ValueError`` for an empty content, a content given twice, a phase other than
    1 and 2 or an id outside ``uint32``.

    Thread safety: scanning only reads; ``trust`` and ``refuse`` change one byte each.
    """

    def __cinit__(self, tokens, /):
        cdef list rows = [(str(c), int(i), int(p), bool(e)) for c, i, p, e in tokens]
        cdef Py_ssize_t n = len(rows)
        cdef Py_ssize_t index
        # Lists, not generators: each of Cython's leaks a reference to its type.
        self.contents = tuple([row[0] for row in rows])
        if len(set(self.contents)) != n:
            raise ValueError("an added token is given twice")
        self.statuses = <uint8_t*> malloc(max(n, 1))
        self.ids = <uint32_t*> malloc(max(n, 1) * 4)
        if self.statuses == NULL or self.ids == NULL:
            raise MemoryError
        for index in range(n):
            content, token_id, phase, is_eligible = rows[index]
            if not content:
                raise ValueError("an added token must not be empty")
            if phase != 1 and phase != 2:
                raise ValueError(f"phase must be 1 or 2, got {phase}")
            if not 0 <= token_id <= 0xFFFFFFFF:
                raise ValueError(f"id of {content!r} does not fit uint32: {token_id}")
            self.ids[index] = token_id
            self.statuses[index] = UNTRIED if is_eligible else REFUSED
        self._index_ids(n)
        for phase in (1, 2):
            _build(
                &self.phases[phase - 1],
                sorted([(row[0], i) for i, row in enumerate(rows) if row[2] == phase]),
            )

    def __dealloc__(self):
        cdef int phase
        for phase in range(2):
            free(self.phases[phase].edges)
            free(self.phases[phase].pool)
            free(self.phases[phase].filter.slots)
        free(self.statuses)
        free(self.ids)
        free(self.id_table)

    cdef int _index_ids(self, Py_ssize_t n) except -1:
        cdef uint64_t slots = _power_of_two(2 * n + 1)
        cdef uint64_t slot
        cdef Py_ssize_t index
        self.id_table = <uint64_t*> calloc(slots, sizeof(uint64_t))
        if self.id_table == NULL:
            raise MemoryError
        self.id_mask = slots - 1
        for index in range(n):
            slot = _edge_slot(self.ids[index]) & self.id_mask
            while self.id_table[slot]:
                slot = (slot + 1) & self.id_mask
            self.id_table[slot] = <uint64_t> (index + 1) << 32 | self.ids[index]
        return 0

    cdef void begin(
        self, scan_cursor* cursor, const text_view* view, Py_ssize_t at
    ) noexcept nogil:
        """Start a chain of matches at ``at``."""
        cursor.view = view[0]
        cursor.at = at
        cursor.is_known = False
        cursor.start = 0
        cursor.end = 0
        cursor.token = -1

    cdef bint next_match(self, scan_cursor* cursor, scan_match* match) noexcept nogil:
        """Find the next match of either phase and move behind it.

        The cursor may be moved on to any boundary in between: the next phase-1 match is
        kept as long as it is not passed, so a whole text is scanned once by each phase.
        """
        if not cursor.is_known or cursor.start < cursor.at:
            cursor.is_known = True
            if _find_any_kind(
                &self.phases[0], &cursor.view, cursor.at, cursor.view.length, match
            ):
                cursor.start = match.start
                cursor.end = match.end
                cursor.token = match.token
            else:
                cursor.start = cursor.view.length
                cursor.token = -1
        if _find_any_kind(
            &self.phases[1], &cursor.view, cursor.at, cursor.start, match
        ):
            cursor.at = match.end
            return True
        if cursor.token < 0:
            cursor.at = cursor.view.length
            return False
        match.start = cursor.start
        match.end = cursor.end
        match.token = cursor.token
        cursor.at = cursor.end
        return True

    cdef bint next_boundary(self, scan_cursor* cursor, scan_match* match) noexcept nogil:
        """Find the next match that ends at a boundary and move behind it."""
        while self.next_match(cursor, match):
            if self.statuses[match.token] != REFUSED:
                return True
        return False

    cdef int32_t boundary_of_id(self, uint32_t token_id) noexcept nogil:
        """Return the boundary token with this id, or -1."""
        cdef uint64_t slot = _edge_slot(token_id) & self.id_mask
        cdef int32_t index
        while self.id_table[slot]:
            if <uint32_t> self.id_table[slot] == token_id:
                index = <int32_t> (self.id_table[slot] >> 32) - 1
                if self.statuses[index] != REFUSED:
                    return index
            slot = (slot + 1) & self.id_mask
        return -1

    def __len__(self):
        return len(self.contents)

    def boundaries(self, str text not None, Py_ssize_t start=0, /):
        """Return ``(end, token index)`` of every boundary from ``start``, in order.

        Linear in the text. ``start`` must itself be the text's start or a boundary, or
        what stands across it is not seen.
        """
        return self._scan(text, start, True)

    def matches(self, str text not None, Py_ssize_t start=0, /):
        """Return ``(start, end, token index)`` of every match of both phases, in order."""
        return self._scan(text, start, False)

    cdef list _scan(self, str text, Py_ssize_t start, bint only_boundaries):
        cdef text_view view = text_of(text)
        cdef scan_cursor cursor
        cdef scan_match match
        cdef list found = []
        if not 0 <= start <= view.length:
            raise ValueError(f"start must be within the text, got {start}")
        self.begin(&cursor, &view, start)
        while self.next_match(&cursor, &match):
            if not only_boundaries:
                found.append((match.start, match.end, match.token))
            elif self.statuses[match.token] != REFUSED:
                found.append((match.end, match.token))
        return found

    def status(self, Py_ssize_t index, /):
        """Return 0 for an eligible token not tried yet, 1 for a trusted, 2 for a refused."""
        return self.statuses[self._checked(index)]

    def trust(self, Py_ssize_t index, /):
        """Note that an untried token passed its first trial."""
        if self.statuses[self._checked(index)] == UNTRIED:
            self.statuses[index] = TRUSTED

    def refuse(self, Py_ssize_t index, /):
        """Make a token no boundary from now on."""
        self.statuses[self._checked(index)] = REFUSED

    cdef Py_ssize_t _checked(self, Py_ssize_t index) except -1:
        if not 0 <= index < len(self.contents):
            raise IndexError(f"no token has the index {index}")
        return index


cdef uint64_t _power_of_two(uint64_t at_least) noexcept:
    cdef uint64_t size = 1
    while size < at_least:
        size *= 2
    return size


cdef int _build(phase_index* index, list tokens) except -1:
    """Fill an index with ``(content, token index)`` pairs, sorted by content."""
    cdef list edges = []
    cdef list pool = []
    cdef list groups = [(0, 0, len(tokens), 0)]  # node, range of tokens, depth
    cdef Py_ssize_t low, high, depth, end, longest, inner
    cdef str first, last, other
    cdef int n_nodes = 1
    while groups:
        node, low, high, depth = groups.pop()
        while low < high:
            first = tokens[low][0]
            end = low + 1
            while end < high:
                other = tokens[end][0]
                if other[depth] != first[depth]:
                    break
                end += 1
            # Sorted, so what the first and the last share, all of them share.
            last = tokens[end - 1][0]
            longest = depth + 1
            while longest < len(first) and first[longest] == last[longest]:
                longest += 1
            is_token = len(first) == longest
            inner = low + 1 if is_token else low
            child = 0
            if inner < end:
                child = n_nodes
                n_nodes += 1
                groups.append((child, inner, end, longest))
            token = tokens[low][1] if is_token else -1
            edges.append((node, child, len(pool), longest - depth, token))
            pool.extend(map(ord, first[depth:longest]))
            low = end
    _allocate(index, len(edges), len(pool))
    index.n_tokens = len(tokens)
    for i, code in enumerate(pool):
        index.pool[i] = code
    for node, child, label, length, token in edges:
        _add_edge(index, node, radix_edge(0, child, label, length, token))
    _build_filter(&index.filter, [content for content, _ in tokens])
    return 0


cdef int _allocate(phase_index* index, Py_ssize_t n_edges, Py_ssize_t n_pool) except -1:
    cdef uint64_t slots = _power_of_two(2 * n_edges + 1)
    index.edges = <radix_edge*> calloc(slots, sizeof(radix_edge))
    index.pool = <uint32_t*> malloc(max(n_pool, 1) * sizeof(uint32_t))
    if index.edges == NULL or index.pool == NULL:
        raise MemoryError
    index.edge_mask = slots - 1
    return 0


cdef void _add_edge(phase_index* index, uint32_t node, radix_edge edge) noexcept:
    cdef uint64_t slot
    edge.key = ((<uint64_t> node) << 21 | index.pool[edge.label]) + 1
    slot = _edge_slot(edge.key) & index.edge_mask
    while index.edges[slot].key:
        slot = (slot + 1) & index.edge_mask
    index.edges[slot] = edge


cdef int _build_filter(token_filter* f, list contents) except -1:
    """Fill the filter of a phase with its tokens."""
    cdef list firsts = sorted({ord(content[0]) for content in contents})
    cdef Py_ssize_t n_short = min(map(len, contents), default=KEY)
    cdef dict bits = {}  # by key: of the slot
    cdef str content
    cdef uint64_t n_slots
    cdef int i
    memset(f, 0, sizeof(token_filter))
    for i in range(256):
        f.follows[i] = 1 << i % 7
    if n_short < KEY:
        f.short_mask = (<uint32_t> 1 << 8 * n_short) - 1
    for content in contents:
        f.starts[filter_fold(content[0])] = 1
        if len(content) < KEY:
            key, bit = filter_key(content, n_short), SHORT
        elif len(content) == KEY:
            key, bit = filter_key(content, KEY), 0x7F
        else:
            key, bit = filter_key(content, KEY), f.follows[filter_fold(content[KEY])]
        bits[key] = bits.get(key, 0) | bit
    # Two at least: a shift by all 64 bits would be undefined.
    n_slots = _power_of_two(max(2, min(SLOTS_A_KEY * len(bits), SLOTS_MAX)))
    f.shift = 64 - lowest_bit(<uint32_t> n_slots)
    f.slots = <uint8_t*> calloc(n_slots, 1)
    if f.slots == NULL:
        raise MemoryError
    for key, bit in bits.items():
        f.slots[filter_slot(f, key)] |= bit
    is_few = len(firsts) <= MAX_FIRST
    for i, greatest in enumerate((0xFF, 0xFFFF, 0x10FFFF)):
        f.n_first[i] = bisect_right(firsts, greatest) if is_few else MANY
    if is_few and firsts:
        # Unused places repeat one of the others.
        for i, first in enumerate((firsts * MAX_FIRST)[:MAX_FIRST]):
            f.first[i] = first
    return 0
