# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, auto_pickle=False, autotestdict=False
"""The result of an encode: token ids as an immutable buffer of ``uint32``."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport Py_EQ, Py_NE
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

import collections.abc
import operator
import sys


cdef extern from *:
    object PyLong_FromUnsignedLong(unsigned long value)
    const Py_ssize_t PY_SSIZE_T_MAX
    bint PyLong_CheckExact(object value) noexcept
    PyObject* PyList_GET_ITEM(object items, Py_ssize_t i) noexcept
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    long long _int_or_overflow "PyLong_AsLongLongAndOverflow"(
        object value, int* overflow
    ) noexcept
    ctypedef struct PyTypeObject:
        unsigned long tp_flags
    unsigned long Py_TPFLAGS_SEQUENCE
    void PyType_Modified(PyTypeObject* type) noexcept


cdef extern from *:
    """
    /* An int is published once, whoever makes it first; there is nothing to lock. */
    #define tokcache_load(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
    static inline int tokcache_publish(PyObject** place, PyObject* made) {
        PyObject* nothing = NULL;
        return __atomic_compare_exchange_n(
            place, &nothing, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    #define tokcache_add_one(n) __atomic_fetch_add(n, 1, __ATOMIC_RELAXED)
    """
    PyObject* tokcache_load(PyObject** place) noexcept
    bint tokcache_publish(PyObject** place, PyObject* made) noexcept
    void tokcache_add_one(Py_ssize_t* n) noexcept


cdef enum:
    REPR_IDS = 12  # ids that a repr shows before it turns to dots
    # Ids below this have their int made once for the whole process, when a list first
    # needs it: a list of ready objects is made five times as fast. Larger than all but a
    # few vocabularies; what is not used takes its pointer only.
    READY_INTS = 1 << 18
    INT_BYTES = 32


cdef PyObject** _ready = NULL
cdef Py_ssize_t _n_ready = 0


def ready_int_bytes():
    """Return the bytes that the ints kept for lists take, in the whole process.

    They are the same for every vocabulary and stay to the end; at most 10.5 MB.
    """
    return 0 if _ready == NULL else READY_INTS * sizeof(PyObject*) + _n_ready * INT_BYTES


cdef PyObject** _ready_ints() noexcept:
    """Return the table, made when it is first asked for; NULL without memory."""
    cdef PyObject** made
    global _ready
    if tokcache_load(<PyObject**> &_ready) == NULL:
        made = <PyObject**> calloc(READY_INTS, sizeof(PyObject*))
        if made != NULL and not tokcache_publish(<PyObject**> &_ready, <PyObject*> made):
            free(made)
    return <PyObject**> tokcache_load(<PyObject**> &_ready)


cdef object _new_int(PyObject** ready, uint32_t limit, uint32_t value):
    """Make an int, keep it if it is one of those to keep, and return it held for a list."""
    cdef object made = PyLong_FromUnsignedLong(value)
    if value < limit and tokcache_publish(&ready[value], <PyObject*> made):
        Py_INCREF(made)
        tokcache_add_one(&_n_ready)
    Py_INCREF(made)  # the list takes it over
    return made


@cython.final
@cython.no_gc
cdef class TokenIds:
    """Hold token ids, immutable, as a C-contiguous buffer of ``uint32``.

    A ``Sequence[int]``: indexing gives ``int``, slicing gives ``TokenIds``. Equal to
    another ``TokenIds``, a ``list`` or a ``tuple`` with the same ids, and hashed like
    that tuple. ``memoryview(ids)`` and ``numpy.asarray(ids)`` read it without a copy
    (format ``"I"``, one dimension, read-only); the memory lives as long as any of them.

    ``TokenIds(iterable)`` takes integers from 0 to 2**32 - 1; a C-contiguous buffer of
    that format is copied in one step. Raises ``TypeError`` for what is not an integer
    and ``ValueError`` for one out of range.

    Thread safety: immutable, so any number of threads may read it.

    >>> ids = TokenIds([1, 2, 3])
    >>> ids, ids[0], ids == [1, 2, 3], ids.ids
    (TokenIds([1, 2, 3]), 1, True, [1, 2, 3])
    """

    def __cinit__(self):
        self.data = NULL
        self.length = 0
        self.is_filled = False

    def __init__(self, ids=(), /):
        if self.is_filled:
            raise TypeError("TokenIds is immutable")
        if isinstance(ids, TokenIds):
            _fill_from_bytes(self, (<TokenIds> ids).data, (<TokenIds> ids).length)
            return
        if type(ids) is list and _fill_from_list(self, <list> ids):
            return
        try:
            view = memoryview(ids)
        except TypeError:
            _fill_from_items(self, ids)
            return
        with view:
            if view.format == "I" and view.itemsize == 4 and view.ndim == 1:
                raw = view.tobytes()
                _fill_from_bytes(self, <const char*> raw, len(raw) // 4)
                return
            try:
                items = view.tolist()
            except NotImplementedError:  # a format that only the object itself reads
                items = ids
        _fill_from_items(self, items)

    def __dealloc__(self):
        free(self.data)

    @property
    def ids(self):
        """Return the ids as a new ``list[int]``. O(n)."""
        return self.tolist()

    def tolist(self):
        """Return the ids as a new ``list[int]``. O(n)."""
        cdef list out = PyList_New(self.length)
        cdef PyObject** ready = _ready_ints()
        cdef const uint32_t* data = self.data
        cdef uint32_t limit = READY_INTS if ready != NULL else 0
        cdef PyObject* item
        cdef Py_ssize_t i
        for i in range(self.length):
            item = tokcache_load(&ready[data[i]]) if data[i] < limit else NULL
            if item == NULL:
                PyList_SET_ITEM(out, i, _new_int(ready, limit, data[i]))
            else:
                Py_INCREF(<object> item)
                PyList_SET_ITEM(out, i, <object> item)
        return out

    def tobytes(self):
        """Return the ids as bytes, four each, in the machine's byte order. O(n)."""
        return PyBytes_FromStringAndSize(<const char*> self.data, self.length * 4)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        cdef Py_ssize_t start, stop, step, i, count
        cdef TokenIds out
        if isinstance(index, slice):
            start, stop, step = index.indices(self.length)
            count = len(range(start, stop, step))
            out = token_ids_uninitialised(count)
            for i in range(count):
                out.data[i] = self.data[start + i * step]
            return out
        try:
            i = operator.index(index)
        except OverflowError:
            raise IndexError("TokenIds index out of range") from None
        if i < 0:
            i += self.length
        if not 0 <= i < self.length:
            raise IndexError("TokenIds index out of range")
        return PyLong_FromUnsignedLong(self.data[i])

    def __iter__(self):
        return iter(self.tolist())

    def __reversed__(self):
        return reversed(self.tolist())

    def __contains__(self, value):
        return value in self.tolist()

    def index(self, value, start=0, stop=None, /):
        """Return the first position of ``value``, as ``list.index`` does. O(n)."""
        return self.tolist().index(
            value, start, self.length if stop is None else stop
        )

    def count(self, value, /):
        """Return how often ``value`` occurs. O(n)."""
        return self.tolist().count(value)

    def __richcmp__(self, other, int op):
        if op != Py_EQ and op != Py_NE:
            return NotImplemented
        cdef bint equal
        if isinstance(other, TokenIds):
            equal = _equal_ids(self, <TokenIds> other)
        elif isinstance(other, list):
            equal = _equal_list(self, <list> other)
        elif isinstance(other, tuple):
            equal = _equal_list(self, list(other))
        else:
            return NotImplemented
        return equal if op == Py_EQ else not equal

    def __hash__(self):
        return hash(tuple(self.tolist()))

    def __repr__(self):
        if self.length <= REPR_IDS:
            return f"TokenIds({self.tolist()})"
        shown = ", ".join(map(str, self[:REPR_IDS].tolist()))
        return f"TokenIds([{shown}, ...], length={self.length})"

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _from_little_endian, (_little_endian(self),)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.length * 4

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("TokenIds is read-only")
        buffer.buf = self.data if self.data != NULL else <void*> _nothing
        buffer.obj = self
        buffer.len = self.length * 4
        buffer.itemsize = 4
        buffer.readonly = 1
        buffer.ndim = 1
        buffer.format = _format if flags & PyBUF_FORMAT else NULL
        # The two fields live as long as the object, and so as long as the view.
        buffer.shape = &self.length if flags & PyBUF_ND else NULL
        buffer.strides = &_stride if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = NULL
        buffer.internal = NULL


@cython.final
@cython.no_gc
cdef class JoinedIds:
    """Collect the ids of texts, one after another, in one buffer.

    With room for as many as are ``expected`` it need not be moved as it grows.
    ``append`` the ids of each; ``finish`` returns all, once. Not thread-safe.
    """

    def __cinit__(self, Py_ssize_t expected=0, /):
        # Pages are not there before they are written to, so more than enough costs
        # nothing; and if it cannot be had, it grows.
        if 0 < expected <= PY_SSIZE_T_MAX // 4:
            self.data = <uint32_t*> malloc(<size_t> expected * 4)
            self.size = expected if self.data != NULL else 0

    def __dealloc__(self):
        free(self.data)
        free(self.ends)

    def __len__(self):
        return self.n_texts

    def append(self, TokenIds ids not None, /):
        """Add the ids of the next text."""
        cdef uint32_t* out = self.room(ids.length)
        if ids.length:
            memcpy(out, ids.data, <size_t> ids.length * 4)
        self.commit(ids.length)

    def finish(self):
        """Return the ids, and the offsets: 0, and where the ids of each text end.

        The offsets are a buffer of ``int64``. Takes the ids out, so that it is empty.
        """
        cdef TokenIds ids = TokenIds.__new__(TokenIds)
        cdef uint32_t* fitted
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (self.n_texts + 1) * 8)
        cdef int64_t* out = <int64_t*> <char*> offsets
        view = memoryview(offsets).cast("q")
        out[0] = 0
        if self.n_texts:
            memcpy(out + 1, self.ends, <size_t> self.n_texts * 8)
        if self.n_ids:
            fitted = <uint32_t*> realloc(self.data, <size_t> self.n_ids * 4)
            ids.data = self.data if fitted == NULL else fitted
            ids.length = self.n_ids
            self.data = NULL
            self.size = self.n_ids = 0
        ids.is_filled = True
        self.n_texts = 0
        return ids, view

    cdef uint32_t* room(self, Py_ssize_t n) except NULL:
        """Return where to write the ids of the next text, so many."""
        cdef Py_ssize_t size = self.n_ids + n
        cdef void* grown
        if size >= self.size:
            size += size // 2 + 1
            grown = realloc(self.data, <size_t> size * 4)
            if grown == NULL:
                raise MemoryError
            self.data = <uint32_t*> grown
            self.size = size
        if self.n_texts == self.ends_size:
            size = 2 * self.n_texts + 8
            grown = realloc(self.ends, <size_t> size * 8)
            if grown == NULL:
                raise MemoryError
            self.ends = <int64_t*> grown
            self.ends_size = size
        return self.data + self.n_ids

    cdef void commit(self, Py_ssize_t n) noexcept:
        """Keep what was written to the `room` for so many."""
        self.n_ids += n
        self.ends[self.n_texts] = self.n_ids
        self.n_texts += 1


cdef Py_ssize_t _stride = 4
cdef char[2] _format = [c"I", 0]
cdef uint32_t[1] _nothing = [0]


cdef TokenIds token_ids_uninitialised(Py_ssize_t length):
    """Make a TokenIds whose ``length`` ids the caller fills before anyone sees it."""
    cdef TokenIds ids = TokenIds.__new__(TokenIds)
    _allocate(ids, length)
    return ids


cdef int _allocate(TokenIds ids, Py_ssize_t length) except -1:
    if length:
        ids.data = <uint32_t*> malloc(<size_t> length * 4)
        if ids.data == NULL:
            raise MemoryError
    ids.length = length
    ids.is_filled = True
    return 0


cdef int _fill_from_bytes(TokenIds ids, const void* data, Py_ssize_t length) except -1:
    _allocate(ids, length)
    if length:
        memcpy(ids.data, data, <size_t> length * 4)
    return 0


cdef bint copy_plain_ids(list items, Py_ssize_t n, uint32_t* out) noexcept:
    """Copy ids that are ints proper and in range; false if another thing is met.

    Runs no other code, so the list stays what it is; the caller has its critical section.
    """
    cdef int overflow = 0
    cdef long long value
    cdef Py_ssize_t i
    for i in range(n):
        if not PyLong_CheckExact(<object> PyList_GET_ITEM(items, i)):
            return False
        value = _int_or_overflow(<object> PyList_GET_ITEM(items, i), &overflow)
        if overflow or <uint64_t> value >> 32:
            return False
        out[i] = <uint32_t> value
    return True


cdef bint _fill_from_list(TokenIds ids, list items) except -1:
    """Take a list of plain ids at once; false, and nothing done, for any other."""
    cdef uint32_t* data
    cdef Py_ssize_t n
    with cython.critical_section(items):
        n = len(items)
        data = <uint32_t*> malloc(<size_t> (n + 1) * 4)
        if data == NULL:
            raise MemoryError
        if not copy_plain_ids(items, n, data):
            free(data)
            return False
    ids.data = data
    ids.length = n
    ids.is_filled = True
    return True


cdef int _fill_from_items(TokenIds ids, items) except -1:
    # Checked first: what a foreign number runs must not see ids that are not there yet.
    cdef list numbers = [operator.index(item) for item in items]
    cdef Py_ssize_t i
    for number in numbers:
        if not 0 <= number <= 0xFFFFFFFF:
            raise ValueError(f"token ids must be from 0 to 2**32 - 1, got {number}")
    if ids.is_filled:
        raise TypeError("TokenIds is immutable")
    _allocate(ids, len(numbers))
    for i in range(ids.length):
        ids.data[i] = numbers[i]
    return 0


cdef bint _equal_ids(TokenIds a, TokenIds b) noexcept:
    if a.length != b.length:
        return False
    return a.length == 0 or memcmp(a.data, b.data, <size_t> a.length * 4) == 0


cdef bint _equal_list(TokenIds ids, list other) except -1:
    cdef Py_ssize_t i = 0
    cdef int overflow = 0
    cdef object item
    if len(other) != ids.length:
        return False
    # The length is read again: comparing a foreign number may run code that changes it.
    while i < ids.length:
        if i >= len(other):
            return False
        item = other[i]
        if PyLong_CheckExact(item):
            if PyLong_AsLongLongAndOverflow(item, &overflow) != ids.data[i]:
                return False
        elif item != ids.data[i]:
            return False
        i += 1
    return len(other) == ids.length


cdef bint _is_little = sys.byteorder == "little"


cdef bytes _little_endian(TokenIds ids):
    if _is_little:
        return ids.tobytes()
    return b"".join([value.to_bytes(4, "little") for value in ids.tolist()])


def _from_little_endian(bytes raw, /):
    """Rebuild a TokenIds from its pickle: four bytes an id, least significant first."""
    if len(raw) % 4:
        raise ValueError("a pickled TokenIds must be whole four-byte ids")
    if not _is_little:
        return TokenIds(
            [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]
        )
    cdef TokenIds ids = TokenIds.__new__(TokenIds)
    _fill_from_bytes(ids, <const char*> raw, len(raw) // 4)
    return ids


collections.abc.Sequence.register(TokenIds)
# What `register` does for a type that is not immutable: sequence patterns match it.
(<PyTypeObject*> TokenIds).tp_flags |= Py_TPFLAGS_SEQUENCE
PyType_Modified(<PyTypeObject*> TokenIds)
