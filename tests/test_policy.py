"""What stays and what goes: the wheel, the gate, the sketch, and both budgets.

A toy drives the compiled core directly. Every segment of it has ten ids, so a budget of
payload bytes is a number of segments; what random traffic does is compared with the
plain-Python model step by step.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.lockstep import SKETCH_MIN_BUDGET, UNBOUNDED, Lockstep, Pending, eligible
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import NODE_BYTES, Trie
from tokcache._walker import Walker
from tokcache.reference_policy import COUNT_MAX, MIN_LINES, Sketch

SEGMENT_BYTES = 40
STEPS = int(os.environ.get("TOKCACHE_STEPS", "2500"))  # of each random run

MARK = 9  # the id of "#", the only added token


class Toy:
    """A cache whose segments all have ten ids, with room for so many of them."""

    def __init__(self, segments: int, resident: int = UNBOUNDED) -> None:
        self.segments = segments
        self.trie = Trie(segments * SEGMENT_BYTES, resident, hash_seed=1)
        scanner = Scanner([("#", MARK, 1, True)])
        scanner.trust(0)
        self.walker = Walker(self.trie, None, scanner)

    def ask(self, text: str) -> bool:
        """Encode a text; tell whether all of it was cached."""
        plan = self.walker.lookup(text, False)
        if not isinstance(plan, Plan):
            return True
        for i in range(plan.n_runs):
            assert plan.feed_segments(i, map(self._ids, plan.segment_texts(i))) == 0
        plan.finish()
        return False

    @staticmethod
    def _ids(text: str) -> list[int]:
        anchor = [MARK] if text.startswith("#") else []
        end = [MARK] if text.endswith("#") else [1]
        return [*anchor, *[1] * 9, *end]

    @property
    def entries(self) -> int:
        return self.trie.usage()[0]

    @property
    def refused(self) -> int:
        return self.trie.usage()[7]

    @property
    def is_closed(self) -> bool:
        return self.trie.usage()[8]

    def state(self) -> tuple[object, ...]:
        """Return every list and all residents; not the hand, nor counts, which age."""
        hand = self.trie.policy()[0]
        return self.trie.leaves(), sorted(
            (root, path, rank + hand) for root, path, _, rank in self.trie.residents()
        )

    def close_gate(self) -> None:
        """Ask for more than fits until misses cost more than hits win."""
        for i in range(1000):
            self.ask(f"round {i % (2 * self.segments)}#")
            if self.is_closed:
                return
        raise AssertionError("the gate did not close")


def path(name: str, n: int) -> str:
    """Return a text of ``n`` segments that no other name has."""
    return "".join(f"{name} {i}#" for i in range(n))


def hit_rate(toy: Toy, texts: list[str], rounds: int) -> float:
    """Ask for all texts round robin; return the share of hits in the last round."""
    for _ in range(rounds - 1):
        for text in texts:
            toy.ask(text)
    return sum(map(toy.ask, texts)) / len(texts)


# -- both sides -----------------------------------------------------------------------


def random_budgets(rng: random.Random) -> tuple[int, int]:
    """Draw budgets around which something changes."""
    sketched = rng.randint(SKETCH_MIN_BUDGET - 20, 60_000)
    return rng.choice(
        [
            (UNBOUNDED, rng.randint(2000, 6000)),
            (UNBOUNDED, sketched),
            (rng.randint(100, 2000), sketched),
            (rng.randint(500, 4000), UNBOUNDED),
        ]
    )


def random_text(rng: random.Random, earlier: list[str]) -> str:
    """Draw a new prompt, an earlier one, or one that goes on from there."""
    kind = rng.random()
    if kind < 0.4:
        numbers = [int(rng.paretovariate(0.7)) % 60 for _ in range(rng.randint(1, 8))]
        return "".join(
            f"{number}{'z' * rng.choice([0, 0, 3, 80])}{rng.choice('#%')}"
            for number in numbers
        )
    text = rng.choice(earlier[-60:])
    if kind < 0.75:
        return text
    if kind < 0.88:
        return f"{text}{rng.randint(0, 9)}#"
    if kind < 0.92:
        return text[:5] + "q#" * rng.randint(1, 30)
    return text + rng.choice(["t", "tail" * 30, f"{len(earlier)}" * 20])


@pytest.mark.parametrize("seed", range(8))
def test_both_sides_agree_on_random_traffic(seed: int) -> None:
    """B59: order of victims, counts, ranks, sketch and gate, with plans left for later.

    ``TOKCACHE_STEPS=20000`` makes each run longer.
    """
    rng = random.Random(seed)
    both = Lockstep(
        *random_budgets(rng), hash_seed=seed, hash_bits=rng.choice([64, 64, 3, 0])
    )
    lanes = [both.open_root(eligible([("#", 1), ("%", 1)])) for _ in range(2)]
    earlier = ["a#"]
    pending: list[Pending] = []
    for step in range(STEPS):
        lane = rng.choice(lanes)
        text = random_text(rng, earlier)
        if len(text) < 600:
            earlier.append(text)
        choice = rng.random()
        if choice < 0.05:
            plan = both.begin(lane, text)
            pending += [plan] if plan else []
        elif choice < 0.1 and pending:
            both.finish(pending.pop(rng.randrange(len(pending))))
        elif choice > 0.9995:
            both.clear(rng.choice([None, 0, 1]))
        else:
            both.encode(lane, text)
        if step % 10 == 0:
            both.compare()
    both.compare()


@pytest.mark.parametrize("resident", [20_000, UNBOUNDED])
def test_both_sides_agree_while_the_gate_is_closed(resident: int) -> None:
    both = Lockstep(40 * 12, resident)
    lane = both.open_root(eligible([("#", 1)]))
    closed = opened = 0
    for i in range(3000):
        if i < 1000:
            text = f"{i % 90}#"
        elif i < 2000:
            text = f"{i % 3}#{i % 5}#new {i if i % 2 else ''}#{i % 7}#"
        else:
            text = f"{i // 6}#"
        both.encode(lane, text)
        closed += both.compiled.usage()[8]
        opened += i > 2000 and not both.compiled.usage()[8]
        if i % 7 == 0:
            both.compare()
    assert closed
    assert opened


# -- the wheel ------------------------------------------------------------------------


def test_two_long_paths_in_turn_do_not_spoil_what_follows() -> None:
    """The hand must not stay behind: 60 prompts that fit are all kept in the end."""
    toy = Toy(100)
    for _ in range(300):
        toy.ask(path("a", 100))
        toy.ask(path("b", 100))
    assert hit_rate(toy, [f"prompt {i}#" for i in range(60)], 50) > 0.95
    toy.trie.check()


def test_what_is_asked_for_again_outlives_a_scan() -> None:
    toy = Toy(50)
    hot = [f"hot {i}#" for i in range(10)]
    for _ in range(4):
        for text in hot:
            toy.ask(text)
    for i in range(120):  # more than twice what fits
        toy.ask(f"once {i}#")
    assert all(map(toy.ask, hot))


def test_a_second_conversation_under_a_cached_system_prompt_is_cached() -> None:
    toy = Toy(40)
    toy.ask("system#" + path("first", 39))
    assert toy.entries == 40
    for _ in range(2):
        toy.ask("system#" + path("second", 5))
    assert toy.ask("system#" + path("second", 5))


def test_the_own_path_is_never_a_victim() -> None:
    """A turn with no room but its own prefix's is linked as far as there is room."""
    toy = Toy(10)
    for i in range(2):
        toy.ask(f"hot {i}#")
    for n in range(1, 15):
        toy.ask(path("talk", n))
        toy.trie.check()
        kept = [texts for _, texts, _, _ in toy.trie.residents() if "talk" in texts[0]]
        assert len(kept) <= 10
        assert max(map(len, kept)) == len(kept)


def test_an_insert_stops_at_its_own_prefix() -> None:
    """What is left besides the prefix ranks higher, and stays."""
    toy = Toy(10)
    hot = [f"hot {i}#" for i in range(5)]
    hit_rate(toy, hot, 4)
    toy.ask(path("talk", 5))
    assert toy.entries == 10
    toy.ask(path("talk", 6))
    toy.trie.check()
    assert toy.refused == 1
    assert toy.trie.usage()[5] == 0
    assert toy.ask(path("talk", 5))
    assert all(map(toy.ask, hot))


@pytest.mark.parametrize("closed", [False, True])
def test_an_oversized_path_evicts_nothing(closed: bool) -> None:
    toy = Toy(30)
    hit_rate(toy, [f"{i}#" for i in range(30)], 3)
    if closed:
        toy.close_gate()
    before = toy.state()
    toy.ask(path("huge", 31))
    toy.ask("new#" + path("huge", 30))
    assert toy.state() == before
    assert toy.trie.usage()[6] == 2


def test_a_prompt_of_100_mb_through_a_budget_of_1_mb_evicts_nothing() -> None:
    toy = Toy(UNBOUNDED // SEGMENT_BYTES, 2**20)
    small = [f"small {i}#" for i in range(10)]
    for text in small:
        toy.ask(text)
    toy.ask("x" * 10**8 + "#")
    assert all(map(toy.ask, small))
    assert toy.trie.usage()[5:7] == (0, 1)


def test_shared_payloads_are_freed_with_their_last_path_only() -> None:
    """Evicting one of two paths with the same segments frees no payload."""
    toy = Toy(10)
    shared = path("same", 8)
    toy.ask("a#" + shared)
    toy.ask("b#" + shared)  # the same but for the first, and its anchor is the same
    assert toy.trie.usage()[2] == 10 * SEGMENT_BYTES
    toy.ask("c#" + shared)
    toy.trie.check()
    assert toy.trie.usage()[2] <= 10 * SEGMENT_BYTES


# -- the gate -------------------------------------------------------------------------


def test_the_gate_closes_and_opens_again() -> None:
    toy = Toy(50)
    assert not toy.is_closed
    many = [f"{i}#" for i in range(120)]
    hit_rate(toy, many, 3)
    assert toy.is_closed
    # What fits is hit, and after a while more is won than lost.
    few = [f"few {i}#" for i in range(45)]
    hit_rate(toy, few, 4)
    for i in range(2000):
        if not toy.is_closed:
            break
        toy.ask(f"fresh {i // 4}#")
    assert not toy.is_closed


def test_a_first_sighting_is_refused_and_a_second_is_not() -> None:
    toy = Toy(50)
    toy.close_gate()
    refused = toy.refused
    assert not toy.ask("newcomer#")
    assert toy.refused == refused + 1
    assert not toy.ask("newcomer#")
    assert toy.ask("newcomer#")
    assert toy.refused == refused + 1


def test_a_refused_plan_leaves_every_list_as_it_was() -> None:
    toy = Toy(50)
    for i in range(5):
        toy.ask(path(f"chain {i}", 8))
    toy.close_gate()
    for i in range(30):
        before = toy.state()
        refused = toy.refused
        toy.ask(f"newcomer {i}#")
        assert toy.refused == refused + 1
        assert toy.state() == before
        toy.trie.check()


def test_a_path_is_linked_as_far_as_it_was_admitted() -> None:
    """Its first segments are known from other prompts, the rest is new."""
    toy = Toy(50)
    toy.close_gate()
    for text in ("a#", "a#", "a#b#"):
        toy.ask(text)
    assert toy.ask("a#")
    toy.ask("a#b#c#")
    known = {texts for _, texts, _, _ in toy.trie.residents()}
    assert ("a#", "b#") in known
    assert ("a#", "b#", "c#") not in known
    toy.trie.check()


def test_a_closed_gate_does_not_freeze() -> None:
    """An old hot set that nobody asks for any more makes way for a new one."""
    toy = Toy(100)
    hit_rate(toy, [f"old {i}#" for i in range(100)], 16)
    for i in range(2000):
        toy.ask(f"old {i % 250}#")
    assert toy.is_closed
    assert hit_rate(toy, [f"new {i}#" for i in range(90)], 20) > 0.95
    toy.trie.check()


def test_a_large_segment_that_is_asked_for_often_gets_in() -> None:
    toy = Toy(UNBOUNDED // SEGMENT_BYTES, 2**20)
    large = "x" * 2**16 + "#"
    for i in range(20_000):
        toy.ask(f"{'small' * 10} {i % 9000}#")
        if i % 1000 == 0:
            toy.ask(large)
    assert toy.ask(large)


# -- the sketch -----------------------------------------------------------------------


def test_an_empty_cache_of_1_gib_takes_next_to_nothing() -> None:
    """B56: the sketch goes by entries, not by bytes."""
    toy = Toy(2**30 // SEGMENT_BYTES, 2**32)
    assert toy.trie.usage()[3] == 0
    toy.ask("a#")
    assert toy.trie.usage()[3] < 4096


def test_a_node_stays_small() -> None:
    assert NODE_BYTES <= 96


def test_the_sketch_grows_and_shrinks_with_the_entries() -> None:
    toy = Toy(10**6)
    sizes = []
    for i in range(3000):
        toy.ask(f"{i}#")
        sizes.append(len(toy.trie.policy()[6]))
    assert sizes == sorted(sizes)
    assert 16 * 3000 <= sizes[-1] <= 32 * 3000
    assert toy.trie.usage()[3] < 3000 * (2 * NODE_BYTES + 100)
    toy.trie.clear(0)
    toy.ask("a#")
    assert len(toy.trie.policy()[6]) == 64 * MIN_LINES
    toy.trie.check()


def test_the_sketch_of_a_small_budget_is_small_or_absent() -> None:
    for resident in (2000, SKETCH_MIN_BUDGET - 1, SKETCH_MIN_BUDGET, 2**16):
        toy = Toy(10**6, resident)
        for i in range(1000):
            toy.ask(f"{i}#")
        size = len(toy.trie.policy()[6])
        assert (size == 0) == (resident < SKETCH_MIN_BUDGET)
        assert size <= resident // 16
        toy.trie.check()


def test_what_was_evicted_is_remembered() -> None:
    """Its count goes from the node to the sketch and back."""
    toy = Toy(20)
    for _ in range(6):
        toy.ask("asked for often#")
    for i in range(200):
        toy.ask(f"{i}#")
    assert not toy.ask("asked for often#")
    counts = {texts[0]: count for _, texts, count, _ in toy.trie.residents()}
    assert counts["asked for often#"] == 7
    assert counts["199#"] == 1


def test_counts_are_halved_at_each_epoch() -> None:
    toy = Toy(40)
    for _ in range(30):
        toy.ask("once hot#")
    assert {count for *_, count, _ in toy.trie.residents()} == {COUNT_MAX}
    epoch = toy.trie.policy()[1]
    for expected in (7, 3, 1, 0):
        while toy.trie.policy()[1] == epoch:
            toy.ask("other#")
        epoch = toy.trie.policy()[1]
        counts = {texts: count for _, texts, count, _ in toy.trie.residents()}
        assert counts["once hot#",] == expected


def test_an_old_hot_set_is_replaced_within_ten_times_the_entries() -> None:
    """B56: the sketch ages."""
    toy = Toy(100)
    hit_rate(toy, [f"old {i}#" for i in range(100)], 50)
    assert hit_rate(toy, [f"new {i}#" for i in range(100)], 10) > 0.95


def test_keys_crafted_to_collide_do_not_keep_a_new_hot_set_out() -> None:
    """B57: who knows the seed can fill one line of the sketch; here everybody does."""
    toy = Toy(50)
    toy.close_gate()
    sketch = Sketch(UNBOUNDED)
    sketch.lines = [[0] * 128 for _ in range(len(toy.trie.policy()[6]) // 64)]

    def line_of(text: str) -> int:
        key = toy.trie.key(0, 0, -1, text, False)
        return sketch.lines.index(sketch._places(key)[0])

    for number, line in enumerate(sketch.lines):
        line[0] = number  # so that no two are equal
    texts = (f"{i}x#" for i in range(10**6))
    crafted = [next(t for t in texts if line_of(t) == 3) for _ in range(150)]
    hit_rate(toy, crafted, 20)
    hot = [next(t for t in texts if line_of(t) == 3) for _ in range(45)]
    assert hit_rate(toy, hot, 10) > 0.95


# -- the budgets ----------------------------------------------------------------------


def test_50_000_distinct_prompts_stay_within_both_budgets() -> None:
    memory, resident = 2**18, 2**20
    toy = Toy(memory // SEGMENT_BYTES, resident)
    for i in range(50_000):
        toy.ask(f"<system>{i % 7}#{'word ' * (i % 40)}{i}#tail {i}")
        used = toy.trie.usage()
        assert used[2] <= memory
        assert used[3] <= resident
    assert used[3] > 0.9 * resident
    toy.trie.check()


def test_large_entries_after_small_ones_are_within_the_budget_at_once() -> None:
    resident = 2**18
    toy = Toy(10**9, resident)
    for size in (10, 100, 1000, 10_000, 100_000):
        for i in range(200_000 // size):
            toy.ask(f"{'x' * size}{i}#")
            assert toy.trie.usage()[3] <= resident
    toy.trie.check()


def test_budgets_beyond_32_bits_bound_what_they_say() -> None:
    """Sums and shares are 64 bits wide: nothing is full, nothing is evicted."""
    for budget in (2**31, 2**32 - 1, 2**32 + 1, 2**62):
        trie = Trie(budget, budget, hash_seed=1)
        walker = Walker(trie, None, Toy(1).walker.scanner)
        for i in range(300):
            plan = walker.lookup(f"{i % 150}#", False)
            if isinstance(plan, Plan):
                assert plan.feed(0, [1, MARK]) == 0
                plan.finish()
        assert trie.usage()[0] == 150
        assert trie.usage()[5:] == (0, 0, 0, False)
        trie.check()
