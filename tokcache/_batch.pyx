# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""What the texts of a batch lack, each piece once, to be encoded in one call."""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from tokcache._pieces cimport run
from tokcache._text cimport text_equal, text_of, text_view
from tokcache._trie cimport Trie, piece, walk
from tokcache._walker cimport Plan, Walker


cdef enum:
    MIN_PLACES = 256


cdef struct place:
    # A piece that was first seen in some text of the batch. Zero hash and plan: empty.
    uint64_t hash
    Py_ssize_t plan  # its number, plus one
    Py_ssize_t piece


cdef bint _is_same(
    const text_view* view, const piece* p, const text_view* other, const piece* q
) noexcept nogil:
    if (
        p.anchor != q.anchor
        or (p.token < 0) != (q.token < 0)
        or p.end - p.start != q.end - q.start
    ):
        return False
    if other.kind > view.kind:
        return _is_same(other, q, view, p)
    return text_equal(
        view, p.start, <const char*> other.data + q.start * other.kind, other.kind,
        p.end - p.start,
    )


@cython.final
cdef class Batch:
    """Collect what the texts of a batch lack, before any of them is encoded.

    ``add`` each text; encode the ``runs``, feed their plans and ``take`` what was taken;
    then look each text up as ever and ``serve`` the runs of its plan. ``wholes`` are
    texts without a boundary, to be given their ids. ``n_chars`` is how much is to be
    encoded, ``untried`` which tokens are met for the first time. Nothing here changes the
    trie, and what is not served is encoded as without a batch. Not thread-safe.
    """

    cdef Walker walker
    cdef list plans
    cdef place* places
    cdef uint64_t n_places
    cdef uint64_t n_used
    cdef uint64_t clears  # of the root, when the batch began
    cdef readonly Py_ssize_t n_chars
    cdef readonly set untried
    cdef readonly dict wholes

    def __cinit__(self, Walker walker not None):
        cdef Trie trie = walker.trie
        with cython.critical_section(trie):
            self.clears = trie.t.roots[walker.root].clears
        self.walker = walker
        self.plans = []
        self.untried = set()
        self.wholes = {}

    def __dealloc__(self):
        free(self.places)

    def add(self, str text not None, /):
        """Find what a text lacks and no text before it."""
        cdef Walker walker = self.walker
        cdef Trie trie = walker.trie
        cdef Plan plan
        cdef walk w
        cdef text_view view = text_of(text)
        cdef piece* p
        cdef Py_ssize_t k
        with cython.critical_section(trie):
            trie.walk(walker.root, walker.scanner, &view, &w, False)
        if w.is_complete and w.position:
            return
        plan = Plan.__new__(Plan)
        plan.walker = walker
        plan.text = text
        plan.view = view
        plan.reached = w
        plan._cut(False)
        if not plan.has_boundary:
            self.add_whole(text)
            return
        self._reserve(<uint64_t> plan.pieces.n)
        self.plans.append(plan)
        for k in range(plan.pieces.n):
            p = &plan.pieces.items[k]
            if not p.is_known:
                if self._find(&view, p) != NULL:
                    p.is_known = True
                else:
                    self._put(p.hash, len(self.plans), k)
                    self.n_chars += p.end - p.start
        plan._group()
        self.untried.update(plan.untried)

    def add_whole(self, str text not None, /):
        """Note a text that is encoded as a whole."""
        if text not in self.wholes:
            self.wholes[text] = None
            self.n_chars += len(text)

    def runs(self):
        """Return all that is to be encoded, as plans and the numbers of their runs."""
        cdef Plan plan
        cdef Py_ssize_t i
        return [(plan, i) for plan in self.plans for i in range(plan.runs.n)]

    def take(self, Plan plan not None, Py_ssize_t i, /):
        """Note that a run was fed, and let others have its pieces."""
        cdef run* r = plan._checked_run(i)
        cdef Py_ssize_t k
        if r.is_fed:
            for k in range(r.first, r.end):
                plan.pieces.items[k].is_known = True

    def serve(self, Plan plan not None, Py_ssize_t i, /):
        """Feed a run of another plan from what was taken; false if it is not all here."""
        cdef run* r = plan._checked_run(i)
        cdef Plan source
        cdef place* found
        cdef piece* p
        cdef piece* other
        cdef Py_ssize_t k
        plan.clears = self.clears  # a batch that began before a clear adds nothing after it
        for k in range(r.first, r.end):
            p = &plan.pieces.items[k]
            if not p.is_known:
                found = self._find(&plan.view, p)
                if found == NULL:
                    return False
                source = <Plan> self.plans[found.plan - 1]
                if not source.pieces.items[found.piece].is_known:
                    return False
        for k in range(r.first, r.end):
            p = &plan.pieces.items[k]
            if p.is_known:
                continue
            found = self._find(&plan.view, p)
            source = <Plan> self.plans[found.plan - 1]
            other = &source.pieces.items[found.piece]
            plan._reserve(other.n_ids)
            if other.n_ids:
                memcpy(
                    plan.pool + plan.pool_used,
                    source.pool + other.ids_at,
                    <size_t> other.n_ids * 4,
                )
            p.ids_at = plan.pool_used
            p.n_ids = other.n_ids
            plan.pool_used += other.n_ids
        r.is_fed = True
        return True

    cdef place* _find(self, const text_view* view, const piece* p) noexcept:
        """Return where a piece was seen first, its text compared, or NULL."""
        cdef uint64_t at = p.hash
        cdef place* found
        cdef Plan plan
        if self.n_places == 0:
            return NULL
        while True:
            found = &self.places[at & (self.n_places - 1)]
            if found.plan == 0:
                return NULL
            if found.hash == p.hash:
                plan = <Plan> self.plans[found.plan - 1]
                if _is_same(view, p, &plan.view, &plan.pieces.items[found.piece]):
                    return found
            at += 1

    cdef void _put(self, uint64_t hash, Py_ssize_t plan, Py_ssize_t k) noexcept:
        cdef uint64_t at = hash
        while self.places[at & (self.n_places - 1)].plan:
            at += 1
        self.places[at & (self.n_places - 1)] = place(hash, plan, k)
        self.n_used += 1

    cdef int _reserve(self, uint64_t more) except -1:
        """Keep the table at most half full."""
        cdef uint64_t size = max(self.n_places, <uint64_t> MIN_PLACES)
        cdef place* old = self.places
        cdef uint64_t n_old = self.n_places
        cdef uint64_t i
        while size < 2 * (self.n_used + more):
            size *= 2
        if size == n_old:
            return 0
        self.places = <place*> calloc(size, sizeof(place))
        if self.places == NULL:
            self.places = old
            raise MemoryError
        self.n_places = size
        self.n_used = 0
        for i in range(n_old):
            if old[i].plan:
                self._put(old[i].hash, old[i].plan, old[i].piece)
        free(old)
        return 0
