# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""What the texts of a batch lack, each piece once, to be encoded in one call."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, realloc
from libc.string cimport memcpy

from tokcache._counters cimport now_ns
from tokcache._ids cimport JoinedIds, TokenIds, token_ids_uninitialised
from tokcache._pieces cimport pieces_reserve, run
from tokcache._plan cimport TAKEN, Plan
from tokcache._scan cimport REFUSED, Scanner
from tokcache._text cimport text_equal, text_of, text_view
from tokcache._trie cimport Trie, copy_path, piece, walk
from tokcache._walker cimport Walker


cdef enum:
    MIN_PLACES = 256
    # Characters that are read in one go: a millisecond, in which no other thread runs.
    PART_CHARS = 1 << 20
    # Short runs are joined until they have so many characters: a tokenizer has some 8 us
    # of work for each text and 0.4 us for a character of it.
    JOINED_CHARS = 2048


cdef struct place:
    # A piece that was first seen in some text of the batch. Zero hash and plan: empty.
    uint64_t hash
    Py_ssize_t plan  # its number, plus one
    Py_ssize_t piece


cdef struct mark:
    # Where a segment ends, and with which token.
    Py_ssize_t position
    int32_t token


cdef struct member:
    # A run of one of the plans.
    Py_ssize_t plan
    Py_ssize_t run


cdef struct group:
    # Runs that are encoded as one text: members from first to before end.
    Py_ssize_t first
    Py_ssize_t end
    Py_ssize_t n_chars
    bint is_taken


cdef int _longer(const void* a, const void* b) noexcept nogil:
    """Order groups: long ones first, else as they were."""
    cdef const group* g = <const group*> a
    cdef const group* h = <const group*> b
    if g.n_chars != h.n_chars:
        return -1 if g.n_chars > h.n_chars else 1
    return (g.first > h.first) - (g.first < h.first)


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


cdef str _text_at(list texts, Py_ssize_t i):
    cdef str text = texts[i]
    if text is None:
        raise TypeError("a text must be a str, got None")
    return text


@cython.final
cdef class Batch:
    """Collect what the texts of a batch lack, before any of them is encoded.

    ``add`` texts; encode ``run_texts`` and ``feed`` the ids; do so with ``texts_apart`` if
    there are any; give ``wholes``, texts without a boundary, their ids. Then ``complete``
    the texts, or look each up as ever and ``serve`` the runs of its plan. ``n_chars`` is
    how much is to be encoded, ``untried`` which tokens are met for the first time. Nothing
    but ``complete`` changes the trie, and what is not served is encoded as without a
    batch. Runs are joined to no fewer than some ``n_texts`` texts, which keep as many cores
    busy. Not thread-safe, and one call at a time.
    """

    cdef Walker walker
    cdef list plans  # of texts that lack something
    cdef Py_ssize_t start  # the number of the first text
    cdef list by_text  # a plan for each, or None where nothing had to be cut
    cdef Plan scratch  # leads one text after another
    cdef place* places
    cdef uint64_t n_places
    cdef uint64_t n_used
    cdef str last  # the text added last
    cdef mark* marks  # its boundaries, from where it left the trie
    cdef Py_ssize_t n_marks
    cdef Py_ssize_t marks_size
    cdef member* members  # all runs
    cdef group* groups  # as run_texts returned them last
    cdef Py_ssize_t n_groups
    cdef bint is_busy
    cdef Py_ssize_t n_texts
    cdef uint64_t clears  # of the root, when the batch began
    cdef readonly Py_ssize_t n_chars
    cdef readonly set untried
    cdef readonly dict wholes

    def __cinit__(self, Walker walker not None, Py_ssize_t n_texts):
        cdef Trie trie = walker.trie
        if n_texts < 1:
            raise ValueError(f"n_texts must be at least 1, got {n_texts}")
        self.n_texts = n_texts
        with cython.critical_section(trie):
            self.clears = trie.t.roots[walker.root].clears
        self.walker = walker
        self.plans = []
        self.by_text = []
        self.untried = set()
        self.wholes = {}

    def __dealloc__(self):
        free(self.places)
        free(self.marks)
        free(self.members)
        free(self.groups)

    def add(self, list texts not None, Py_ssize_t start, Py_ssize_t max_chars, /):
        """Find what texts from ``start`` on lack; return where it stopped.

        That is at the end, where ``max_chars`` are to be encoded, or at the latest when
        so many were read that others should have the interpreter.
        """
        cdef Py_ssize_t n_read = 0
        cdef str text
        self._begin()
        try:
            if not self.by_text:
                self.start = start
            while start < len(texts) and self.n_chars < max_chars and n_read < PART_CHARS:
                text = _text_at(texts, start)
                self._add(text)
                n_read += len(text)
                start += 1
            return start
        finally:
            self.is_busy = False

    cdef int _begin(self) except -1:
        """Refuse what is called in the middle of another call.

        What makes the ids can do that, and any finalizer: every new object can bring a
        collection of garbage about.
        """
        if self.is_busy:
            raise RuntimeError("the batch is in the middle of another call")
        self.is_busy = True
        return 0

    cdef int _add(self, str text) except -1:
        """Find what a text lacks and no text before it."""
        cdef Walker walker = self.walker
        cdef Trie trie = walker.trie
        cdef Plan plan
        cdef walk w
        cdef text_view view = text_of(text)
        cdef piece* p
        cdef Py_ssize_t n_shared, k
        cdef Py_ssize_t n_chars = self.n_chars
        self.by_text.append(None)
        with cython.critical_section(trie):
            trie.walk(walker.root, walker.scanner, &view, &w, False)
        n_shared = self._share(&view, &w)
        if w.is_complete and w.position:
            return 0
        plan = Plan.__new__(Plan)
        plan.walker = walker
        plan.text = text
        plan.view = view
        plan.reached = w
        plan._cut()
        if not plan.has_boundary:
            self.add_whole(text)
            return 0
        plan._note_untried()
        with cython.critical_section(trie):
            plan._find_known(False)
        self.by_text[len(self.by_text) - 1] = plan
        self._reserve(<uint64_t> plan.pieces.n)
        self._reserve_marks(n_shared + plan.pieces.n)
        self.plans.append(plan)
        self.last = text
        self.n_marks = n_shared
        for k in range(plan.pieces.n):
            p = &plan.pieces.items[k]
            if p.token >= 0:
                self.marks[self.n_marks] = mark(p.end, p.token)
                self.n_marks += 1
            if not p.is_known:
                if self._find(&view, p) != NULL:
                    p.is_known = True
                else:
                    self._put(p.hash, len(self.plans), k)
                    self.n_chars += p.end - p.start
        if self.n_chars == n_chars:
            self.plans.pop()
            return 0
        plan._group()
        self.untried.update(plan.untried)
        return 0

    cdef Py_ssize_t _share(self, const text_view* view, walk* w) noexcept:
        """Move on over the segments that the last text has too, which lack nothing.

        Returns how many marks these are. Where a segment ends does not depend on what
        follows it.
        """
        cdef text_view last
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t n = 0
        cdef const mark* m
        if self.n_marks == 0:
            return 0
        last = text_of(self.last)
        while n < self.n_marks:
            m = &self.marks[n]
            if m.position > view.length or not text_equal(
                view, at, <const char*> last.data + at * last.kind, last.kind,
                m.position - at,
            ):
                break
            at = m.position
            n += 1
            if at > w.position:
                w.position = at
                w.anchor = m.token
                w.is_complete = at == view.length
        return n

    def add_whole(self, str text not None, /):
        """Note a text that is encoded as a whole."""
        if text not in self.wholes:
            self.wholes[text] = None
            self.n_chars += len(text)

    def run_texts(self):
        """Return the texts of all runs, to be encoded in one call.

        Short runs are joined where one ends with a boundary and the next has an anchor,
        and long texts come first: so the cores that share the call end together.
        """
        return self._grouped(True)

    def texts_apart(self):
        """Return the texts of runs that were joined and not taken, each by itself now."""
        return self._grouped(False)

    cdef list _grouped(self, bint joins):
        """Group runs anew, and return the text of each group."""
        cdef Py_ssize_t i
        self._begin()
        try:
            if joins:
                self._join()
            else:
                self._split()
            return [self._group_text(&self.groups[i]) for i in range(self.n_groups)]
        finally:
            self.is_busy = False

    cdef int _split(self) except -1:
        """Leave of the groups the members of those that were not taken, one in each."""
        cdef Py_ssize_t n = 0
        cdef Py_ssize_t i, m
        cdef group* groups
        cdef const group* g
        for i in range(self.n_groups):
            g = &self.groups[i]
            if not g.is_taken and g.end - g.first > 1:
                n += g.end - g.first
        groups = <group*> calloc(<size_t> n + 1, sizeof(group))
        if groups == NULL:
            raise MemoryError
        n = 0
        for i in range(self.n_groups):
            g = &self.groups[i]
            if not g.is_taken and g.end - g.first > 1:
                for m in range(g.first, g.end):
                    groups[n] = group(m, m + 1, 0, False)
                    n += 1
        free(self.groups)
        self.groups = groups
        self.n_groups = n
        return 0

    cdef int _join(self) except -1:
        """Put all runs into groups."""
        cdef Py_ssize_t enough = min(<Py_ssize_t> JOINED_CHARS, self.n_chars // self.n_texts)
        cdef Py_ssize_t n_runs = 0
        cdef Py_ssize_t n = 0
        cdef Py_ssize_t i, k, n_chars
        cdef bint is_open = False
        cdef Plan plan
        cdef const piece* first
        cdef const piece* last
        cdef group* g = NULL
        for plan in self.plans:
            n_runs += plan.runs.n
        self.n_groups = 0
        free(self.members)
        free(self.groups)
        self.members = <member*> calloc(<size_t> n_runs + 1, sizeof(member))
        self.groups = <group*> calloc(<size_t> n_runs + 1, sizeof(group))
        if self.members == NULL or self.groups == NULL:
            raise MemoryError
        for i in range(len(self.plans)):
            plan = <Plan> self.plans[i]
            for k in range(plan.runs.n):
                first = &plan.pieces.items[plan.runs.items[k].first]
                last = &plan.pieces.items[plan.runs.items[k].end - 1]
                n_chars = last.end - first.start
                if not is_open or first.anchor < 0 or n_chars >= enough:
                    g = &self.groups[self.n_groups]
                    g.first = n
                    self.n_groups += 1
                self.members[n] = member(i, k)
                n += 1
                g.end = n
                g.n_chars += n_chars
                is_open = last.token >= 0 and g.n_chars < enough
        qsort(self.groups, <size_t> self.n_groups, sizeof(group), _longer)
        return 0

    cdef str _group_text(self, const group* g):
        cdef list parts = []
        cdef Plan plan
        cdef Py_ssize_t i
        for i in range(g.first, g.end):
            plan = <Plan> self.plans[self.members[i].plan]
            parts.append(plan._run_text(&plan.runs.items[self.members[i].run]))
        return <str> parts[0] if len(parts) == 1 else "".join(parts)

    def feed(self, all_ids, /):
        """Take the ids of all texts returned last; what fails a self-check is left out."""
        self._begin()
        try:
            self._feed(iter(all_ids))
        finally:
            self.is_busy = False

    cdef int _feed(self, left) except -1:
        cdef Plan taken = Plan.__new__(Plan)  # for its pool
        cdef Plan plan
        cdef group* g
        cdef run* r
        cdef Py_ssize_t i, k, m
        for i in range(self.n_groups):
            ids = next(left, None)
            if ids is None:
                raise ValueError("feed needs the ids of every run")
            taken.pool_used = 0
            taken._take(ids)
            g = &self.groups[i]
            g.is_taken = self._part(g, taken)
            if not g.is_taken:
                continue
            for m in range(g.first, g.end):
                plan = <Plan> self.plans[self.members[m].plan]
                r = &plan.runs.items[self.members[m].run]
                for k in range(r.first, r.end):
                    plan.pieces.items[k].is_known = True
        if next(left, None) is not None:
            raise ValueError("feed was given more ids than there are runs")
        return 0

    cdef bint _part(self, const group* g, Plan taken) except -1:
        """Give each run of a group its ids; false if one of them cannot have these."""
        cdef Scanner scanner = self.walker.scanner
        cdef int64_t at = 0
        cdef int64_t start
        cdef Py_ssize_t i, left
        cdef Plan plan
        cdef run* r
        for i in range(g.first, g.end):
            plan = <Plan> self.plans[self.members[i].plan]
            r = &plan.runs.items[self.members[i].run]
            start = at
            if i + 1 == g.end:
                at = taken.pool_used
            else:
                # It ends with the boundary of its last piece.
                left = r.end - r.first + (plan.pieces.items[r.first].anchor >= 0)
                while left and at < taken.pool_used:
                    left -= scanner.boundary_of_id(taken.pool[at]) >= 0
                    at += 1
            plan._reserve(at - start)
            if at > start:
                memcpy(
                    plan.pool + plan.pool_used, taken.pool + start,
                    <size_t> (at - start) * 4,
                )
            plan.pool_used += at - start
            if plan._check(r, plan.pool_used - (at - start)) != TAKEN:
                return False
        return True

    def complete(
        self, list texts not None, found not None, Py_ssize_t stop, bint special, /
    ):
        """Append to ``found`` the ids of the texts that follow, up to ``stop``.

        It is a list or a `JoinedIds`. Returns None, or the plan of the first text that
        lacks more than is here.
        """
        cdef Walker walker = self.walker
        cdef list each = None if isinstance(found, JoinedIds) else found
        cdef JoinedIds joined = <JoinedIds> found if each is None else None
        cdef Py_ssize_t at
        cdef bint is_done
        cdef str text
        cdef Plan plan
        if special and not walker.has_affixes:
            raise ValueError("the ids around a prompt are not known")
        stop = min(stop, len(texts))
        while True:
            at = joined.n_texts if each is None else len(each)
            if at >= stop:
                return None
            text = _text_at(texts, at)
            if self.scratch is None:
                plan = Plan.__new__(Plan)
                plan.walker = walker
                self.scratch = plan
            with cython.critical_section(walker.trie):
                is_done = self._complete_one(text, at - self.start, special, each, joined)
            if is_done:
                continue
            plan = self.scratch
            ids = None if plan.has_boundary else self.wholes.get(text)
            if ids is None:
                self.scratch = None
                plan._note_untried()
                return plan
            found.append(plan._finish_whole(ids))

    cdef bint _complete_one(
        self, str text, Py_ssize_t number, bint special, list each, JoinedIds joined
    ) except -1:
        """Append a text's ids to one of the two; false: the scratch plan lacks some.

        The lock is held, so nothing that other code could be run by is done here.
        """
        cdef Walker walker = self.walker
        cdef int64_t started = now_ns() if walker.tally.is_timed else 0
        cdef text_view view = text_of(text)
        cdef Plan plan = self.scratch
        cdef TokenIds ids = None
        cdef uint32_t* out
        cdef int64_t n_own, n_ids
        cdef walk w
        cdef bint is_hit
        walker.trie.walk(walker.root, walker.scanner, &view, &w, True)
        is_hit = w.is_complete and w.position > 0
        if is_hit:
            n_own = <int64_t> w.reached.n_ids
        else:
            plan._begin(text, &w, special, started)
            if not self._fill(plan, number):
                plan._let_go()
                return False
            n_own = plan._weigh()
        n_ids = n_own + walker._affix_length(special)
        if joined is None:
            ids = token_ids_uninitialised(n_ids)
            out = ids.data
        else:
            out = joined.room(n_ids)
        out = walker._put_around(out, n_own, special)
        if is_hit:
            copy_path(w.reached, out)
            walker._count_hit(n_ids, started)
        else:
            plan._write(out)
            plan._conclude()
        if joined is None:
            each.append(ids)
        else:
            joined.commit(n_ids)
        return True

    cdef bint _fill(self, Plan plan, Py_ssize_t number) except -1:
        """Give a plan all that it lacks; false if that is not here, or is still to be tried."""
        cdef Py_ssize_t i
        self._cut_again(plan, number)
        plan._find_known(True)
        plan._group()
        if not plan.has_boundary or plan._has_untried():
            return False
        for i in range(plan.runs.n):
            if not self._serve(plan, &plan.runs.items[i]):
                return False
        return True

    cdef int _cut_again(self, Plan plan, Py_ssize_t number) except -1:
        """Take the pieces of a text from when it was added, where it has the place."""
        cdef Plan first = None
        cdef piece* p
        cdef Py_ssize_t k = 0
        if 0 <= number < len(self.by_text):
            first = <Plan> self.by_text[number]
        if first is None or first.text is not plan.text:
            return plan._cut()
        while k < first.pieces.n and first.pieces.items[k].start < plan.reached.position:
            k += 1
        if (
            k == first.pieces.n
            or first.pieces.items[k].start != plan.reached.position
            or first.pieces.items[k].anchor != plan.reached.anchor
        ):
            return plan._cut()
        plan.pieces.n = first.pieces.n - k
        if not pieces_reserve(&plan.pieces, plan.pieces.n):
            plan.pieces.n = 0
            raise MemoryError
        memcpy(
            plan.pieces.items, &first.pieces.items[k],
            <size_t> plan.pieces.n * sizeof(piece),
        )
        for k in range(plan.pieces.n):
            p = &plan.pieces.items[k]
            p.is_known = False
            p.n_ids = 0
            if p.token >= 0 and self.walker.scanner.statuses[p.token] == REFUSED:
                plan.pieces.n = 0  # since then, by another thread
                return plan._cut()
        plan.has_boundary = True
        return 0

    def serve(self, Plan plan not None, Py_ssize_t i, /):
        """Feed a run of another plan from what was taken; false if it is not all here."""
        return self._serve(plan, plan._checked_run(i))

    cdef bint _serve(self, Plan plan, run* r) except -1:
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

    cdef int _reserve_marks(self, Py_ssize_t n) except -1:
        """Make room for so many marks."""
        cdef mark* grown
        if n > self.marks_size:
            n += n // 2
            grown = <mark*> realloc(self.marks, <size_t> n * sizeof(mark))
            if grown == NULL:
                raise MemoryError
            self.marks = grown
            self.marks_size = n
        return 0

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
