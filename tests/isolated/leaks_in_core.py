"""What is done with the compiled modules themselves, again and again."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from typing import Any

import numpy as np

from tests.isolated.growth import Operation, leaves_nothing
from tests.isolated.leaks_in_errors import Odd
from tests.isolated.traffic import SMALL
from tokcache import TokenIds
from tokcache._batch import Batch
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

NO_IDS: list[Any] = [5, [1, "x"], [-1], [Odd()], [2**40], memoryview(b"ab"), None]
NO_INDEXES: list[Any] = [99, "x", 2**80, slice("a", None), Odd()]
NO_TOKENS: list[Any] = [
    [("", 1, 1, True)],
    [("#", 1, 1, True)] * 2,
    [("#", 1, 3, True)],
    [("#", 2**40, 1, True)],
    [(1, 2)],
    5,
]
NO_BUDGETS: list[Any] = [(-1, 5), (5, "x"), (2**80, 1), (5,)]
ERRORS = (TypeError, ValueError, OverflowError, IndexError, ZeroDivisionError)


def ids_of(text: str) -> list[int]:
    return [9 if letter == "#" else ord(letter) for letter in text]


def small_walker() -> Walker:
    scanner = Scanner([("#", 9, 1, True), ("<end>", 8, 2, False)])
    scanner.trust(0)
    return Walker(Trie(SMALL, 10**6), None, scanner, [1], [2])


def planned(walker: Walker, text: str) -> Plan:
    plan = walker.lookup(text, True)
    assert isinstance(plan, Plan)
    return plan


@leaves_nothing()
def results() -> Operation:
    def operation() -> None:
        ids = TokenIds(range(300_000, 300_040))
        view = memoryview(ids)
        array = np.asarray(ids)
        assert array[1] == view[1] == ids[1] == ids[-39] == 300_001
        for other in (ids[3:9], [1], (1,), TokenIds(view), TokenIds(array), [Odd()]):
            with suppress(ZeroDivisionError):
                assert (ids == other) is not (ids != other)
        assert hash(ids) == hash(tuple(ids))
        assert repr(ids).startswith("TokenIds")
        assert next(reversed(ids)) == ids[-1]
        assert len(ids.tobytes()) == 160
        assert pickle.loads(pickle.dumps(ids)) == ids  # noqa: S301 - our own
        assert copy.deepcopy(ids) is ids
        assert ids.index(300_001) == ids.count(300_001)
        for bad in NO_IDS:
            with suppress(*ERRORS):
                TokenIds(bad)
        for index in NO_INDEXES:
            with suppress(*ERRORS):
                ids[index]

    return operation


@leaves_nothing()
def tries() -> Operation:
    def operation() -> None:
        walker = small_walker()
        for text in ("a#b#", "a#c#tail", "a#b#", "a#b#c"):
            plan = walker.lookup(text, True)
            if isinstance(plan, Plan):
                for i in range(plan.n_runs):
                    plan.feed(i, ids_of(plan.run_text(i)))
                plan.finish()
        assert walker.longest_prefix("a#b#cd")
        trie = walker.trie
        trie.check()
        assert all((trie.leaves(), trie.residents(), trie.policy(), trie.usage()))
        for call in (trie.usage, trie.close_root, trie.clear):
            with suppress(ValueError):
                call(99)
        number = trie.open_root()
        Walker(trie, number, walker.scanner)
        trie.close_root(number)

    return operation


@leaves_nothing()
def plans() -> Operation:
    def operation() -> None:
        walker = small_walker()
        assert planned(walker, "a#b").boundary_tokens()  # and is dropped
        plan = planned(walker, "a#b#")
        assert plan.segment_texts(0)
        for bad in NO_IDS:
            with suppress(*ERRORS):
                plan.feed(0, bad)
            with suppress(*ERRORS):
                plan.feed_segments(0, bad)
        with suppress(RuntimeError):
            plan.finish()
        with suppress(IndexError):
            plan.run_text(7)
        assert plan.feed_segments(0, map(ids_of, plan.segment_texts(0))) == 0
        plan.finish()
        planned(walker, "whole").finish_whole(TokenIds([1, 5, 2]))

    return operation


@leaves_nothing()
def batches() -> Operation:
    def operation() -> None:
        walker = small_walker()
        batch = Batch(walker, 1)
        texts = ["a#b#", "a#c#", "a", "a#b#", "".join(f"{i}#" for i in range(300))]
        assert batch.add(texts, 0, 10_000) == len(texts)
        batch.feed(map(ids_of, batch.run_texts()))
        assert not batch.texts_apart()
        batch.wholes.update((text, TokenIds(ids_of(text))) for text in batch.wholes)
        found: list[TokenIds] = []
        assert batch.complete(texts, found, len(texts), False) is None
        assert found == [ids_of(text) for text in texts]
        other = small_walker()
        batch = Batch(other, 1)
        batch.add(["a#b#"], 0, 10_000)
        batch.run_texts()
        for bad in NO_IDS:
            with suppress(*ERRORS, RuntimeError):
                batch.feed([bad])
        with suppress(*ERRORS):
            batch.add([None], 0, 10_000)  # type: ignore[list-item]
        assert not batch.serve(planned(other, "x#"), 0)

    return operation


@leaves_nothing()
def refused_arguments() -> Operation:
    walker = small_walker()
    anything: Any = object()

    def operation() -> None:
        for tokens in NO_TOKENS:
            with suppress(*ERRORS):
                Scanner(tokens)
        for budgets in NO_BUDGETS:
            with suppress(*ERRORS):
                Trie(*budgets)
        for make in (
            lambda: Walker(walker.trie, 99, walker.scanner),
            lambda: Walker(walker.trie, None, walker.scanner, [anything]),
            lambda: Walker(anything, None, walker.scanner),
            lambda: Batch(anything, 1),
            lambda: walker.lookup(anything, True),
            lambda: TokenIds(anything),
        ):
            with suppress(*ERRORS):
                make()

    return operation
