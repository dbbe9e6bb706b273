# cython: language_level=3, freethreading_compatible=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""What one wrapper counts, over all the roots that it walks from."""

cimport cython

BUCKET_SECONDS = tuple([2.0 ** (FIRST_POWER + i) / 1e9 for i in range(N_BUCKETS - 1)])


@cython.final
cdef class Counters:
    """Count the encodes of one wrapper and where their ids came from.

    Walkers of one wrapper share the object. It has a lock of its own, for it is read even
    when no trie is left; who holds a trie's takes it last, when the trie may be let go.
    """

    cdef void clear(self) noexcept:
        """Set to zero what `clear_cache` does; the totals keep it."""
        self.cleared[0] += self.hits
        self.cleared[1] += self.misses
        self.cleared[2] += self.cached_tokens
        self.cleared[3] += self.uncached_tokens
        self.hits = self.misses = self.cached_tokens = self.uncached_tokens = 0

    def start_timing(self):
        """Time encodes from now on, for good; it costs each of them 30 to 75 ns."""
        self.is_timed = True

    def totals(self):
        """Return what was counted ever, never cleared.

        Hits, misses, cached and uncached tokens, pass-throughs, self-check failures.
        """
        with cython.critical_section(self):
            return (
                self.cleared[0] + self.hits,
                self.cleared[1] + self.misses,
                self.cleared[2] + self.cached_tokens,
                self.cleared[3] + self.uncached_tokens,
                self.pass_throughs,
                self.self_check_failures,
            )

    def latencies(self, bint hit, /):
        """Return how many hits, or misses, each bucket has, and their time in seconds.

        Bucket ``i`` has those that took no longer than ``BUCKET_SECONDS[i]`` and longer
        than the one before; the last one all others.
        """
        cdef int i
        with cython.critical_section(self):
            return (
                tuple([self.buckets[hit][i] for i in range(N_BUCKETS)]),
                self.latency_ns[hit] / 1e9,
            )
