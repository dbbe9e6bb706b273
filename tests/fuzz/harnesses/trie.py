"""Call the compiled trie and its model in lockstep, under any budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.draws import Draws
from tests.lockstep import SKETCH_MIN_BUDGET, UNBOUNDED, eligible
from tests.trie_calls import ALPHABET, LONG, TOKEN_SETS, Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lockstep import Tokens
    from tests.trie_calls import Parts

MAX_CALLS = 40
COMPARE_EVERY = 5  # calls; it takes longer than most of them
MAX_FAT = 5000  # characters of a segment; the model takes its time for more
INDEX = 1 << 8  # numbers taken modulo what there is
CHARS = ALPHABET + "\ud800\xff\uffff"


def _bool(draws: Draws) -> bool:
    return draws.randrange(2) == 1


def _budgets(draws: Draws) -> tuple[int, int]:
    """Draw budgets for ids and for all; most make room for a few paths."""
    memory = draws.choice(
        (UNBOUNDED, UNBOUNDED, draws.randint(40, 600), draws.randint(600, 5000), 0, 39)
    )
    resident = draws.choice(
        (
            *(draws.randint(1300, 5000), draws.randint(5000, 20_000), UNBOUNDED),
            *(SKETCH_MIN_BUDGET, 300_000, draws.randrange(1300)),
        )
    )
    return memory, resident


def _string(draws: Draws, alphabet: str, low: int, high: int) -> str:
    return "".join(draws.choice(alphabet) for _ in range(draws.randint(low, high)))


def _tokens(draws: Draws) -> Tokens:
    """Draw a fixed set of tokens, or any over few characters."""
    if _bool(draws):
        return draws.choice(TOKEN_SETS)
    contents = dict.fromkeys(
        _string(draws, "ab<>\xe9", 1, 4) for _ in range(draws.randint(1, 6))
    )
    return eligible([(content, draws.choice((1, 1, 2))) for content in contents])


def _parts(draws: Draws) -> Parts:
    kinds = [draws.randrange(4) for _ in range(draws.randrange(9))]
    return [
        draws.randrange(6) if kind < 3 else _string(draws, CHARS, 0, 3)
        for kind in kinds
    ]


def _end(draws: Draws) -> str:
    kind = draws.randrange(4)
    if kind < 2:
        return ""
    return draws.choice(LONG) if kind == 3 else _string(draws, CHARS, 0, 3)


class _Caller(Calls):
    """Calls with arguments that are drawn from bytes."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.make_tries(_budgets(draws), hash_bits=draws.choice((64, 3, 0)))
        for _ in range(draws.randint(1, 3)):
            leaks, fuses, strips = (draws.randrange(4) == 0 for _ in range(3))
            flags = leaks, fuses and not leaks, strips
            refuses = {draws.randrange(6)} if draws.randrange(4) == 0 else set()
            lane = self.open_root(_tokens(draws), flags, refuses)
            if _bool(draws):
                self.both.add_wrapper(
                    lane,
                    (1, 2)[: draws.randrange(3)],
                    (3,),
                    extend_on_hit=_bool(draws),
                    cache_tails=_bool(draws),
                )

        self.actions = [
            action for times, action in self._weighted() for _ in range(times)
        ]

    def _weighted(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """List all calls, and how often they are drawn."""
        draws = self.draws

        def index() -> int:
            return draws.randrange(INDEX)

        def tail() -> tuple[Parts, str]:
            return _parts(draws), _end(draws)

        def flag() -> bool:
            return _bool(draws)

        def branches() -> list[tuple[int, Parts]]:
            return [(index(), _parts(draws)) for _ in range(draws.randrange(6))]

        def size() -> int:
            return draws.randint(20, 150)

        yield 3, lambda: self.encode_new(index(), *tail(), flag())
        yield 2, lambda: self.encode_again(index(), index(), flag())
        yield 1, lambda: self.encode_elsewhere(index(), index(), index())
        yield 2, lambda: self.encode_next_turn(index(), index(), *tail())
        yield 2, lambda: self.encode_branch(index(), index(), index(), *tail())
        yield 1, lambda: self.encode_many(index(), index(), size(), flag())
        yield 2, lambda: self.encode_together(index(), index(), branches(), flag())
        yield 1, lambda: self.count(index(), index(), flag())
        yield 2, lambda: self.look_up(index(), index(), *tail(), flag())
        yield 2, lambda: self._finish(index(), flag(), flag())
        yield 1, lambda: self._call_seldom(index(), draws.randrange(4))
        if self.both.budgets[1] >= SKETCH_MIN_BUDGET:
            yield (
                1,
                lambda: self.encode_fat(index(), draws.randrange(MAX_FAT), _end(draws)),
            )

    def _finish(self, which: int, at_once: bool, evict: bool) -> None:
        """Finish a plan, if there is one."""
        if self.pending and at_once:
            self.finish_one(which)
        elif self.pending:
            self.finish_after_others(which, evict)

    def _call_seldom(self, at: int, kind: int) -> None:
        if kind < 2:
            self.clear(at, everything=kind == 0)
        elif kind == 2:
            self.clear_walker(at)
        else:
            self.count_oddities(at)


def run(data: bytes) -> None:
    """Make calls as long as there are bytes; compare all state now and then."""
    draws = Draws(data)
    caller = _Caller(draws)
    for number in range(MAX_CALLS):
        if not draws:
            break
        draws.choice(caller.actions)()
        if number % COMPARE_EVERY == 0:
            caller.both.compare()
    caller.both.compare()
