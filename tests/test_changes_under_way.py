"""A tokenizer that changes while an encode, or another change, is under way."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers

from tokcache import CachedTokenizer, SharedTokenizerCache
from tokcache.state import MAX_SELF_CHECK_FAILURES

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


def upper_or_lower(text: str) -> tuple[list[int], list[int]]:
    tokenizer = mixed_case()
    upper = tokenizer.encode(text).ids
    tokenizer.normalizer = normalizers.Lowercase()
    return upper, tokenizer.encode(text).ids


def mixed_case() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate("abABCc<>")}, []))
    tokenizer.add_tokens([AddedToken("<>", normalized=False)])
    return tokenizer


def test_ids_of_before_a_change_and_of_after_it_are_not_joined() -> None:
    cached = CachedTokenizer(mixed_case())
    cached.encode("AB<>")
    text = "AB<>BA<>"
    state = cached._state
    cached.normalizer = normalizers.Lowercase()
    plan: Any = state.walker.lookup(text, True)
    assert plan.hit
    ids = cached._complete(state, plan, text, True)
    assert ids.ids == upper_or_lower(text)[1]


@pytest.mark.usefixtures("eager_threads")
def test_parts_set_all_the_time_never_mix() -> None:
    cached = CachedTokenizer(mixed_case())
    texts = ["AB<>" + "ABC"[i % 3] * (i % 50) + "<>" for i in range(600)]
    found: list[list[int]] = []

    def change() -> None:
        for _ in range(600):
            cached.normalizer = normalizers.Lowercase()
            cached.normalizer = None

    in_threads(change, lambda: found.extend(cached.encode(text).ids for text in texts))
    for text, ids in zip(texts, found, strict=True):
        assert ids in upper_or_lower(text)


def test_a_part_set_while_another_wrapper_shares_the_cache() -> None:
    cache = SharedTokenizerCache()
    changing, other = (
        CachedTokenizer.with_cache(mixed_case(), None, cache) for _ in range(2)
    )
    text = "AB<>BA<>"
    backend: Any = changing._backend
    run = backend.encode_run

    def encode_run(text: str) -> object:
        # The moment between the change and what the wrapper does about it.
        backend.encode_run = run
        with changing._changing():
            changing.inner.normalizer = normalizers.Lowercase()
            return run(text)

    backend.encode_run = encode_run
    changing.encode(text)
    assert other.encode(text).ids == other.inner.encode(text).ids


@pytest.mark.parametrize("text", ["a<>b", "a<>b" * 50])
def test_a_switch_in_the_middle_of_an_encode_is_no_failure(text: str) -> None:
    cached = CachedTokenizer(mixed_case())
    backend: Any = cached._backend
    run = backend.encode_run

    def encode_run(part: str) -> object:
        cached.enable_truncation(1)
        ids = run(part)
        cached.no_truncation()
        return ids

    backend.encode_run = encode_run
    for i in range(2 * MAX_SELF_CHECK_FAILURES):
        assert cached.encode(f"{i * 'c'}{text}").ids
    backend.encode_run = run
    assert cached.explain().enabled
    assert not cached.explain().notes
    assert cached.cache_stats().self_check_failures == 0
    assert cached.encode(text).ids == mixed_case().encode(text).ids


def test_a_switch_in_the_middle_of_a_first_trial_refuses_no_token() -> None:
    cached = CachedTokenizer(mixed_case())
    backend: Any = cached._backend
    bare = backend.encode_bare

    def encode_bare(part: str) -> object:
        cached.enable_truncation(1)
        ids = backend.encode_run(part)
        cached.no_truncation()
        return ids

    backend.encode_bare = encode_bare
    assert cached.encode("a<>b").ids == mixed_case().encode("a<>b").ids
    backend.encode_bare = bare
    assert cached.explain().boundary_tokens == ("<>",)
    assert cached.cache_stats().self_check_failures == 0


def test_a_longer_token_added_behind_the_wrapper_is_no_failure() -> None:
    tokenizer = small("<a>", *(f"[{'a' * n}]" for n in range(1, 300)), normalized=False)
    cached = CachedTokenizer(tokenizer)
    cached.encode("a<a>b<a>")
    tokenizer.add_tokens([AddedToken("<a>b", normalized=False)])
    for i in range(2 * MAX_SELF_CHECK_FAILURES):
        text = f"{i * 'a'}<a>b|<a>"
        assert cached.encode(text).ids == tokenizer.encode(text).ids
    assert cached.explain().enabled
    assert "<a>" in cached.explain().refused_tokens
    assert cached.cache_stats().self_check_failures == 0
