"""Check which strings can overlap, against all ways to lay one on another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokcache.backends.overlap import overlapping

# Short strings over few letters: they contain, begin and end with each other.
string_sets = st.sets(st.text("ab|", min_size=1, max_size=4), max_size=6)


def can_overlap(one: str, other: str) -> bool:
    """Tell whether two different strings can overlap in a text."""
    shorter = min(len(one), len(other))
    return (
        one in other
        or other in one
        or any(
            one[-n:] == other[:n] or other[-n:] == one[:n] for n in range(1, shorter)
        )
    )


def overlaps_itself(one: str) -> bool:
    """Tell whether a string begins with an end of its own."""
    return any(one[-n:] == one[:n] for n in range(1, len(one)))


@given(string_sets)
def test_strings_of_one_list(strings: set[str]) -> None:
    expected = {
        one
        for one in strings
        if any(can_overlap(one, other) for other in strings - {one})
    }
    found = overlapping(strings)
    assert found.keys() == expected
    assert all(can_overlap(one, other) for one, other in found.items())
    alone = {one for one in strings if overlaps_itself(one)}
    assert overlapping(strings, itself=True).keys() == expected | alone


@given(string_sets, string_sets)
def test_strings_of_two_lists(strings: set[str], others: set[str]) -> None:
    others -= strings
    found = overlapping(strings, others)
    assert found.keys() == {
        one for one in strings if any(can_overlap(one, other) for other in others)
    }
    assert all(
        other in others and can_overlap(one, other) for one, other in found.items()
    )


def test_an_empty_string_is_left_out() -> None:
    assert overlapping(["", "a"], itself=True) == {}
    assert overlapping([""], ["a", ""]) == {}


def test_many_strings_with_one_beginning_take_no_quadratic_time() -> None:
    """Each ends with what all of them begin with."""
    strings = [f"<{i:05}<" for i in range(20_000)]
    assert len(overlapping(strings)) == len(strings)
