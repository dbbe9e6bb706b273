"""Check what is counted: hits, tokens, entries, bytes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer

from tokcache import CachedTokenizer
from tokcache._trie import Trie

from .checks import InnerCalls, assert_same, raw_ids
from .toys import plain, special, toy

if TYPE_CHECKING:
    from tokcache import CacheTokenUsage


def build() -> Tokenizer:
    """Make a tokenizer with chat markers that puts one special in front on request."""
    return toy(special("<s>"), special("<im>"), special("<e>"), template="<s> $A")


class Watch:
    """Record what a wrapper tells its observers."""

    def __init__(self, **options: Any) -> None:
        self.events: list[str] = []
        self.usages: list[tuple[int, int]] = []
        self.cached = CachedTokenizer(
            build(),
            on_hit=lambda *_: self.events.append("hit"),
            on_miss=lambda *_: self.events.append("miss"),
            on_tokens=self.note,
            **options,
        )

    def note(self, usage: CacheTokenUsage) -> None:
        """Keep one report on tokens."""
        self.usages.append((usage.cached_tokens, usage.uncached_tokens))

    def usage(self, text: str, *, special: bool = False) -> tuple[int, int]:
        """Encode a text, check its ids, and return what was reported."""
        got = self.cached.encode(text, add_special_tokens=special).ids
        assert got == raw_ids(build(), text, special=special)
        return self.usages[-1]


def n_ids(text: str) -> int:
    """Count the raw tokenizer's ids."""
    return len(raw_ids(build(), text))


def test_observers_may_be_set_later_and_taken_away() -> None:
    """By the methods that upstream has for it, which return the wrapper itself."""
    cached = CachedTokenizer(build())
    told: list[str] = []
    cached.encode("<s>hello")
    assert (
        cached.with_observer(lambda: told.append("hit"), lambda: told.append("miss"))
        is cached
    )
    cached.encode("<s>hello")
    cached.encode("hello<im>")
    assert told == ["hit", "miss"]
    cached.with_observer(None, lambda: told.append("miss"))
    cached.encode("<s>hello")
    cached.with_observer(None, None)
    cached.encode("foo<e>")
    assert told == ["hit", "miss"]


def test_half_a_segment_is_no_hit() -> None:
    """Only whole segments are matched, and only their tokens are counted as cached."""
    watch = Watch()
    watch.usage("<s>abcdef<e>")
    assert watch.usage("<s>abcxyz<e>") == (1, n_ids("abcxyz<e>"))
    assert watch.usage("<s>abcdef<e>") == (n_ids("<s>abcdef<e>"), 0)
    assert watch.usage("<s>abcdef") == (1, n_ids("abcdef"))


def test_a_prompt_that_ends_in_a_passing_marker() -> None:
    """The next turn replaces it: what stands before it must still be a hit."""
    history = "<im>system\nhello<e><im>user\nfoo<e>"
    watch = Watch()
    watch.usage(f"{history}<im>bot\n<think>\n")
    cached, uncached = watch.usage(f"{history}<im>bot\nhello<e><im>user\nmore<e>")
    assert cached == n_ids(f"{history}<im>")
    assert uncached == n_ids("bot\nhello<e><im>user\nmore<e>")


def test_every_character_is_encoded_once_on_a_miss() -> None:
    """Not once for each growing prefix, nor once more to be stored."""
    cached = CachedTokenizer(build())
    assert_same(cached, build(), "<s>x<im>x<e>x")  # first sights are over
    calls = InnerCalls(cached)
    text = "".join(f"<im>user\nhello {i}<e>\n" for i in range(50)) + "<im>bot\n"
    cached.encode(text, add_special_tokens=False)
    assert sum(map(len, calls.take())) == len(text)
    text = "new " + text
    cached.encode(text, add_special_tokens=False)
    # The segments behind the first are known: what is new is behind no anchor.
    assert sum(map(len, calls.take())) <= len(text)


@pytest.mark.parametrize("n_added", [1, 256, 10_000])
def test_any_number_of_added_tokens(n_added: int) -> None:
    """The scan is one pass, and right, whatever their number."""
    contents = [f"<|{i}|>" for i in range(n_added)]
    tokenizer_json = toy(*(special(content) for content in contents)).to_str()
    raw = Tokenizer.from_str(tokenizer_json)
    cached = CachedTokenizer(Tokenizer.from_str(tokenizer_json))
    rng = random.Random(n_added)
    chosen = rng.choices(contents, k=12)
    pieces = ["hello", " foo", "<|", "|>", "<|x|>", "1", *chosen]
    for _ in range(60):
        text = "".join(rng.choices(pieces, k=30))
        assert_same(cached, raw, text)
        assert_same(cached, raw, text)
    assert cached.cache_stats().hits > 60
    assert len(cached.explain().boundary_tokens) == n_added


@pytest.mark.parametrize("hash_bits", [0, 1, 4])
@pytest.mark.parametrize("budget", [2**20, 4096])
def test_texts_whose_hashes_collide(hash_bits: int, budget: int) -> None:
    """Nothing is taken for cached because of its hash: the texts are compared."""
    cached = CachedTokenizer(build())
    trie = Trie(budget, 4 * budget, hash_seed=1, hash_bits=hash_bits)
    cached._trie = trie
    cached.invalidate()
    rng = random.Random(hash_bits)
    pieces = ["<s>", "<im>", "<e>", "hello", " foo", "é", "x", "y"]
    for i in range(400):
        text = "".join(rng.choices(pieces, k=rng.randrange(10)))
        assert_same(cached, build_once(), text, special=i % 2 == 0)
    trie.check()
    assert cached.cache_stats().hits > 200


@pytest.mark.parametrize("budget", [64 * 2**20, 2000])
def test_cached_and_uncached_tokens_add_up(budget: int) -> None:
    """One report for each success, one hit or miss each, and the sums agree."""
    watch = Watch(max_memory_bytes=budget)
    rng = random.Random(75)
    pieces = ["<s>", "<im>", "<e>", "hello", " foo", "\n\n", "é", "😀", "x", " "]
    total = hits = 0
    for i in range(1000):
        text = "".join(rng.choices(pieces, k=rng.randrange(14)))
        special_too = i % 3 == 0
        want = raw_ids(build_once(), text, special=special_too)
        got = watch.cached.encode(text, add_special_tokens=special_too)
        assert got.ids == want
        assert len(watch.usages) == len(watch.events) == i + 1
        assert sum(watch.usages[-1]) == len(want)
        if watch.events[-1] == "miss":
            assert watch.usages[-1][0] <= len(want)
        total += len(want)
        hits += watch.events[-1] == "hit"
        stats = watch.cached.cache_stats()
        assert (stats.hits, stats.misses) == (hits, i + 1 - hits)
        assert stats.memory_bytes <= budget
        assert stats.resident_bytes <= stats.max_resident_bytes
    assert stats.cached_tokens + stats.uncached_tokens == total
    assert stats.cached_tokens == sum(cached for cached, _ in watch.usages)
    assert stats.hit_rate == pytest.approx(hits / 1000)
    assert stats.token_hit_rate == pytest.approx(stats.cached_tokens / total)
    assert hits > 100


_BUILT: list[Tokenizer] = []


def build_once() -> Tokenizer:
    """Return one raw tokenizer for many comparisons."""
    if not _BUILT:
        _BUILT.append(build())
    return _BUILT[0]


def test_no_report_on_an_error() -> None:
    """A call that raises is neither hit nor miss, and no tokens are reported."""
    watch = Watch()
    watch.usage("<s>hello")
    for text in ("<s>\ud800", "\ud800"):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the library raises
            watch.cached.encode(text)
    assert watch.events == ["miss"]
    assert len(watch.usages) == 1
    assert watch.cached.cache_stats().misses == 1


def test_one_report_for_each_item_of_a_batch() -> None:
    """A batch is reported as its items."""
    watch = Watch()
    texts = ["<s>hello", "<s>hello", "<s>foo<e>x", "<im>"]
    ids = watch.cached.encode_batch(texts)
    assert sorted(map(sum, watch.usages)) == sorted(map(len, ids))
    assert len(watch.events) == len(texts)
    stats = watch.cached.cache_stats()
    assert stats.hits + stats.misses == len(texts)


def test_a_wrapper_that_is_off_reports_zeros() -> None:
    """It looks nothing up, counts nothing, tells nothing, whatever others have."""
    busy = Watch()
    busy.usage("<s>hello")
    watch = Watch(special_tokens=[])
    for _ in range(2):
        got = watch.cached.encode("<s>hello", add_special_tokens=False).ids
        assert got == raw_ids(build(), "<s>hello")
        assert watch.cached.count("<s>hello") == n_ids("<s>hello") + 1
    assert watch.events == []
    assert watch.usages == []
    stats = watch.cached.cache_stats()
    assert (stats.hits, stats.misses, stats.entries, stats.tails) == (0, 0, 0, 0)
    assert (stats.memory_bytes, stats.resident_bytes) == (0, 0)
    assert (stats.cached_tokens, stats.uncached_tokens) == (0, 0)
    assert not watch.cached.explain().enabled
    assert busy.cached.cache_stats().entries == 1


def test_a_text_without_any_boundary_is_a_miss_and_not_stored() -> None:
    """It is the inner tokenizer's whole answer, each time."""
    watch = Watch()
    for _ in range(3):
        assert watch.usage("hello foo") == (0, n_ids("hello foo"))
    assert watch.events == ["miss"] * 3
    stats = watch.cached.cache_stats()
    assert (stats.entries, stats.tails, stats.memory_bytes) == (0, 0, 0)


def test_entries_and_tails_are_counted_apart() -> None:
    """Entries are cached prefixes; tails end a prompt and are no prefix."""
    cached = CachedTokenizer(build())
    cached.encode("<s>hello<e>foo<e>tail")
    stats = cached.cache_stats()
    assert (stats.entries, stats.tails) == (3, 1)
    assert stats.memory_bytes == 4 * n_ids("<s>hello<e>foo<e>tail")
    assert stats.insertions == 3
    assert stats.resident_bytes > stats.memory_bytes


def test_without_tails_or_extension() -> None:
    """Both can be switched off, and the ids are the same."""
    cached = CachedTokenizer(build(), cache_tails=False)
    for _ in range(2):
        assert_same(cached, build(), "<s>hello<e>foo")
    assert cached.cache_stats().tails == 0
    cached = CachedTokenizer(build(), extend_on_hit=False)
    for text in ("<s>hello", "<s>foo<e>x", "<s>foo<e>x", "<im>a<e>"):
        assert_same(cached, build(), text)
    assert cached.cache_stats().entries == 3


def test_clearing_forgets_everything_but_works_on() -> None:
    """Hits and misses begin anew as well."""
    cached = CachedTokenizer(build())
    for _ in range(2):
        assert_same(cached, build(), "<s>hello<e>foo")
    cached.clear_cache()
    stats = cached.cache_stats()
    assert (stats.hits, stats.misses, stats.entries, stats.tails) == (0, 0, 0, 0)
    assert (stats.memory_bytes, stats.cached_tokens) == (0, 0)
    for _ in range(2):
        assert_same(cached, build(), "<s>hello<e>foo")
    assert cached.cache_stats().entries == 2


def test_a_prompt_too_large_evicts_nothing() -> None:
    """It is encoded and not stored; what was cached stays."""
    cached = CachedTokenizer(build(), max_memory_bytes=4096)
    small = [f"<s>hello {i}<e>" for i in range(10)]
    for text in small:
        assert_same(cached, build(), text)
    entries = cached.cache_stats().entries
    large = f"<im>{'x' * 2**20}<e>"
    assert cached.encode(large).ids == raw_ids(build(), large, special=True)
    stats = cached.cache_stats()
    assert (stats.oversized, stats.entries, stats.evictions) == (1, entries, 0)
    calls = InnerCalls(cached)
    for text in small:
        assert_same(cached, build(), text)
    assert not len(calls)


def test_a_refused_prompt_leaves_no_bytes_behind() -> None:
    """Tables that were grown for it must not stay grown: the budget was full."""
    small = [f"<s>hello {i}<e>" for i in range(40)]
    scout = CachedTokenizer(build(), max_resident_bytes=9000)  # no sketch in either
    for text in small:
        scout.encode(text)
    full = scout.cache_stats().resident_bytes
    cached = CachedTokenizer(build(), max_resident_bytes=full)
    for text in small:
        cached.encode(text)
    before = cached.cache_stats()
    assert before.resident_bytes == full
    cached.encode("".join(f"<im>foo {i}<e>" for i in range(99)))
    after = cached.cache_stats()
    assert after.oversized == 1
    assert after.entries == before.entries
    assert after.resident_bytes <= full


def test_a_refused_prompt_with_a_long_tail_leaves_no_bytes_behind() -> None:
    """What remembers long tails is made when one is seen, and counts as well."""
    budget = 2**18
    cached = CachedTokenizer(build(), max_resident_bytes=budget)
    i = 0
    while cached.cache_stats().resident_bytes < budget - 500:
        cached.encode(f"<s>hello {i}<e>")
        i += 1
    large = "".join(f"<im>foo {i}<e>" for i in range(4000)) + "x" * 100
    for _ in range(2):
        assert_same(cached, build(), large)
        assert cached.cache_stats().resident_bytes <= budget
    assert cached.cache_stats().oversized


def test_a_long_tail_behind_a_path_that_fills_the_budget() -> None:
    """The path is in use and cannot go, and there is no room to remember the tail."""
    budget = 2**18
    tokenizer = toy(special("<s>", rstrip=True))
    cached = CachedTokenizer(tokenizer, max_resident_bytes=budget)
    for end in ("", "x" * 100, "y" * 100, "x" * 100):
        assert_same(cached, tokenizer, "<s>" + " " * 250_000 + "<s>" + end)
        assert cached.cache_stats().resident_bytes <= budget


def test_bytes_grow_with_the_text_not_with_its_prefixes() -> None:
    """Each segment is stored once, not each prefix."""
    sizes = []
    for n in (50, 100, 200):
        cached = CachedTokenizer(build())
        cached.encode("".join(f"<im>hello {i:03} foo<e>" for i in range(n)))
        sizes.append(cached.cache_stats().memory_bytes)
    assert sizes[1] / sizes[0] == pytest.approx(2, rel=0.1)
    assert sizes[2] / sizes[1] == pytest.approx(2, rel=0.1)


def test_the_same_path_again_costs_no_more() -> None:
    """What is counted when it is stored is not counted again."""
    cached = CachedTokenizer(build())
    cached.encode("<s>hello<e>foo<e>tail")
    first = cached.cache_stats()
    for _ in range(1000):
        cached.encode("<s>hello<e>foo<e>tail")
    again = cached.cache_stats()
    assert again.memory_bytes == first.memory_bytes
    assert again.resident_bytes == first.resident_bytes


def test_a_repeat_that_ends_in_a_special_needs_no_inner_call() -> None:
    """A boundary at the end is stored like any other, and "" is never encoded."""

    def tokenizer() -> Tokenizer:
        return toy(special("<s>"), plain("<e>"))

    cached = CachedTokenizer(tokenizer())
    calls = InnerCalls(cached)
    for text in ("<s>hello<e>", "<s>", "<e><e>", "hello<s>"):
        assert_same(cached, tokenizer(), text)
        assert "" not in calls.take()
        assert_same(cached, tokenizer(), text)
        assert calls.take() == []
    # Only the user's own empty text reaches the inner tokenizer.
    assert_same(cached, tokenizer(), "")
    assert set(calls.take()) <= {""}
