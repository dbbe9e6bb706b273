# cython: language_level=3
"""What one wrapper counts; changed under the lock of its trie."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from *:
    """
    /* ceil(log2(n)), for n > 1 */
    static inline int tokcache_log2_up(long long n) {
        return 64 - __builtin_clzll((unsigned long long) n - 1);
    }
    """
    int tokcache_log2_up(long long n) noexcept nogil

cdef enum:
    # Bucket i has what took up to 2^(10+i) ns: from 1 µs to 4.3 s, and all above.
    FIRST_POWER = 10
    N_BUCKETS = 24


cdef class Counters:
    cdef int64_t hits
    cdef int64_t misses
    cdef int64_t cached_tokens
    cdef int64_t uncached_tokens
    cdef int64_t pass_throughs
    cdef int64_t self_check_failures
    cdef bint is_timed
    cdef int64_t cleared[4]
    cdef int64_t buckets[2][N_BUCKETS]
    cdef int64_t latency_ns[2]
    cdef void clear(self) noexcept


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t> t.tv_sec * 1000000000 + t.tv_nsec


cdef inline void counters_time(Counters c, bint hit, int64_t started) noexcept:
    """Count how long an encode took that began at a time; 0: it was not timed."""
    cdef int64_t took
    cdef int i
    if not started:
        return
    took = now_ns() - started
    i = 0 if took <= 1 << FIRST_POWER else tokcache_log2_up(took) - FIRST_POWER
    c.buckets[hit][min(i, N_BUCKETS - 1)] += 1
    c.latency_ns[hit] += took
