"""Check how the runs of a batch are joined into fewer texts, and taken apart again."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.checks import InnerCalls
from tests.toys import special, toy
from tokcache import CachedTokenizer, TokenIds
from tokcache import batch as batch_module
from tokcache._batch import Batch
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MARK = 9


class Characters:
    """A tokenizer of another library: an id for each character."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def encode(self, text: str) -> list[int]:
        self.lengths.append(len(text))
        return list(map(ord, text))

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(map(chr, ids))


def ids_of(text: str) -> list[int]:
    return [MARK if c == "#" else ord(c) for c in text]


def gathered(texts: list[str], n_texts: int) -> Batch:
    scanner = Scanner([("#", MARK, 1, True)])
    scanner.trust(0)
    batch = Batch(Walker(Trie(2**20, 2**10), None, scanner), n_texts)
    assert batch.add(texts, 0, 2**30) == len(texts)
    return batch


def completed(batch: Batch, texts: list[str]) -> list[TokenIds]:
    found: list[TokenIds] = []
    batch.complete(texts, found, len(texts), False)
    return found


def test_short_runs_are_joined_behind_their_anchors() -> None:
    texts = ["a#b#", "a#cc#", "a#d", "e#"]
    # None has an anchor that begins a text; none goes on behind a tail.
    assert gathered(texts, 1).run_texts() == ["a#b##cc##d", "e#"]
    assert gathered(texts, 100).run_texts() == ["a#b#", "#cc#", "e#", "#d"]
    batch = gathered(texts, 1)
    batch.feed(map(ids_of, batch.run_texts()))
    assert completed(batch, texts) == [ids_of(text) for text in texts]


def test_long_texts_come_first() -> None:
    texts = ["a#", "bbb#", "c#", "dd#"]
    assert gathered(texts, 100).run_texts() == ["bbb#", "dd#", "a#", "c#"]


def test_joined_texts_are_not_longer_than_of_use() -> None:
    texts = ["", *("#".join(f"{i:03}" for i in range(n)) + "#" for n in range(600))]
    batch = gathered(texts, 1)
    runs = batch.run_texts()
    assert len(runs) < 5
    assert max(map(len, runs)) < 4096
    batch.feed(map(ids_of, runs))
    assert completed(batch, texts[1:]) == [ids_of(text) for text in texts[1:]]


@given(
    texts=st.lists(st.text("ab#", max_size=8), max_size=8),
    n_texts=st.integers(1, 8),
    number=st.integers(0, 8),
    at=st.integers(0, 40),
    by=st.sampled_from([[], [MARK], [MARK, MARK], [ord("a")]]),
)
def test_with_a_boundary_more_or_less_no_run_of_the_text_is_served(
    texts: list[str], n_texts: int, number: int, at: int, by: list[int]
) -> None:
    batch = gathered(texts, n_texts)
    all_ids = [ids_of(run) for run in batch.run_texts()]
    for ids in all_ids[number : number + 1]:
        n_marks = ids.count(MARK)
        ids[at : at + 1] = by
        assume(ids.count(MARK) != n_marks)
    batch.feed(all_ids)
    found: list[TokenIds] = []
    while len(found) < len(texts):
        if batch.complete(texts, found, len(texts), False) is not None:
            found.append(TokenIds(ids_of(texts[len(found)])))  # encoded by itself
    assert found == [ids_of(text) for text in texts]


def test_runs_that_were_joined_in_vain_are_asked_for_again_apart() -> None:
    texts = ["a#b#", "a#cc#", "x#", "a#d", "y#zz#"]
    batch = gathered(texts, 1)
    runs = batch.run_texts()
    assert runs == ["a#b##cc#", "y#zz#", "x##d"]
    batch.feed([ids_of(runs[0])[:-1], ids_of(runs[1]), ids_of(runs[2])[:-2]])
    apart = batch.texts_apart()
    assert apart == ["a#b#", "#cc#", "x#", "#d"]
    batch.feed(map(ids_of, apart))
    assert not batch.texts_apart()
    assert completed(batch, texts) == [ids_of(text) for text in texts]


def test_a_run_by_itself_is_not_asked_for_again() -> None:
    batch = gathered(["a#", "b"], 1)
    assert batch.run_texts() == ["a#"]
    batch.feed([[1, 2, 3]])
    assert not batch.texts_apart()
    assert not completed(batch, ["a#"])


def test_a_batch_takes_one_call_at_a_time() -> None:
    batch = gathered(["a#b#", "a#c#"], 1)
    runs = batch.run_texts()
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: batch.add(["x#"], 0, 10),
        "run_texts": batch.run_texts,
        "texts_apart": batch.texts_apart,
        "feed": lambda: batch.feed([]),
    }
    refused: list[str] = []

    def asking() -> Iterator[list[int]]:
        for text in runs:
            for name, call in calls.items():
                with pytest.raises(RuntimeError, match="in the middle of another"):
                    call()
                refused.append(name)
            yield ids_of(text)

    batch.feed(asking())
    assert refused == [*calls] * len(runs)
    with pytest.raises(ValueError, match="ids of every run"):
        batch.feed([])
    with pytest.raises(ValueError, match="more ids than"):
        batch.feed([[], []])
    batch.feed(map(ids_of, runs))  # an error ends a call
    assert completed(batch, ["a#b#", "a#c#"]) == [ids_of("a#b#"), ids_of("a#c#")]


def test_a_finalizer_cannot_use_the_batch_in_the_middle_of_a_call() -> None:
    """Any new object can bring about a collection of garbage, which runs finalizers."""
    texts = [f"a#{i}#" for i in range(50)]
    batch = gathered(texts, 1)
    met: list[BaseException | None] = []

    def in_between(_phase: str, _info: dict[str, int]) -> None:
        try:
            batch.add([f"b#{len(met)}#"], 0, 10)
            batch.run_texts()
        except RuntimeError as error:
            met.append(error)
        else:
            met.append(None)

    before = gc.get_threshold()
    gc.callbacks.append(in_between)
    gc.set_threshold(1)
    try:
        runs = batch.run_texts()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(in_between)
    assert all(met)
    batch.feed(map(ids_of, runs))
    assert completed(batch, texts) == [ids_of(text) for text in texts]


@pytest.mark.parametrize("n_texts", [0, -1])
def test_a_number_of_texts_that_cannot_be(n_texts: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        gathered([], n_texts)


def test_a_tokenizer_that_only_errs_on_joined_texts_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_module, "JOINED_TEXTS", 1)
    cached = CachedTokenizer(toy(special("<s>"), special("<e>")))
    backend: Any = cached._backend
    inner = backend.encode_bare_batch
    given: list[str] = []

    def encode_bare_batch(runs: list[str]) -> list[list[int]]:
        given.extend(runs)
        found = list(inner(runs))
        for run, ids in zip(runs, found, strict=True):
            if "<e><e>" in run:
                ids.pop()  # as if what follows a boundary changed it
        return found

    texts = ["<s>foo<e>", "<s>hello<e>", "<s>foo<e>x<e>", "<s>x foo<e>"]
    cached.encode("<s><e>")  # the tokens are tried now
    cached.clear_cache()
    single = InnerCalls(cached)
    backend.encode_bare_batch = encode_bare_batch
    found = cached.encode_batch(texts)
    assert [run for run in given if "<e><e>" in run]
    assert not len(single)
    assert [ids.ids for ids in found] == [cached.inner.encode(t).ids for t in texts]
    stats = cached.cache_stats()
    assert stats.cached_tokens + stats.uncached_tokens == sum(map(len, found))


def test_no_text_gets_longer_than_a_tokenizer_is_vouched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs are joined for tokenizers whose matching rules are known."""
    monkeypatch.setattr(batch_module, "JOINED_TEXTS", 1)
    inner = Characters()
    cached = CachedTokenizer(inner, special_tokens=["#"], max_chars=12)
    cached.encode("x#y")
    inner.lengths.clear()
    texts = [f"a#{letter * 5}#" for letter in "bcdefgh"]
    found = cached.encode_batch(texts)
    assert [ids.ids for ids in found] == [inner.encode(text) for text in texts]
    assert max(inner.lengths) <= 12
