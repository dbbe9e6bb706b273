"""A tokenizer that changes while an encode, or another change, is under way."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers

from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def small(*contents: str, **flags: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate("ab<>|[]")}, []))
    tokenizer.add_tokens([AddedToken(c, **flags) for c in contents])
    return tokenizer


def in_threads(*works: Callable[[], object]) -> None:
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.usefixtures("eager_threads")
def test_two_changes_at_once_are_both_read() -> None:
    for _ in range(200):
        tokenizer = small("<a>", normalized=False)
        cached = CachedTokenizer(tokenizer)
        in_threads(
            partial(cached.add_tokens, [AddedToken("<a>b", normalized=False)]),
            partial(cached.add_tokens, [AddedToken("|b|", normalized=False)]),
        )
        text = "<a>|b|<a>b"
        assert cached.encode(text).ids == tokenizer.encode(text).ids
        assert {"<a>", "<a>b", "|b|"} == {
            *cached.explain().boundary_tokens,
            *cached.explain().refused_tokens,
        }


def test_a_part_set_between_a_lookup_and_its_first_trial() -> None:
    tokenizer = small(*(f"[[{'ab'[i % 2]}{'|' * i}]]" for i in range(9)))
    cached = CachedTokenizer(tokenizer)
    text = "a[[a||||||||]]b"
    state = cached._state
    plan: Any = state.walker.lookup(text, True)
    cached.normalizer = normalizers.NFC()
    ids = cached._complete(state, plan, text, True)
    assert ids.ids == tokenizer.encode(text).ids
    assert not cached.explain().notes


@pytest.mark.parametrize(
    ("on", "off"),
    [("enable_truncation", "no_truncation"), ("enable_padding", "no_padding")],
)
def test_a_switch_on_and_off_within_one_inner_call(on: str, off: str) -> None:
    tokenizer = small("<a>", normalized=False)
    cached = CachedTokenizer(tokenizer)
    cached.encode("<a>")
    backend: Any = cached._backend
    run = backend.encode_run
    options = {"max_length": 3} if "truncation" in on else {"length": 12}

    def switched(text: str) -> list[int]:
        getattr(cached, on)(**options)
        ids: list[int] = run(text)
        getattr(cached, off)()
        return ids

    backend.encode_run = switched
    text = "<a>abababab"
    assert cached.encode(text).ids == tokenizer.encode(text).ids
    backend.encode_run = run
    assert cached.encode(text).ids == tokenizer.encode(text).ids


def test_the_list_of_special_tokens_is_the_callers_own() -> None:
    listed = ["<a>"]
    cached = CachedTokenizer(small("<a>", normalized=False), listed)
    listed.append("no such token")
    cached.invalidate()
    assert cached.explain().boundary_tokens == ("<a>",)


def test_an_observer_may_be_false() -> None:
    class Calls(list[int]):
        def __call__(self) -> None:
            self.append(1)

    calls = Calls()
    cached = CachedTokenizer(small("<a>", normalized=False), on_miss=calls)
    cached.encode("<a>b")
    assert calls == [1]


def test_a_field_of_a_subclass_empties_nothing() -> None:
    class Counting(CachedTokenizer):
        def __init__(self, inner: Tokenizer) -> None:
            super().__init__(inner)
            self.n_calls = 0

    cached = Counting(small("<a>", normalized=False))
    cached.encode("<a>b")
    cached.n_calls += 1
    assert cached.cache_stats().entries == 1


def test_a_text_with_two_faults_raises_as_the_tokenizer_does() -> None:
    tokenizer = Tokenizer(models.Unigram([("a", -1.0)], None, False))
    tokenizer.add_special_tokens(["<s>"])
    cached = CachedTokenizer(tokenizer)
    cached.encode("<s>" * 12)
    text = "b<s>" + "<s>" * 12 + "\ud800"
    with pytest.raises(Exception) as raw:  # noqa: PT011 - whatever it is
        tokenizer.encode(text)
    with pytest.raises(type(raw.value)) as ours:
        cached.encode(text)
    assert type(ours.value) is type(raw.value)
