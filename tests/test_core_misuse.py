"""Wrong uses of the compiled classes raise; none may crash or store anything."""

from __future__ import annotations

from typing import Any

import pytest

from tests.toys import special, toy
from tokcache import CachedTokenizer
from tokcache._ids import TokenIds
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker


class Shrinking:
    """A number whose conversion empties the list it stands in."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __index__(self) -> int:
        self.items.clear()
        return 1


def plan_for(text: str) -> tuple[Trie, Plan]:
    trie = Trie(10**6, 10**6)
    scanner = Scanner([("#", 9, 1, True)])
    plan = Walker(trie, None, scanner).lookup(text, False)
    assert isinstance(plan, Plan)
    return trie, plan


@pytest.mark.parametrize("arguments", [(), (1,), (-1, 1), (1, -1), ("a", 1)])
def test_a_trie_needs_two_budgets(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Trie(*arguments)


def test_a_plan_comes_from_a_walker() -> None:
    with pytest.raises(RuntimeError):
        Plan().finish_whole([1])


def test_ids_that_change_while_they_are_read() -> None:
    trie, plan = plan_for("q#r")
    ids: list[Any] = [5, 9, 6]
    ids[0] = Shrinking(ids)
    with pytest.raises(RuntimeError):
        plan.feed(0, ids)
    trie.check()
    assert plan.feed(0, [5, 9, 6]) == 0
    assert plan.finish() == [5, 9, 6]


class Feeding:
    """A number whose conversion feeds the plan that is reading it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __index__(self) -> int:
        assert self.plan.feed(0, [5, 9, *[6] * 1000]) == 0
        return 6


def test_a_plan_that_is_fed_while_it_reads_ids() -> None:
    trie, plan = plan_for("q#r")
    ids: list[Any] = [5, 9, Feeding(plan), *[6] * 1500]
    with pytest.raises(RuntimeError, match="while it read"):
        plan.feed(0, ids)
    trie.check()
    assert plan.feed(0, [5, 9, 6]) == 0
    assert plan.finish() == [5, 9, 6]


@pytest.mark.parametrize("wrong", [[1.0], ["1"], [None], [-1], [2**32]])
def test_what_is_no_id_is_not_taken(wrong: list[Any]) -> None:
    trie, plan = plan_for("q#r")
    with pytest.raises((TypeError, OverflowError)):
        plan.feed(0, wrong)
    with pytest.raises(RuntimeError, match="not fed"):
        plan.finish()
    assert trie.usage()[0] == 0


def test_a_run_that_is_fed_again_and_rejected_counts_as_not_fed() -> None:
    trie, plan = plan_for("q#r")
    assert plan.feed(0, [5, 9, 6]) == 0
    assert plan.feed(0, [7, 7, 9, 9, 1]) == 1
    with pytest.raises(RuntimeError, match="not fed"):
        plan.finish()
    assert trie.usage()[0] == 0


@pytest.mark.parametrize("i", [-1, 1, 10**6])
def test_a_run_that_does_not_exist(i: int) -> None:
    _, plan = plan_for("q#r")
    for call in (plan.run_text, plan.segment_texts):
        with pytest.raises(IndexError):
            call(i)
    with pytest.raises(IndexError):
        plan.feed(i, [])


@pytest.mark.parametrize("root", [-1, 1, 10**9])
def test_a_root_that_does_not_exist(root: int) -> None:
    trie = Trie(1, 1)
    trie.open_root()
    scanner = Scanner([])
    with pytest.raises(ValueError, match="root"):
        Walker(trie, root, scanner)
    with pytest.raises(ValueError, match="root"):
        trie.clear(root)


def test_a_closed_root_is_given_out_again_and_empty() -> None:
    trie = Trie(10**6, 10**6)
    scanner = Scanner([("#", 9, 1, True)])
    for _ in range(3):
        walker = Walker(trie, None, scanner)
        plan = walker.lookup("a#", False)
        assert isinstance(plan, Plan)  # nothing is left of the walker before
        assert plan.feed(0, [5, 9]) == 0
        assert plan.finish() == [5, 9]
        assert isinstance(walker.lookup("a#", False), TokenIds)
        assert trie.usage()[0] == 1
        del walker, plan
    trie.check()
    assert trie.usage()[:3] == (0, 0, 0)
    assert trie.open_root() == 0


def test_each_closed_root_is_given_out_once() -> None:
    trie = Trie(10**6, 10**6)
    walker = Walker(trie, None, Scanner([]))
    others = [trie.open_root() for _ in range(3)]
    trie.close_root(others[1])
    trie.close_root(0)  # under its walker
    with pytest.raises(ValueError, match="root"):
        trie.close_root(others[1])
    del walker
    opened = {trie.open_root() for _ in range(4)}
    assert opened == {0, others[1], 4, 5}


def test_affixes_that_are_not_known_are_not_used() -> None:
    walker = Walker(Trie(1, 1), None, Scanner([]), None, None)
    with pytest.raises(ValueError, match="around a prompt"):
        walker.lookup("a", True)


@pytest.mark.parametrize(
    "token",
    [("", 1, 1, True), ("a", -1, 1, True), ("a", 2**32, 1, True), ("a", 1, 3, True)],
)
def test_a_scanner_checks_its_tokens(token: tuple[str, int, int, bool]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - four messages
        Scanner([token])


def test_a_scanner_takes_no_content_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        Scanner([("a", 1, 1, True), ("a", 2, 2, True)])


def test_token_ids_cannot_be_filled_again() -> None:
    for ids in (TokenIds(), TokenIds([1])):
        with pytest.raises(TypeError, match="immutable"):
            ids.__init__([2, 3])
        assert len(ids) <= 1


def test_token_ids_that_cannot_be_made_hold_nothing() -> None:
    ids = TokenIds.__new__(TokenIds)
    with pytest.raises(ValueError, match="2\\*\\*32"):
        ids.__init__([7] * 50 + [-1])
    assert len(ids) == 0


@pytest.mark.parametrize("value", [-1, "8", 1.5, True])
def test_a_bound_for_texts_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="max_chars must be an integer >= 0"):
        CachedTokenizer(toy(special("<a>")), max_chars=value)


def test_a_namespace_without_a_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="namespace"):
        CachedTokenizer(toy(special("<a>")), namespace=b"tenant")
