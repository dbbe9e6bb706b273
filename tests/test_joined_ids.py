"""JoinedIds: the ids of many texts in one buffer that grows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokcache._ids import JoinedIds, TokenIds

MAX = (1 << 32) - 1


@given(
    st.lists(st.lists(st.integers(0, MAX), max_size=40), max_size=40),
    st.integers(-1, 200),
)
def test_all_ids_are_there_in_order(each: list[list[int]], expected: int) -> None:
    joined = JoinedIds(expected)
    for n_texts, one in enumerate(each):
        assert len(joined) == n_texts
        joined.append(TokenIds(one))
    ids, offsets = joined.finish()
    assert ids == [*itertools.chain(*each)]
    assert offsets.tolist() == [0, *itertools.accumulate(map(len, each))]


def test_more_room_than_there_is_makes_it_grow() -> None:
    for expected in (1 << 60, (1 << 62) + 1, (1 << 63) - 1):
        joined = JoinedIds(expected)
        joined.append(TokenIds(range(5000)))
        assert joined.finish()[0] == list(range(5000))


def test_finish_leaves_it_empty_and_the_buffers_stay() -> None:
    joined = JoinedIds(3)
    joined.append(TokenIds([1, 2]))
    first = joined.finish()
    assert len(joined) == 0
    joined.append(TokenIds([3] * 9))
    second = joined.finish()
    assert joined.finish()[0] == []
    del joined
    assert (first[0].ids, first[1].tolist()) == ([1, 2], [0, 2])
    assert (second[0].ids, second[1].tolist()) == ([3] * 9, [0, 9])


def test_what_is_returned_is_read_only() -> None:
    joined = JoinedIds()
    joined.append(TokenIds([1]))
    for buffer, kind in zip(joined.finish(), (np.uint32, np.int64), strict=True):
        array = np.asarray(buffer)
        assert array.dtype == kind
        assert not array.flags.writeable


@pytest.mark.parametrize("wrong", [None, [1], (), b"abcd"])
def test_only_token_ids_are_taken(wrong: Any) -> None:
    joined = JoinedIds()
    with pytest.raises(TypeError):
        joined.append(wrong)
    assert len(joined) == 0
