"""Check one store for many wrappers: namespaces, budgets, statistics."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers

from tests.checks import InnerCalls, assert_same
from tests.toys import plain, special, toy
from tokcache import (
    CachedTokenizer,
    L1CacheStats,
    SharedTokenizerCache,
    SharedTokenizerCacheStats,
    fingerprint,
)
from tokcache.backends.added_tokens import lists_are_true

BUDGET = 2**20
TEXTS = ["<s>hello</s>", "<s>hello</s>foo", "<s>x</s>y"]


def build(*more: Any) -> Tokenizer:
    return toy(special("<s>"), special("</s>"), *more, template="<s> $A")


def joined(
    cache: SharedTokenizerCache, namespace: bytes | None, *more: Any
) -> CachedTokenizer:
    return CachedTokenizer.with_cache(build(*more), None, cache, namespace)


def test_wrappers_of_a_namespace_share_and_others_never_meet() -> None:
    cache = SharedTokenizerCache(BUDGET)
    first, second = joined(cache, b"one"), joined(cache, b"one")
    stranger = joined(cache, b"two")
    for text in TEXTS:
        assert_same(first, build(), text)
    calls = InnerCalls(second)
    for text in TEXTS:
        assert_same(second, build(), text)
    assert not len(calls)
    assert (second.cache_stats().hits, second.cache_stats().misses) == (6, 0)
    assert stranger.cache_stats().entries == 0
    for text in TEXTS:
        assert_same(stranger, build(), text)
    assert stranger.cache_stats().hits == first.cache_stats().hits
    assert cache.namespaces == (b"one", b"two")


def test_tokenizers_with_other_ids_are_kept_apart_by_their_content() -> None:
    """B32: the same text, other ids."""
    cache = SharedTokenizerCache(BUDGET)
    extra = plain("hello")
    one, two = joined(cache, None), joined(cache, None, extra)
    for _ in range(2):
        for text in TEXTS:
            assert_same(one, build(), text)
            assert_same(two, build(extra), text)
    assert set(cache.namespaces) == {
        fingerprint_of(build()),
        fingerprint_of(build(extra)),
    }


def fingerprint_of(tokenizer: Tokenizer) -> bytes:
    return CachedTokenizer(tokenizer)._backend.fingerprint()


def test_a_namespace_is_for_one_behaviour() -> None:
    cache = SharedTokenizerCache(BUDGET)
    first = joined(cache, b"one")
    first.encode(TEXTS[0])
    with pytest.raises(ValueError, match="contents differ"):
        joined(cache, b"one", plain("ell"))
    assert cache.stats().entries == first.cache_stats().entries == 2
    assert_same(first, build(), TEXTS[0])


def test_entries_outlive_a_wrapper() -> None:
    cache = SharedTokenizerCache(BUDGET)
    first = joined(cache, b"one")
    for text in TEXTS:
        first.encode(text)
    entries = cache.stats().entries
    del first
    gc.collect()
    assert cache.stats().entries == entries > 0
    second = joined(cache, b"one")
    calls = InnerCalls(second)
    assert_same(second, build(), TEXTS[0])
    assert not len(calls)
    assert second.cache_stats().entries == entries


def test_no_namespace_is_reused_when_an_address_is() -> None:
    """B45: a new tokenizer may lie where one died; its content is what counts."""
    cache = SharedTokenizerCache(BUDGET)
    for number in range(200):
        token = plain(f"hello{number % 7}")
        cached = joined(cache, None, token)
        assert_same(cached, build(token), f"<s>hello{number % 7}</s>hello3")
        del cached
    assert len(cache.namespaces) == 7


def test_a_deep_copy_shares_its_namespace() -> None:
    cache = SharedTokenizerCache(BUDGET)
    first = joined(cache, None)
    first.encode(TEXTS[0])
    for make in (copy.copy, copy.deepcopy):
        other = make(first)
        calls = InnerCalls(other)
        assert_same(other, build(), TEXTS[0])
        assert not len(calls)
    apart = pickle.loads(pickle.dumps(first))  # noqa: S301
    assert apart.cache_stats().entries == 0
    assert apart.cache_stats().max_memory_bytes == BUDGET
    assert_same(apart, build(), TEXTS[0])


def test_clearing_a_namespace_gives_back_what_it_alone_held() -> None:
    cache = SharedTokenizerCache(BUDGET)
    first = joined(cache, b"one")
    for text in TEXTS:
        first.encode(text)
    before = cache.stats()
    second = joined(cache, b"two")
    for text in TEXTS * 3:
        second.encode(text)
    assert cache.stats().entries == 2 * before.entries
    assert cache.stats(b"two") == cache.stats(b"one")
    cache.clear(b"two")
    after = cache.stats()
    assert (after.entries, after.memory_bytes) == (before.entries, before.memory_bytes)
    assert after.resident_bytes == before.resident_bytes
    empty = cache.stats(b"two")
    assert (empty.entries, empty.memory_bytes, empty.resident_bytes) == (0, 0, 0)
    assert_same(second, build(), TEXTS[0])
    cache.clear()
    assert cache.stats().entries == 0


def test_a_namespace_without_wrappers_is_forgotten_when_it_is_cleared() -> None:
    cache = SharedTokenizerCache(BUDGET)
    first = joined(cache, b"one")
    first.encode(TEXTS[0])
    cache.clear(b"one")
    assert list(cache.namespaces) == [b"one"]
    del first
    gc.collect()
    cache.clear(b"one")
    assert not cache.namespaces
    # The name is free for another behaviour now.
    second = joined(cache, b"one", plain("ell"))
    assert_same(second, build(plain("ell")), TEXTS[0])


def test_statistics_of_a_namespace_are_its_own() -> None:
    """Nothing that a namespace is told of itself follows from another's prompts."""
    cache = SharedTokenizerCache(BUDGET)
    first = joined(cache, b"one")
    for text in TEXTS:
        first.encode(text)
    mine, all_of_it = first.cache_stats(), cache.stats(b"one")
    second = joined(cache, b"two")
    for text in TEXTS:
        second.encode(text + "foo<s>")
    assert first.cache_stats() == mine
    assert cache.stats(b"one") == all_of_it
    total = cache.stats()
    other = cache.stats(b"two")
    for name in ("entries", "tails", "memory_bytes", "insertions"):
        assert getattr(total, name) == getattr(all_of_it, name) + getattr(other, name)
    assert cache.stats(b"no such") == SharedTokenizerCacheStats(
        max_memory_bytes=cache.max_memory_bytes,
        max_resident_bytes=cache.max_resident_bytes,
    )


def test_a_tokenizer_that_changes_leaves_its_namespace() -> None:
    cache = SharedTokenizerCache(BUDGET)
    named, unnamed = joined(cache, b"one"), joined(cache, None)
    for cached in (named, unnamed):
        cached.encode(TEXTS[0])
        cached.normalizer = normalizers.Lowercase()
    changed = build()
    changed.normalizer = normalizers.Lowercase()
    for text in ("<s>HELLO</s>", *TEXTS):
        assert_same(named, changed, text)
        assert_same(unnamed, changed, text)
    assert "contents differ" in str(named.explain().reason)
    assert unnamed.explain().enabled
    assert len(cache.namespaces) == 3
    fresh = joined(cache, b"one")
    calls = InnerCalls(fresh)
    assert_same(fresh, build(), TEXTS[0])
    assert not len(calls)


def test_lists_of_special_tokens_do_not_mix_within_a_namespace() -> None:
    cache = SharedTokenizerCache(BUDGET)
    for listed in (["<s>"], ["</s>"], None, ["</s>", "<s>"]):
        cached = CachedTokenizer.with_cache(build(), listed, cache, b"one")
        for text in TEXTS * 2:
            assert_same(cached, build(), text)


def test_a_disabled_wrapper_reports_zeros() -> None:
    """B76."""
    cache = SharedTokenizerCache(BUDGET)
    joined(cache, b"one").encode(TEXTS[0])
    off = CachedTokenizer.with_cache(build(), [], cache, b"one")
    assert_same(off, build(), TEXTS[0])
    assert off.cache_stats() == L1CacheStats()
    assert cache.stats().entries == 2


@pytest.mark.parametrize("budget", [0, 1, 4096, BUDGET])
def test_many_wrappers_and_threads_within_one_budget(budget: int) -> None:
    """B46: more than 10,000 prompts from eight threads, most of them soon evicted."""
    cache = SharedTokenizerCache(budget)
    wrappers = [joined(cache, name) for name in (b"a", b"b") * 4]
    texts = [f"<s>{'hello' * (i % 5)}</s>{i}<s>foo{i % 11}" for i in range(100)]
    want = {text: build().encode(text).ids for text in texts}
    wrong: list[str] = []

    def work(cached: CachedTokenizer) -> None:
        for text in texts * 13:
            if cached.encode(text).ids != want[text]:
                wrong.append(text)
            stats = cache.stats()
            if not (
                stats.memory_bytes <= budget
                and stats.resident_bytes <= cache.max_resident_bytes
            ):
                wrong.append(f"{stats}")

    threads = [threading.Thread(target=work, args=(each,)) for each in wrappers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    # Each of them got to its end.
    stats = [cached.cache_stats() for cached in wrappers]
    assert sum(each.hits + each.misses for each in stats) == 8 * 13 * len(texts)
    cache.trie.check()


def test_bad_arguments() -> None:
    cache = SharedTokenizerCache(BUDGET)
    bad: Any
    for bad in ("one", 1, bytearray(b"one")):
        with pytest.raises(TypeError, match="namespace must be bytes"):
            joined(cache, bad)
        with pytest.raises(TypeError, match="namespace must be bytes"):
            cache.stats(bad)
    bad = object()
    with pytest.raises(TypeError, match="SharedTokenizerCache"):
        CachedTokenizer.with_cache(build(), None, bad, b"one")
    with pytest.raises(ValueError, match="budgets are those of the shared cache"):
        CachedTokenizer.with_cache(build(), None, cache, b"one", max_memory_bytes=1)
    with pytest.raises(ValueError, match="max_memory_bytes"):
        SharedTokenizerCache(-1)
    tokenizer = build()
    tokenizer.normalizer = normalizers.Normalizer.custom(object())
    if lists_are_true():
        with pytest.raises(ValueError, match="made in Python"):
            CachedTokenizer.with_cache(tokenizer, None, cache, trust_custom=True)
    else:  # off, whoever vouches, so that it needs no namespace
        off = CachedTokenizer.with_cache(tokenizer, None, cache, trust_custom=True)
        assert not off.explain().enabled
    assert cache.namespaces == ()


def test_the_fingerprint_is_a_namespace() -> None:
    cache = SharedTokenizerCache(BUDGET)
    name = fingerprint(build())
    assert_same(joined(cache, name), build(), TEXTS[0])
    assert cache.namespaces == (name,)


class Letters:
    """Give each letter an id, in lower case if ``lowers``; nothing shows it."""

    lowers = False

    def encode(self, text: str) -> list[int]:
        shown = text.lower() if self.lowers else text
        return [1 if c == "|" else 2 + ord(c) for c in shown]

    def decode(self, ids: list[int]) -> str:
        return "".join("|" if i == 1 else chr(i - 2) for i in ids)


@pytest.mark.parametrize("through_wrapper", [True, False])
def test_a_tokenizer_without_a_fingerprint_is_read_again(through_wrapper: bool) -> None:
    inner = Letters()
    cached = CachedTokenizer.with_cache(inner, ["|"], SharedTokenizerCache(), b"name")
    cached.encode("A|B|")
    if through_wrapper:
        cached.lowers = True
    else:
        inner.lowers = True
        cached.invalidate()
    assert cached.encode("A|B|").ids == inner.encode("A|B|")


def test_what_was_stored_before_a_change_was_told_is_dropped_for_all() -> None:
    cache = SharedTokenizerCache()
    changed, other = (
        CachedTokenizer.with_cache(toy(special("<a>")), None, cache) for _ in range(2)
    )
    changed.inner.normalizer = normalizers.Lowercase()
    changed.encode("HELLO<a>")
    changed.invalidate()
    for cached in (changed, other):
        assert cached.encode("HELLO<a>").ids == cached.inner.encode("HELLO<a>").ids
    changed.inner.normalizer = None
    changed.invalidate()
    assert changed.encode("HELLO<a>").ids == other.encode("HELLO<a>").ids


def test_names_that_a_changing_tokenizer_left_are_forgotten() -> None:
    """Each change moves a wrapper without a name of its own to another namespace."""
    cache = SharedTokenizerCache(BUDGET)
    cached = joined(cache, None)
    for number in range(20):
        cached.encode(TEXTS[0])
        cached.add_tokens([plain(f"token{number}")])
    assert len(cache.namespaces) == 21
    cache.clear()
    assert len(cache.namespaces) == 1
    more = [plain(f"token{number}") for number in range(20)]
    for text in TEXTS * 2:
        assert_same(cached, build(*more), text)
    cache.trie.check()


def test_a_namespace_stays_while_an_encode_runs_in_it() -> None:
    """Its root must not be given to another while a plan still leads to it."""
    cache = SharedTokenizerCache(BUDGET)
    cached = joined(cache, None)
    cached.encode(TEXTS[0])

    def while_it_runs(_: str) -> None:
        if len(cache.namespaces) == 1:
            cached.add_tokens([plain("ell")])
            cache.clear()

    InnerCalls(cached, while_it_runs)
    assert_same(cached, build(plain("ell")), "<s>hello</s>foo<s>x")
    cache.clear()
    assert len(cache.namespaces) == 1
    cache.trie.check()
