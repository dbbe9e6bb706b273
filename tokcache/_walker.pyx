# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""A wrapper's way through the trie: full hits at once, everything else as a Plan."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from tokcache._counters cimport Counters, counters_time, now_ns
from tokcache._ids cimport TokenIds, token_ids_uninitialised
from tokcache._plan cimport Plan
from tokcache._scan cimport Scanner
from tokcache._store cimport node
from tokcache._text cimport text_of, text_view
from tokcache._trie cimport Trie, copy_path, walk


@cython.final
@cython.no_gc_clear  # the trie is needed to the end
cdef class Walker:
    """Bind one root of a trie to a scanner, the ids around a prompt, and counters.

    Without a ``root`` it opens one of its own, and closes it when it goes. ``before`` and
    ``after`` are the ids that ``add_special_tokens=True`` puts around a prompt, or None
    where they are not known; then the flag must not be used. ``counters`` may be those of
    other walkers of the trie. Thread safety: as ``Trie`` and ``Counters``.
    """

    def __cinit__(
        self, Trie trie not None, root, Scanner scanner not None, before=(), after=(), *,
        bint extend_on_hit=True, bint cache_tails=True, Counters counters=None,
    ):
        cdef list ids = [*(before or ()), *(after or ())]
        cdef Py_ssize_t i
        self.affixes = <uint32_t*> calloc(len(ids) + 1, sizeof(uint32_t))
        if self.affixes == NULL:
            raise MemoryError
        for i in range(len(ids)):
            self.affixes[i] = ids[i]
        self.n_before = len(before or ())
        self.n_after = len(after or ())
        self.has_affixes = before is not None and after is not None
        self.scanner = scanner
        self.tally = Counters() if counters is None else counters
        self.extend_on_hit = extend_on_hit
        self.cache_tails = cache_tails
        if root is not None:
            trie.usage(root)  # raises for a root that does not exist
        self.root = trie.open_root() if root is None else root
        self.owns_root = root is None
        self.trie = trie

    def __dealloc__(self):
        free(self.affixes)
        cdef Trie trie = self.trie
        if self.owns_root and trie is not None:
            with cython.critical_section(trie):
                trie.clear_root(self.root, True)

    def lookup(self, str text not None, bint special, /):
        """Return the ids if all of the text is cached, else the Plan that leads to them.

        Linear in the text; independent of what else is cached.
        """
        return self._lookup(text, special, False, True)

    def match(self, str text not None, /):
        """Return what ``lookup`` does without special tokens, and count no hit.

        To be followed by ``count_hit`` if it was one and the ids are of use.
        """
        return self._lookup(text, False, False, False)

    def count(self, str text not None, bint special, /):
        """Return the number of ids if all of the text is cached, else a Plan."""
        return self._lookup(text, special, True, True)

    cdef object _lookup(self, str text, bint special, bint count_only, bint counts):
        cdef Trie trie = self.trie
        cdef int64_t started = now_ns() if self.tally.is_timed else 0
        cdef text_view view = text_of(text)
        cdef walk w
        if special and not self.has_affixes:
            raise ValueError("the ids around a prompt are not known")
        cdef int64_t total
        cdef Plan plan
        with cython.critical_section(trie):
            trie.walk(self.root, self.scanner, &view, &w, True)
            if w.is_complete and w.position:
                if not count_only:
                    return self._hit(&w, special, started, counts)
                total = <int64_t> w.reached.n_ids + self._affix_length(special)
                if counts:
                    self._count_hit(total, started)
                return total
            plan = Plan.__new__(Plan)
            plan.walker = self
            plan._begin(text, &w, special, started)
            plan._let_go()
        plan._prepare()
        return plan

    cdef TokenIds _hit(self, const walk* w, bint special, int64_t started, bint counts):
        """Return the ids of a text that is all cached; count it if asked.

        The lock is held; counting takes another and may let it go, and so comes last.
        """
        cdef TokenIds ids = self._result(<int64_t> w.reached.n_ids, special)
        copy_path(w.reached, ids.data + (self.n_before if special else 0))
        if counts:
            self._count_hit(ids.length, started)
        return ids

    cdef int _count_hit(self, int64_t n_ids, int64_t started) except -1:
        cdef Counters tally = self.tally
        with cython.critical_section(tally):
            tally.hits += 1
            tally.cached_tokens += n_ids
            counters_time(tally, True, started)
        return 0

    def longest_prefix(self, str text not None, /):
        """Return the ids and the end of the longest cached prefix of whole segments.

        It is shorter than the text, and not empty; None if there is none.
        """
        cdef Trie trie = self.trie
        cdef text_view view = text_of(text)
        cdef walk w
        cdef node* at
        cdef TokenIds ids
        with cython.critical_section(trie):
            trie.walk(self.root, self.scanner, &view, &w, True)
            at = w.reached
            while at.segment != NULL and w.position == view.length:
                w.position -= at.segment.length
                at = at.parent
            if at.segment == NULL:
                return None
            ids = self._result(<int64_t> at.n_ids, False)
            copy_path(at, ids.data)
        return ids, w.position

    cdef int64_t _affix_length(self, bint special) noexcept nogil:
        return self.n_before + self.n_after if special else 0

    cdef TokenIds _result(self, int64_t n_ids, bint special):
        """Make a result with the affixes in place and ``n_ids`` ids still to fill."""
        cdef TokenIds ids
        ids = token_ids_uninitialised(n_ids + self._affix_length(special))
        self._put_around(ids.data, n_ids, special)
        return ids

    cdef uint32_t* _put_around(self, uint32_t* out, int64_t n_ids, bint special) noexcept nogil:
        """Write the affixes around the place for so many ids, and return that place."""
        if not special:
            return out
        if self.n_before:
            memcpy(out, self.affixes, <size_t> self.n_before * 4)
            out += self.n_before
        if self.n_after:
            memcpy(out + n_ids, self.affixes + self.n_before, <size_t> self.n_after * 4)
        return out

    def count_pass_through(self):
        """Count a call that went to the inner tokenizer without a lookup."""
        with cython.critical_section(self.tally):
            self.tally.pass_throughs += 1

    def count_self_check_failure(self):
        """Count a failed self-check."""
        with cython.critical_section(self.tally):
            self.tally.self_check_failures += 1

    def drop(self):
        """Drop what the root holds."""
        cdef Trie trie = self.trie
        with cython.critical_section(trie):
            trie.clear_root(self.root, False)

    def clear(self):
        """Drop what the root holds and set hits, misses and token counts to zero."""
        cdef Trie trie = self.trie
        with cython.critical_section(trie):
            trie.clear_root(self.root, False)
        with cython.critical_section(self.tally):
            self.tally.clear()

    def clock(self):
        """Return when it is, for ``count_hit``; 0 if nothing is timed."""
        return now_ns() if self.tally.is_timed else 0

    def count_hit(self, int64_t cached, int64_t started, /):
        """Count a hit that ``match`` found, and how long it took."""
        self._count_hit(cached, started)

    def correct(self, int64_t cached, int64_t uncached, /):
        """Correct the token counts of an encode whose ids became others after it."""
        with cython.critical_section(self.tally):
            self.tally.cached_tokens += cached
            self.tally.uncached_tokens += uncached

    def counters(self):
        """Return hits, misses, cached and uncached tokens, pass-throughs, failures."""
        cdef Counters tally = self.tally
        with cython.critical_section(tally):
            return (
                tally.hits,
                tally.misses,
                tally.cached_tokens,
                tally.uncached_tokens,
                tally.pass_throughs,
                tally.self_check_failures,
            )
