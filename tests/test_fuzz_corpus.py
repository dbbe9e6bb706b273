"""Run again what a fuzzer found, without one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.draws import Draws
from tests.fuzz.harnesses import encode, scan, trie
from tests.fuzz.inputs import kept_inputs
from tests.fuzz.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Callable

HARNESSES = {"scan": scan.run, "trie": trie.run, "encode": encode.run}


@pytest.fixture(autouse=True)
def quick_panics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "0")


def run_kept(name: str) -> int:
    """Run all kept inputs of a harness; return how many there are."""
    inputs = kept_inputs(name)
    for data in inputs:
        HARNESSES[name](data)
    return len(inputs)


@pytest.mark.parametrize("name", HARNESSES)
def test_kept_inputs_find_nothing(name: str) -> None:
    assert run_kept(name) > 10


def test_kept_inputs_show_a_rule_that_is_off() -> None:
    """A harness that fails at nothing proves nothing."""
    anchorless = next(mutant for mutant in MUTANTS if "anchor" in mutant.name)
    with anchorless(), pytest.raises(AssertionError, match=r"wanted|batch:"):
        run_kept("encode")


@pytest.mark.parametrize("run", HARNESSES.values(), ids=HARNESSES)
def test_any_bytes_are_an_input(run: Callable[[bytes], None]) -> None:
    for size in (0, 1, 30, 200):
        run(Random(size).randbytes(size))


def test_bytes_decide_what_is_drawn() -> None:
    letters = Draws(b"\x05\x01\x02")
    assert [letters.choice("abcdef") for _ in range(3)] == ["f", "b", "c"]
    assert not letters
    assert Draws(b"\x05\x01\x02").randrange(1 << 16) == 0x105
    assert Draws(b"\x00\x80").random() == 0.5


def test_behind_the_bytes_all_draws_are_alike() -> None:
    first, second = Draws(b"a"), Draws(b"a")
    drawn = [first.random() for _ in range(9)]
    assert drawn == [second.random() for _ in range(9)]
    assert len(set(drawn)) == 9
    assert not first
