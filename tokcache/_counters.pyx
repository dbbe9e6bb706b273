# cython: language_level=3, freethreading_compatible=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""What one wrapper counts, over all the roots that it walks from."""

cimport cython


@cython.final
cdef class Counters:
    """Count the encodes of one wrapper and where their ids came from.

    Walkers of one wrapper share the object and change it under their trie's lock.
    """
