# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""A prompt that is not fully cached, on its way to its ids.

A Plan is what stands between a walk and its link while the inner tokenizer works,
unlocked. It holds copies only: of the matched ids, of payloads that were found under
other paths, of positions. Of the trie it keeps one pointer, and uses it again only if no
node was freed in between.
"""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from tokcache._counters cimport Counters, counters_time
from tokcache._ids cimport TokenIds, copy_plain_ids
from tokcache._pieces cimport BRIDGE_CHARS_MAX, pieces_cut, run, runs_group
from tokcache._scan cimport TRUSTED, Scanner
from tokcache._store cimport segment, segment_ids
from tokcache._text cimport text_narrowest, text_of, text_view
from tokcache._trie cimport (
    NO_MEMORY,
    NO_TOKEN,
    Trie,
    copy_path,
    piece,
    walk,
)
from tokcache._walker cimport Walker


import operator


BRIDGE_CHARS = BRIDGE_CHARS_MAX


@cython.final
@cython.no_gc  # so that one can be made under the lock; nothing it holds can hold it
cdef class Plan:
    """Lead one prompt that is not fully cached to its ids.

    Feed the ids of each of ``n_runs`` runs, then ``finish``. If ``has_boundary`` is
    false there is nothing to feed: encode the whole text, then ``finish_whole``. A plan
    that is dropped leaves the cache as it was. Not thread-safe by itself; any number of
    plans may be under way at once.
    """

    def __dealloc__(self):
        free(self.pool)
        free(self.pieces.items)
        free(self.runs.items)

    cdef void _begin(self, str text, const walk* w, bint special, int64_t started) noexcept:
        """Lead another text, whose walk ended just now, without copies of what it matched.

        The lock is held, and is until the plan is finished or `_let_go`.
        """
        cdef Trie trie = self.walker.trie
        self.text = text
        self.view = text_of(text)
        self.special = special
        self.started = started
        self.reached = w[0]
        self.is_held = True
        self.n_matched = <int64_t> w.reached.n_ids
        self.version = trie.t.store.version
        self.clears = trie.t.roots[self.walker.root].clears
        self.hit = w.position > 0
        self.pool_used = 0
        self.pieces.n = 0
        self.runs.n = 0

    cdef int _let_go(self) except -1:
        """Copy what was matched, to be finished after the lock was given back."""
        self._reserve(self.n_matched)
        copy_path(self.reached.reached, self.pool + self.pool_used)
        self.matched_at = self.pool_used
        self.pool_used += self.n_matched
        self.is_held = False
        return 0

    cdef int _reserve(self, int64_t more) except -1:
        """Make room for more ids in the pool."""
        cdef int64_t size = self.pool_used + more
        cdef uint32_t* grown
        if size <= self.pool_size:
            return 0
        size += size // 2
        grown = <uint32_t*> realloc(self.pool, <size_t> size * 4)
        if grown == NULL:
            raise MemoryError
        self.pool = grown
        self.pool_size = size
        return 0

    cdef int _prepare(self) except -1:
        """Cut the rest of the text, look each piece up, and group what is unknown."""
        self._cut()
        self._note_untried()
        with cython.critical_section(self.walker.trie):
            self._find_known(True)
        return self._group()

    cdef int _cut(self) except -1:
        """Cut the rest of the text and hash each piece."""
        cdef Walker walker = self.walker
        cdef piece* p
        cdef Py_ssize_t k
        if not pieces_cut(&self.pieces, walker.scanner, &self.view, &self.reached):
            raise MemoryError
        for k in range(self.pieces.n):
            p = &self.pieces.items[k]
            p.kind = text_narrowest(&self.view, p.start, p.end)
            p.hash = walker.trie.hash_piece(walker.root, &self.view, p)
        self.has_boundary = self.pieces.n > 0
        return 0

    cdef bint _has_untried(self) noexcept:
        cdef Scanner scanner = self.walker.scanner
        cdef int32_t token
        cdef Py_ssize_t k
        for k in range(self.pieces.n):
            token = self.pieces.items[k].token
            if token != NO_TOKEN and scanner.statuses[token] != TRUSTED:
                return True
        return False

    cdef int _note_untried(self) except -1:
        """List the boundary tokens that are met for the first time."""
        cdef Scanner scanner = self.walker.scanner
        cdef set untried
        cdef int32_t token
        cdef Py_ssize_t k
        self.untried = ()
        if self._has_untried():
            untried = set()
            # One that was refused since it was cut at is tried, and refused, once more.
            for k in range(self.pieces.n):
                token = self.pieces.items[k].token
                if token != NO_TOKEN and scanner.statuses[token] != TRUSTED:
                    untried.add(token)
            self.untried = tuple(sorted(untried))
        return 0

    cdef int _group(self) except -1:
        if not runs_group(&self.runs, &self.pieces):
            raise MemoryError
        return 0

    @property
    def n_runs(self):
        """Return how many runs there are to feed."""
        return self.runs.n

    cdef int _find_known(self, bint copies) except -1:
        """Find pieces that are cached under any path; copy their ids if asked.

        The lock is held.
        """
        cdef Trie trie = self.walker.trie
        cdef segment* found
        cdef piece* p
        cdef Py_ssize_t i
        for i in range(self.pieces.n):
            p = &self.pieces.items[i]
            found = trie.find(self.walker.root, &self.view, p)
            if found == NULL:
                continue
            p.is_known = True
            if not copies:
                continue
            self._reserve(found.n_ids)
            if found.n_ids:
                memcpy(
                    self.pool + self.pool_used, segment_ids(found),
                    <size_t> found.n_ids * 4,
                )
            p.ids_at = self.pool_used
            p.n_ids = found.n_ids
            self.pool_used += found.n_ids
        return 0

    cdef run* _checked_run(self, Py_ssize_t i) except NULL:
        if not 0 <= i < self.runs.n:
            raise IndexError(f"no run {i}")
        return &self.runs.items[i]

    cdef str _with_anchor(self, const piece* first, Py_ssize_t end):
        cdef str text = self.text[first.start : end]
        if first.anchor == NO_TOKEN:
            return text
        return <str> self.walker.scanner.contents[first.anchor] + text

    def run_text(self, Py_ssize_t i, /):
        """Return the text to encode for a run: its anchor, then its pieces."""
        return self._run_text(self._checked_run(i))

    cdef str _run_text(self, const run* r):
        return self._with_anchor(&self.pieces.items[r.first], self.pieces.items[r.end - 1].end)

    def segment_texts(self, Py_ssize_t i, /):
        """Return the texts of a run's pieces, each behind its own anchor."""
        cdef run* r = self._checked_run(i)
        cdef Py_ssize_t k
        return [
            self._with_anchor(&self.pieces.items[k], self.pieces.items[k].end)
            for k in range(r.first, r.end)
        ]

    def boundary_tokens(self):
        """Return the boundary tokens of what is not matched, each once, in order."""
        cdef Py_ssize_t k
        cdef list tokens = [
            self.pieces.items[k].token
            for k in range(self.pieces.n)
            if self.pieces.items[k].token != NO_TOKEN
        ]
        return [self.walker.scanner.contents[token] for token in dict.fromkeys(tokens)]

    cdef int64_t _take(self, ids) except -1:
        """Append ids to the pool and return where they begin."""
        cdef int64_t start = self.pool_used
        cdef list items
        cdef TokenIds ready
        cdef object item
        cdef Py_ssize_t i, n
        if isinstance(ids, TokenIds) or PyObject_CheckBuffer(ids):
            ready = ids if isinstance(ids, TokenIds) else TokenIds(ids)
            self._reserve(ready.length)
            if ready.length:
                memcpy(self.pool + start, ready.data, <size_t> ready.length * 4)
            self.pool_used += ready.length
            return start
        items = ids if isinstance(ids, list) else list(ids)
        with cython.critical_section(items):
            n = len(items)
            self._reserve(n)
            if copy_plain_ids(items, n, self.pool + start):
                self.pool_used += n
                return start
        for i in range(n):
            # Turning a foreign number into an id may run code that changes the list, or
            # that feeds this plan.
            if i >= len(items):
                raise RuntimeError("the ids changed while they were read")
            item = items[i]
            self.pool[start + i] = item if PyLong_CheckExact(item) else operator.index(item)
        if self.pool_used != start:
            raise RuntimeError("the plan was fed while it read ids")
        self.pool_used += n
        return start

    cdef bint _split(self, const run* r, int64_t start) noexcept:
        """Cut the pool from ``start`` at the boundary ids, which must be those scanned."""
        cdef Scanner scanner = self.walker.scanner
        cdef Py_ssize_t k = r.first
        cdef int64_t at
        cdef int32_t token
        cdef piece* p
        for at in range(start, self.pool_used):
            token = scanner.boundary_of_id(self.pool[at])
            if token < 0:
                continue
            if k == r.end or self.pieces.items[k].token != token:
                return False
            p = &self.pieces.items[k]
            p.ids_at = start
            p.n_ids = at + 1 - start
            start = at + 1
            k += 1
        if k < r.end and self.pieces.items[k].token == NO_TOKEN:
            self.pieces.items[k].ids_at = start
            self.pieces.items[k].n_ids = self.pool_used - start
            return True
        return k == r.end and start == self.pool_used

    def feed(self, Py_ssize_t i, ids, /):
        """Take the inner tokenizer's ids of ``run_text(i)`` and check them.

        Returns 0 if they were taken; 1 if the boundary ids among them are not those of
        the scan: encode ``segment_texts(i)`` and call ``feed_segments``; 2 if the first
        is not the anchor's: encode the whole text and call ``finish_whole``.
        """
        return self._feed(self._checked_run(i), ids)

    cdef feed_status _feed(self, run* r, ids) except? WHOLE_TEXT:
        return self._check(r, self._take(ids))

    cdef feed_status _check(self, run* r, int64_t start) noexcept:
        """Take what the pool has from ``start`` for a run, if it can be that."""
        cdef int64_t before = start
        cdef int32_t anchor = self.pieces.items[r.first].anchor
        r.is_fed = False  # what was taken before is not kept
        if anchor != NO_TOKEN:
            if (
                start == self.pool_used
                or self.pool[start] != self.walker.scanner.ids[anchor]
            ):
                self.pool_used = before
                return WHOLE_TEXT
            start += 1
        if not self._split(r, start):
            self.pool_used = before
            return EACH_SEGMENT
        r.is_fed = True
        return TAKEN

    def feed_segments(self, Py_ssize_t i, all_ids, /):
        """Take the ids of each of ``segment_texts(i)``; only their ends are checked.

        The model may emit a boundary's id for other text, so ids inside a segment prove
        nothing against it. Returns 0, or 2 as ``feed`` does.
        """
        cdef run* r = self._checked_run(i)
        cdef Scanner scanner = self.walker.scanner
        cdef list texts = list(all_ids)
        cdef int64_t start
        cdef Py_ssize_t k
        cdef piece* p
        r.is_fed = False
        if len(texts) != r.end - r.first:
            raise ValueError("feed_segments needs the ids of every segment of the run")
        for k in range(r.first, r.end):
            p = &self.pieces.items[k]
            start = self._take(texts[k - r.first])
            if p.anchor != NO_TOKEN:
                if (
                    start == self.pool_used
                    or self.pool[start] != scanner.ids[p.anchor]
                ):
                    return WHOLE_TEXT
                start += 1
            if p.token != NO_TOKEN and (
                start == self.pool_used
                or self.pool[self.pool_used - 1] != scanner.ids[p.token]
            ):
                return WHOLE_TEXT
            p.ids_at = start
            p.n_ids = self.pool_used - start
        r.is_fed = True
        return TAKEN

    def finish(self):
        """Return the ids of the whole text and link what is new.

        Raises ``MemoryError``, with the cache as it was, if linking cannot get memory.
        """
        return self._finish()

    cdef TokenIds _finish(self):
        cdef TokenIds ids = self._collected()
        with cython.critical_section(self.walker.trie):
            self._conclude()
        return ids

    cdef TokenIds _collected(self):
        cdef int64_t n_ids = self._weigh()
        cdef TokenIds ids = self.walker._result(n_ids, self.special)
        self._write(ids.data + (self.walker.n_before if self.special else 0))
        return ids

    cdef int64_t _weigh(self) except -1:
        """Return how many ids the text itself has, and note how many of them were fed."""
        cdef int64_t total = self.n_matched
        cdef int64_t fresh = 0
        cdef Py_ssize_t i, k
        if not self.has_boundary:
            raise RuntimeError("a text without a boundary must be encoded whole")
        for i in range(self.runs.n):
            if not self.runs.items[i].is_fed:
                raise RuntimeError(f"run {i} was not fed")
            for k in range(self.runs.items[i].first, self.runs.items[i].end):
                fresh += self.pieces.items[k].n_ids
        for k in range(self.pieces.n):
            total += self.pieces.items[k].n_ids
        self.uncached_tokens = fresh
        self.cached_tokens = total + self.walker._affix_length(self.special) - fresh
        return total

    cdef void _write(self, uint32_t* out) noexcept nogil:
        """Write the text's own ids."""
        cdef const piece* p
        cdef Py_ssize_t k
        if self.n_matched:
            if self.is_held:
                copy_path(self.reached.reached, out)
            else:
                memcpy(out, self.pool + self.matched_at, <size_t> self.n_matched * 4)
            out += self.n_matched
        for k in range(self.pieces.n):
            p = &self.pieces.items[k]
            if p.n_ids:
                memcpy(out, self.pool + p.ids_at, <size_t> p.n_ids * 4)
                out += p.n_ids

    cdef int _conclude(self) except -1:
        """Link what is new and count the text. The lock is held until that comes."""
        if self.walker.extend_on_hit or not self.hit:
            self._link()
        return self._count()

    def finish_whole(self, ids, /):
        """Return the inner tokenizer's ids of the whole text; nothing is linked."""
        return self._finish_whole(ids if isinstance(ids, TokenIds) else TokenIds(ids))

    cdef TokenIds _finish_whole(self, TokenIds result):
        if self.walker is None:
            raise RuntimeError("a Plan comes from a Walker")
        self.uncached_tokens = result.length
        self.cached_tokens = 0
        self._count()
        return result

    def fresh_within(self, int64_t start, int64_t stop, /):
        """Return how many ids from ``start`` to ``stop`` were fed, those around not counted."""
        cdef int64_t at = self.n_matched
        cdef int64_t fresh = 0
        cdef int64_t end
        cdef Py_ssize_t k
        cdef Py_ssize_t i = 0
        for k in range(self.pieces.n):
            while i < self.runs.n and self.runs.items[i].end <= k:
                i += 1
            end = at + self.pieces.items[k].n_ids
            if i < self.runs.n and self.runs.items[i].first <= k:
                fresh += max(0, min(end, stop) - max(at, start))
            at = end
        return fresh

    cdef int _count(self) except -1:
        cdef Counters tally = self.walker.tally
        with cython.critical_section(tally):
            if self.hit:
                tally.hits += 1
            else:
                tally.misses += 1
            tally.cached_tokens += self.cached_tokens
            tally.uncached_tokens += self.uncached_tokens
            counters_time(tally, self.hit, self.started)
        return 0

    cdef int _link(self) except -1:
        """Link the new pieces where the walk ended, if that place is still there."""
        cdef Walker walker = self.walker
        cdef Trie trie = walker.trie
        cdef text_view prefix = self.view
        cdef walk w = self.reached
        if trie.t.roots[walker.root].clears != self.clears:
            return 0
        if trie.t.store.version != self.version:
            prefix.length = w.position
            trie.walk(walker.root, walker.scanner, &prefix, &w, False)
            if not w.is_complete or w.anchor != self.reached.anchor:
                return 0
        if (
            trie.link(
                walker.root, &w, &self.view, self.pieces.items, self.pieces.n, self.pool,
                walker.cache_tails,
            )
            == NO_MEMORY
        ):
            raise MemoryError
        return 0
