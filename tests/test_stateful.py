"""Random sequences of calls against the compiled trie and its plain-Python model.

After every rule all state of both must be equal; `tests.lockstep` does the comparing.
The machine is followed by scripts that sweep what random draws rarely meet exactly: the
thresholds of budgets, tables, tails and bridges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.lockstep import (
    SKETCH_MIN_BUDGET,
    UNBOUNDED,
    Lockstep,
    Tokens,
    eligible,
)
from tests.trie_calls import ALPHABET, LONG, TOKEN_SETS, Calls
from tokcache._plan import BRIDGE_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterator


@st.composite
def token_sets(draw: st.DrawFn) -> Tokens:
    """Draw a fixed set of added tokens, or any over few characters."""
    if draw(st.booleans()):
        return draw(st.sampled_from(TOKEN_SETS))
    contents = st.text("ab<>\xe9", min_size=1, max_size=4)
    drawn = draw(st.lists(contents, min_size=1, max_size=6, unique=True))
    return eligible([(content, draw(st.sampled_from([1, 1, 2]))) for content in drawn])


# What a text is made of: an added token by number, or any text.
part = st.one_of(
    st.integers(0, 5), st.text(ALPHABET, max_size=3), st.sampled_from(["a", "b"])
)
parts = st.lists(part, max_size=8)
ending = st.one_of(st.just(""), st.text(ALPHABET, max_size=3), st.sampled_from(LONG))
# An id takes 4 bytes; a path of one segment at least 1,200, tables included.
memory_budgets = st.one_of(
    st.just(UNBOUNDED), st.integers(40, 600), st.integers(600, 5000)
)
resident_budgets = st.one_of(
    st.integers(1300, 5000),
    st.integers(5000, 20000),
    st.sampled_from([SKETCH_MIN_BUDGET, 300_000, UNBOUNDED]),
)
useful_budgets = st.tuples(memory_budgets, resident_budgets)
tiny_budgets = st.tuples(st.integers(0, 40), st.integers(0, 1300))
budgets = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7]).flatmap(
    lambda case: useful_budgets if case < 7 else tiny_budgets
)
some = st.integers(0, 1 << 16)  # an index into whatever there is


class Machine(Calls, RuleBasedStateMachine):
    """Two to six wrappers on two or three roots of one trie, on both sides."""

    @initialize(
        budgets=budgets,
        sets=st.lists(token_sets(), min_size=2, max_size=3),
        hash_bits=st.sampled_from([0, 3, 64]),
        data=st.data(),
    )
    def start(
        self,
        budgets: tuple[int, int],
        sets: list[Tokens],
        hash_bits: int,
        data: st.DataObject,
    ) -> None:
        """Make the tries, roots and wrappers."""
        self.make_tries(budgets, hash_bits=hash_bits)
        for tokens in sets:
            leaks, fuses = data.draw(
                st.sampled_from([(False, False), (True, False), (False, True)])
            )
            flags = leaks, fuses, data.draw(st.booleans())
            refuses = data.draw(st.sets(st.integers(0, 5), max_size=1))
            lane = self.open_root(tokens, flags, refuses)
            if data.draw(st.booleans()):
                self.both.add_wrapper(
                    lane,
                    (1, 2)[: data.draw(st.integers(0, 2))],
                    (3,),
                    extend_on_hit=data.draw(st.booleans()),
                    cache_tails=data.draw(st.booleans()),
                )

    encode_new = rule(lane=some, pieces=parts, end=ending, special=st.booleans())(
        Calls.encode_new
    )
    encode_again = rule(lane=some, which=some, special=st.booleans())(
        Calls.encode_again
    )
    encode_elsewhere = rule(lane=some, other=some, which=some)(Calls.encode_elsewhere)
    encode_next_turn = rule(lane=some, which=some, pieces=parts, end=ending)(
        Calls.encode_next_turn
    )
    encode_branch = rule(lane=some, which=some, cut=some, pieces=parts, end=ending)(
        Calls.encode_branch
    )
    encode_many = rule(
        lane=some, salt=some, n=st.integers(20, 150), deep=st.booleans()
    )(Calls.encode_many)
    encode_fat = precondition(lambda self: self.both.budgets[1] >= SKETCH_MIN_BUDGET)(
        rule(lane=some, n=st.integers(15_000, 260_000), end=ending)(Calls.encode_fat)
    )
    encode_together = rule(
        lane=some,
        which=some,
        drawn=st.lists(st.tuples(some, parts), max_size=5),
        special=st.booleans(),
    )(Calls.encode_together)
    count = rule(lane=some, which=some, special=st.booleans())(Calls.count)
    look_up = rule(
        lane=some, which=some, pieces=parts, end=ending, special=st.booleans()
    )(Calls.look_up)
    finish_one = precondition(lambda self: self.pending)(
        rule(which=some)(Calls.finish_one)
    )
    finish_after_others = precondition(lambda self: self.pending)(
        rule(which=some, evict=st.booleans())(Calls.finish_after_others)
    )
    count_oddities = rule(lane=some)(Calls.count_oddities)

    @rule(lane=some, everything=st.booleans(), choice=st.integers(0, 3))
    def clear_seldom(self, lane: int, everything: bool, choice: int) -> None:
        """Clear one root or everything, not too often."""
        if not choice:
            self.clear(lane, everything)

    @rule(lane=some, choice=st.integers(0, 3))
    def clear_walker_seldom(self, lane: int, choice: int) -> None:
        """Clear a root and a wrapper's counters, not too often."""
        if not choice:
            self.clear_walker(lane)

    @invariant()
    def same(self) -> None:
        """Compare all state."""
        self.both.compare()


Machine.TestCase.settings = settings(stateful_step_count=30)
TestMachine = Machine.TestCase

PLAIN = eligible([("#", 1), ("%", 1)])


def chain(n: int, distinct: int = 1000, salt: str = "") -> str:
    """Make a text of ``n`` segments, of which so many are different."""
    return "".join(f"{salt}{i % distinct}#" for i in range(n))


def churn(both: Lockstep) -> Iterator[None]:
    """Grow, branch, repeat and drop paths, long and short; stop at each step."""
    first, second = both.open_root(PLAIN), both.open_root(PLAIN)
    for n in (1, 2, 5, 20, 40, 70):
        both.encode(first, chain(n))
        yield
        both.encode(second, chain(n, distinct=3) + "tail")
        yield
    for i in range(12):
        both.encode(first, chain(i, salt="b") + chain(i) + "\xe9" * i)
        yield
        both.encode(second, chain(2 * i) + f"{i}")
        yield
        both.encode(first, chain(40))
        yield
    both.clear(first.root)
    yield
    both.encode(second, chain(90, distinct=45))
    yield
    both.clear()
    yield
    both.encode(first, chain(3))
    yield


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 1200, 100), (1200, 4000, 31), (4000, 40_000, 500)]
)
def test_both_sides_agree_at_any_resident_budget(
    start: int, stop: int, step: int
) -> None:
    for resident in range(start, stop, step):
        both = Lockstep(UNBOUNDED, resident)
        for _ in churn(both):
            both.compare()


def test_both_sides_agree_at_any_memory_budget() -> None:
    for memory in range(0, 800, 28):
        both = Lockstep(memory, UNBOUNDED)
        for _ in churn(both):
            both.compare()


@pytest.mark.parametrize("distinct", [40, 100])
def test_tables_halve_alike(distinct: int) -> None:
    """Push any number of a path's nodes out by one segment."""
    for size in range(0, 20_000, 250):
        both = Lockstep(UNBOUNDED, 30_000)
        lane = both.open_root(PLAIN)
        both.encode(lane, chain(100, distinct))
        both.encode(lane, "x" * size + "#")
        both.compare()


def test_tables_halve_alike_when_a_root_is_cleared() -> None:
    for kept in range(1, 80):
        both = Lockstep(UNBOUNDED, UNBOUNDED)
        first, second = both.open_root(PLAIN), both.open_root(PLAIN)
        both.encode(first, chain(kept))
        both.encode(second, chain(300))
        both.clear(second.root)
        both.compare()


@pytest.mark.parametrize("chars", range(BRIDGE_CHARS - 2, BRIDGE_CHARS + 3))
@pytest.mark.parametrize("last", ["#", "#b%"])
def test_known_text_between_unknown_is_a_bridge_up_to_a_length(
    chars: int, last: str
) -> None:
    both = Lockstep(UNBOUNDED, UNBOUNDED)
    lane = both.open_root(PLAIN)
    known = "a" * (chars - len(last)) + last
    both.encode(lane, f"start#{known}")
    for text in (f"{known}new#{known}newer#{known}", f"start#x#{known}y#{known}"):
        pending = both.begin(lane, text)
        assert pending is not None
        assert pending.compiled.n_runs == (1 if chars <= BRIDGE_CHARS else 2)
        both.finish(pending)
        both.compare()


@pytest.mark.parametrize("chars", range(63, 67))
def test_a_tail_is_stored_at_once_up_to_a_length(chars: int) -> None:
    for resident in (SKETCH_MIN_BUDGET - 1, SKETCH_MIN_BUDGET):
        both = Lockstep(UNBOUNDED, resident)
        lane = both.open_root(PLAIN)
        for text in ("a#", "b#", "a#"):
            both.encode(lane, text + "t" * chars)
            both.compare()


def test_a_long_tail_that_was_dropped_is_stored_again_at_once() -> None:
    both = Lockstep(UNBOUNDED, SKETCH_MIN_BUDGET)
    lane = both.open_root(PLAIN)
    other = both.open_root(PLAIN)
    for _ in range(3):
        both.encode(lane, "a#" + "t" * 70)
    both.clear(lane.root)
    both.encode(lane, "a#" + "t" * 70)
    both.encode(other, "a#" + "t" * 70)
    both.compare()
    assert both.compiled.usage(lane.root)[1] == 1
    assert both.compiled.usage(other.root)[1] == 0


@pytest.mark.parametrize("text", ["", "a#", "b" * 30_000 + "#"])
def test_a_new_sketch_is_within_the_budget(text: str) -> None:
    """See something for the first time in a cache that is full, or almost."""
    budget = SKETCH_MIN_BUDGET
    for left in range(1200, 4800, 100):
        both = Lockstep(UNBOUNDED, budget)
        lane = both.open_root(PLAIN)
        full = "".join(f"{c * ((budget - left) // 2)}#" for c in "xy")
        for _ in range(2):
            both.encode(lane, full)
            both.compare()
        both.encode(lane, (text or full) + "t" * 70)
        both.compare()
        both.encode(lane, full.replace("#", "%"))
        both.compare()


def test_many_plans_of_one_text_may_be_under_way_at_once() -> None:
    """B52: what is inserted a thousand times weighs what it weighs once."""
    both = Lockstep(UNBOUNDED, UNBOUNDED)
    lane = both.open_root(PLAIN)
    both.encode(lane, "a#")
    both.encode(lane, "z#")
    plans = [both.begin(lane, "a#b#c%d") for _ in range(1000)]
    held = set()
    for plan in plans:
        assert plan is not None
        both.finish(plan)
        held.add(both.compiled.usage())
    both.compare()
    assert len(held) == 1
    assert both.compiled.usage()[0] == 4


def test_a_plan_from_before_a_clear_links_nothing() -> None:
    both = Lockstep(UNBOUNDED, UNBOUNDED)
    lane, other = both.open_root(PLAIN), both.open_root(PLAIN)
    for root, entries in ((other.root, 2), (lane.root, 0), (None, 0)):
        both.clear()
        plan = both.begin(lane, "a#b#c")
        assert plan is not None
        both.clear(root)
        both.finish(plan)
        both.compare()
        assert both.compiled.usage(lane.root)[0] == entries


def test_a_plan_links_nothing_where_its_path_was_evicted() -> None:
    both = Lockstep(UNBOUNDED, 2000)
    lane = both.open_root(PLAIN)
    both.encode(lane, "a#")
    plan = both.begin(lane, "a#b#")
    assert plan is not None
    for i in range(20):
        both.encode(lane, f"{i}#")
    both.finish(plan)
    both.compare()
    assert not any(path[:1] == ("a#",) for _, path in both.compiled.leaves())


def test_misuse_is_refused_alike() -> None:
    both = Lockstep(UNBOUNDED, UNBOUNDED)
    lane = both.open_root(PLAIN)
    both.encode(lane, "a#")
    pending = both.begin(lane, "a#b#c")
    whole = both.begin(lane, "a")
    assert pending is not None
    assert whole is not None
    for plan in (pending.compiled, pending.model):
        with pytest.raises(RuntimeError, match="fed"):
            plan.finish()
        with pytest.raises(IndexError):
            plan.run_text(1)
        with pytest.raises(IndexError):
            plan.feed(1, [])
        with pytest.raises(ValueError, match=r"segment|argument"):
            plan.feed_segments(0, [[10, 5, 10]])
    for plan in (whole.compiled, whole.model):
        with pytest.raises(RuntimeError, match="boundary"):
            plan.finish()
    both.compare()


@pytest.mark.parametrize("bad", [[10, 5, 6], [10, 10, 10], [5, 10], []])
def test_a_rejected_run_takes_back_what_was_fed(bad: list[int]) -> None:
    both = Lockstep(UNBOUNDED, UNBOUNDED)
    lane = both.open_root(PLAIN)
    both.encode(lane, "a#")
    pending = both.begin(lane, "a#b#c")
    assert pending is not None
    plans = pending.compiled, pending.model
    assert [plan.feed(0, [10, 5, 10, 6]) for plan in plans] == [0, 0]
    status, modelled = [plan.feed(0, bad) for plan in plans]
    assert status == modelled != 0
    for plan in plans:
        with pytest.raises(RuntimeError, match="fed"):
            plan.finish()
    both.finish(pending)
    both.compare()


def test_a_known_piece_may_have_no_ids() -> None:
    """Nor has its plan any memory for ids yet; the sanitizers mind a copy into that."""
    both = Lockstep(UNBOUNDED, UNBOUNDED)
    lane = both.open_root(PLAIN, False, False, True)
    both.encode(lane, "a# ")
    both.encode(lane, "b# ")
    both.compare()
