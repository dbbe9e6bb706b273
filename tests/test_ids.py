"""TokenIds: a sequence, a value, a buffer."""

from __future__ import annotations

import array
import collections.abc
import copy
import ctypes
import gc
import io
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokcache._ids import TokenIds, ready_int_bytes
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

MAX = (1 << 32) - 1
PYBUF_WRITABLE = 1  # a constant of the C API

id_lists = st.lists(st.integers(0, MAX) | st.sampled_from([0, 1, 1 << 31, MAX]))


@given(id_lists)
def test_ids_come_back_as_they_went_in(ids: list[int]) -> None:
    token_ids = TokenIds(ids)
    assert token_ids.ids == token_ids.tolist() == list(token_ids) == ids
    assert list(reversed(token_ids)) == ids[::-1]
    assert len(token_ids) == len(ids)
    assert bool(token_ids) is bool(ids)
    assert token_ids.tobytes() == array.array("I", ids).tobytes()


def test_arrays_of_any_byte_order_and_shape_are_ids_or_a_type_error() -> None:
    assert TokenIds(np.array([1, MAX], dtype=">u4")) == [1, MAX]
    assert TokenIds(np.array([1, 2], dtype=">i8")) == [1, 2]
    for odd in (np.array([1.5], dtype=">f4"), np.array(3), np.array([[1, 2]])):
        with pytest.raises(TypeError):
            TokenIds(odd)


def test_each_list_is_new() -> None:
    token_ids = TokenIds([1, 2])
    token_ids.ids.append(3)
    token_ids.tolist().clear()
    assert token_ids.ids == [1, 2]


@pytest.mark.parametrize(
    "source",
    [
        [1, 2, MAX],
        (1, 2, MAX),
        range(1, 4),
        TokenIds([1, 2, MAX]),
        array.array("I", [1, 2, MAX]),
        array.array("q", [1, 2, MAX]),
        memoryview(array.array("I", [1, 2, MAX])),
        memoryview(array.array("I", [1, 0, 2, 0, MAX]))[::2],
        np.array([1, 2, MAX], np.uint32),
        np.array([1, 2, MAX], np.int64),
        np.array([1, 0, 2, 0, MAX, 0], np.uint32)[::2],
        b"\x01\x02\x03",
        (i for i in (5, 6)),
        {7: None},
    ],
    ids=lambda source: type(source).__name__,
)
def test_anything_that_gives_integers_is_taken(source: Any) -> None:
    expected = [int(i) for i in source] if not hasattr(source, "send") else [5, 6]
    assert TokenIds(source).ids == expected


def test_numbers_that_are_integers_are_taken() -> None:
    assert TokenIds([np.uint32(MAX), np.int64(5), True]).ids == [MAX, 5, 1]


@pytest.mark.parametrize("bad", [-1, MAX + 1, 1 << 64, -(1 << 70)])
def test_ids_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"2\*\*32 - 1, got {bad}"):
        TokenIds([0, bad])


@pytest.mark.parametrize("bad", [1.0, "1", None, [1], b"1"])
def test_what_is_no_integer_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="integer"):
        TokenIds([0, bad])


@pytest.mark.parametrize("bad", [5, None, object()])
def test_what_is_no_iterable_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="iterable"):
        TokenIds(bad)


@pytest.mark.parametrize(
    "bad", ["abc", np.array([1.0]), np.array([[1, 2], [3, 4]], np.uint32)]
)
def test_other_shapes_and_types_are_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="integer"):
        TokenIds(bad)


@pytest.mark.parametrize("bad", [np.array([-1]), array.array("q", [MAX + 1])])
def test_buffers_out_of_range_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="token ids must be from 0"):
        TokenIds(bad)


def test_an_iterator_that_fails_is_heard() -> None:
    def failing() -> collections.abc.Iterator[int]:
        yield 1
        raise KeyError("inner")

    with pytest.raises(KeyError, match="inner"):
        TokenIds(failing())


@given(id_lists, st.slices(12) | st.slices(3))
def test_slices_are_those_of_a_list(ids: list[int], part: slice) -> None:
    taken = TokenIds(ids)[part]
    assert isinstance(taken, TokenIds)
    assert taken.ids == ids[part]


@given(id_lists, st.integers(-8, 8))
def test_indexes_are_those_of_a_list(ids: list[int], index: int) -> None:
    token_ids = TokenIds(ids)
    if -len(ids) <= index < len(ids):
        assert token_ids[index] == ids[index]
        assert type(token_ids[index]) is int
    else:
        with pytest.raises(IndexError):
            token_ids[index]


def test_odd_indexes() -> None:
    token_ids = TokenIds([5, 6, 7])
    assert token_ids[np.int64(1)] == 6
    for index in (1 << 70, -(1 << 70)):
        with pytest.raises(IndexError):
            token_ids[index]
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError):
            token_ids[wrong]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="zero"):
        token_ids[::0]


def test_it_is_a_sequence() -> None:
    token_ids: collections.abc.Sequence[int] = TokenIds([5, 6, 5])
    assert isinstance(token_ids, collections.abc.Sequence)
    assert not isinstance(token_ids, collections.abc.MutableSequence)
    assert 6 in token_ids
    assert 7 not in token_ids
    words: Any = token_ids
    assert "x" not in words
    assert token_ids.count(5) == 2
    assert token_ids.index(5) == 0
    assert token_ids.index(5, 1) == 2
    with pytest.raises(ValueError, match="7"):
        token_ids.index(7)


def test_sequence_patterns_match() -> None:
    match TokenIds([5, 6, 5]):
        case [5, *rest]:
            assert rest == [6, 5]
        case _:
            pytest.fail("it is registered as a Sequence and must match as one")


@given(id_lists, id_lists)
def test_equality_is_that_of_the_ids(ids: list[int], others: list[int]) -> None:
    token_ids = TokenIds(ids)
    for kind in (TokenIds, list, tuple):
        assert token_ids == kind(ids)
        assert kind(ids) == token_ids
        assert (token_ids != kind(ids)) is False
        assert (token_ids == kind(others)) is (ids == others)
        assert (token_ids != kind(others)) is (ids != others)
    assert hash(token_ids) == hash(tuple(ids))
    assert len({token_ids, TokenIds(ids), tuple(ids)}) == 1


def test_equality_with_what_is_no_ids() -> None:
    token_ids = TokenIds([1, 2])
    for other in (1, None, "12", {1, 2}, range(1, 3), array.array("I", [1, 2])):
        assert token_ids != other
        assert not token_ids == other  # noqa: SIM201 - both operators are ours
    assert token_ids == [1.0, 2.0]
    assert token_ids == [True, np.int64(2)]
    for odd in (1 << 32 | 1, (1 << 64) + 1, -1, "1", None, float("nan")):
        assert token_ids != [odd, 2]
    with pytest.raises(TypeError):
        token_ids < [1, 3]  # type: ignore[operator]  # noqa: B015


def test_equality_with_a_list_that_changes_meanwhile() -> None:
    class Emptier:
        def __eq__(self, other: object) -> bool:
            numbers.clear()
            return True

        __hash__ = None  # type: ignore[assignment]

    numbers: list[Any] = [Emptier(), 2, 3]
    assert TokenIds([1, 2, 3]) != numbers


def test_equality_that_raises_is_heard() -> None:
    class Broken:
        def __eq__(self, other: object) -> bool:
            raise KeyError("broken")

        __hash__ = None  # type: ignore[assignment]

    for kind in (list, tuple):
        with pytest.raises(KeyError, match="broken"):
            _ = TokenIds([1]) == kind([Broken()])


@given(id_lists)
def test_copies_and_pickles_are_equal(ids: list[int]) -> None:
    token_ids = TokenIds(ids)
    assert copy.copy(token_ids) is token_ids
    assert copy.deepcopy({"ids": token_ids})["ids"] is token_ids
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(token_ids, protocol))  # noqa: S301 - our own
        assert type(back) is TokenIds
        assert back == token_ids


def test_a_pickle_is_the_same_on_every_machine() -> None:
    reduced: Any = TokenIds([1, 0x01020304]).__reduce__()
    _, (raw,) = reduced
    assert raw == b"\x01\0\0\0\x04\x03\x02\x01"


def test_a_broken_pickle_is_refused() -> None:
    rebuild = TokenIds([1]).__reduce__()[0]
    assert callable(rebuild)
    with pytest.raises(ValueError, match="four-byte"):
        rebuild(b"\x01\0\0")
    with pytest.raises(TypeError):
        rebuild("abcd")


@given(id_lists)
def test_a_view_reads_without_a_copy(ids: list[int]) -> None:
    view = memoryview(TokenIds(ids))
    assert (view.format, view.itemsize, view.ndim) == ("I", 4, 1)
    assert (view.shape, view.strides) == ((len(ids),), (4,))
    assert view.readonly
    assert view.c_contiguous
    assert view.tolist() == ids
    assert view == array.array("I", ids)


def test_numpy_reads_without_a_copy() -> None:
    token_ids: Any = TokenIds([1, MAX, 3])
    first, second = np.asarray(token_ids), np.frombuffer(token_ids, np.uint32)
    assert first.dtype == np.uint32
    assert np.shares_memory(first, second)
    assert first.tolist() == second.tolist() == [1, MAX, 3]
    assert not first.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 5
    with pytest.raises(ValueError, match=r"WRITEABLE|writeable"):
        first.flags.writeable = True
    assert np.asarray(TokenIds()).shape == (0,)


def get_buffer(owner: object, flags: int) -> None:
    """Ask for a buffer as C code does, and give it back."""
    buffer = ctypes.create_string_buffer(256)  # a Py_buffer has 80 bytes
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(owner), buffer, flags)
    ctypes.pythonapi.PyBuffer_Release(buffer)


def test_nobody_can_write() -> None:
    get_buffer(TokenIds([1]), 0)
    token_ids = TokenIds([1, 2])
    view: Any = memoryview(token_ids)
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 5
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(b"12345678").readinto(token_ids)
    with pytest.raises(BufferError, match="read-only"):
        get_buffer(token_ids, PYBUF_WRITABLE)
    writer: Any = token_ids
    with pytest.raises(TypeError):
        writer[0] = 5
    with pytest.raises(TypeError):
        del writer[0]
    with pytest.raises(AttributeError):
        writer.anything = 5
    with pytest.raises(AttributeError):
        writer.ids = []
    with pytest.raises(TypeError, match="immutable"):
        writer.__init__([3])
    assert token_ids == [1, 2]


def test_it_cannot_be_subclassed() -> None:
    with pytest.raises(TypeError, match="TokenIds"):
        type("Sub", (TokenIds,), {})


def test_it_outlives_everything_else() -> None:
    trie = Trie(1 << 20, 1 << 20)
    walker = Walker(trie, None, Scanner([("#", 9, 1, True)]))
    plan = walker.lookup("ab#", False)
    assert isinstance(plan, Plan)
    plan.feed(0, [1, 2, 9])
    fresh = plan.finish()
    cached = walker.lookup("ab#", False)
    assert isinstance(cached, TokenIds)
    view = memoryview(cached)
    numbers = np.asarray(cached[1:])
    trie.clear()
    del plan, walker, trie
    gc.collect()
    assert fresh == cached == [1, 2, 9]
    del fresh, cached
    gc.collect()
    assert view.tolist() == [1, 2, 9]
    assert numbers.tolist() == [2, 9]


def test_huge_and_empty() -> None:
    n = 1_000_000
    huge = TokenIds(range(n))
    assert len(huge) == n
    assert (huge[0], huge[-1], huge[n // 2]) == (0, n - 1, n // 2)
    assert huge == list(range(n))
    assert sys.getsizeof(huge) >= 4 * n
    assert len(repr(huge)) < 200
    empty = TokenIds()
    others: list[Any] = [TokenIds([]), TokenIds(b""), [], ()]
    for other in others:
        assert empty == other
    assert empty.tobytes() == b""
    assert memoryview(empty).tolist() == []
    assert repr(empty) == "TokenIds([])"
    with pytest.raises(TypeError, match="positional"):
        TokenIds([1], [2])  # type: ignore[call-arg]


def test_a_repr_reads_back() -> None:
    assert repr(TokenIds([1, MAX])) == "TokenIds([1, 4294967295])"
    short = TokenIds(range(12))
    assert eval(repr(short)) == short  # noqa: S307 - our own
    long = TokenIds(range(13))
    assert repr(long).endswith("10, 11, ...], length=13)")


def test_lists_share_the_ints_of_common_ids() -> None:
    limit = 2**18
    values = [300, limit - 1, limit, 2**32 - 1]
    one, two = TokenIds(values).tolist(), TokenIds(values).tolist()
    assert one == two == values
    assert [a is b for a, b in zip(one, two, strict=True)] == [True, True, False, False]


def test_ints_are_kept_once_and_their_bytes_are_known() -> None:
    ids = TokenIds(range(200_000, 201_000))
    ids.tolist()
    before = ready_int_bytes()
    for _ in range(3):
        assert TokenIds(ids).tolist() == list(range(200_000, 201_000))
    assert ready_int_bytes() == before
    assert TokenIds([222_222]).tolist() == [222_222]
    assert before < ready_int_bytes() <= 40 * 2**18


def test_threads_that_need_the_same_ints_first() -> None:
    values = list(range(150_000, 160_000))
    ids = TokenIds(values)
    lists: list[list[int]] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        lists.append(ids.tolist())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lists == [values] * 8
