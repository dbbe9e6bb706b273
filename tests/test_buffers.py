"""Check that ids outlive the cache they are from, and pin nothing but themselves."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.allocator import Allocator, run_with_own_allocator
from tests.isolated.traffic import build
from tokcache import CachedTokenizer, L1Cache, SharedTokenizerCache, TokenIds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = "<s>" + "hello, " * 40 + "</s>"
LONGER = TEXT + "foo"
# Smaller than what a result of a long text takes.
SMALL = 4096
LONG = "<s>" + "x" * 100_000 + "</s>"


def want(text: str) -> list[int]:
    return list(build().encode(text, add_special_tokens=False).ids)


def of_a_hit(cached: Any) -> Any:
    cached.encode(TEXT, add_special_tokens=False)
    return cached.encode(TEXT, add_special_tokens=False)


def of_a_partial_hit(cached: Any) -> Any:
    cached.encode(TEXT, add_special_tokens=False)
    return cached.encode(LONGER, add_special_tokens=False)


def of_a_batch(cached: Any) -> Any:
    return cached.encode_batch(["", LONGER, TEXT], add_special_tokens=False)[2]


def of_a_flat_batch(cached: Any) -> Any:
    flat = cached.encode_batch_flat([LONGER, TEXT], add_special_tokens=False)
    return memoryview(flat.ids)[flat.offsets[1] :]


def of_two_steps(cached: Any) -> Any:
    level = L1Cache(2**20)
    level.insert_at_boundaries(TEXT, cached.inner)
    match = level.longest_prefix_match(LONGER)
    assert match is not None
    return match[0]


WAYS = [of_a_hit, of_a_partial_hit, of_a_batch, of_a_flat_batch, of_two_steps]
VIEWS: list[Callable[[Any], Any]] = [
    lambda ids: ids,
    memoryview,
    lambda ids: memoryview(ids)[3:].cast("B"),
    np.asarray,
    lambda ids: np.asarray(ids)[::-2],
    lambda ids: TokenIds(ids)[2:-1],
    lambda ids: iter(ids.tolist()),
]


def drop(cached: CachedTokenizer, cache: SharedTokenizerCache) -> None:
    cached.clear_cache()
    cache.clear()


def evict(cached: CachedTokenizer, cache: SharedTokenizerCache) -> None:
    for i in range(40):
        cached.encode(f"<s>{i}" + "y" * 200 + "</s>")
    assert cache.stats().evictions


@pytest.mark.parametrize("end", [drop, evict])
@pytest.mark.parametrize("way", WAYS)
def test_ids_outlive_the_cache(
    way: Callable[[Any], Any],
    end: Callable[[CachedTokenizer, SharedTokenizerCache], None],
) -> None:
    for view in VIEWS:
        cache = SharedTokenizerCache(max_memory_bytes=SMALL)
        cached = CachedTokenizer.with_cache(build(), None, cache, b"one")
        expected = TokenIds(want(LONGER if way is of_a_partial_hit else TEXT))
        held = view(way(cached))
        end(cached, cache)
        del cached, cache
        gc.collect()
        others = [TokenIds(range(i)) for i in range(300)]  # take what was freed
        found, expected_view = list(held), list(view(expected))
        assert found == expected_view
        del others


def hold_little() -> None:
    """Take a little of something large in every way, drop the rest, and measure."""
    allocator = Allocator()
    inner = build()
    large = 4 * len(LONG)

    def parts(cached: CachedTokenizer) -> dict[str, Callable[[], object]]:
        def ids() -> Any:
            return cached.encode(LONG)

        return {
            "slice": lambda: ids()[5:9],
            "step": lambda: ids()[:: len(LONG) // 3],
            "empty": lambda: ids()[9:5],
            "item": lambda: ids()[7],
            "list": lambda: ids().tolist()[:9],
            "copy": lambda: TokenIds(memoryview(ids())[3:8]),
            "bytes": lambda: ids().tobytes()[1:5],
            "batch": lambda: cached.encode_batch([LONG, "<s>", LONG])[1],
            "batch in one": lambda: cached.encode_batch(
                [f"<s>{i}</s>" for i in range(9_000)]
            )[7],
        }

    parts(CachedTokenizer(inner))["list"]()  # the ints of ids are kept, once for all
    before_all = allocator.bytes
    for name in parts(CachedTokenizer(inner)):
        for max_memory in (2**30, 0):  # both from the cache and from the tokenizer
            cached = CachedTokenizer(inner, max_memory_bytes=max_memory)
            cached.encode(LONG)
            allocator.take_peak()
            held = parts(cached)[name]()
            assert allocator.take_peak() > large / 4, name
            del cached
            gc.collect()
            assert held is not None
            before = allocator.bytes
            del held
            gc.collect()
            assert before - allocator.bytes < SMALL, name
    assert allocator.bytes - before_all < SMALL
    # A view is all of it, as with any buffer: so that is what pinning looks like.
    view = memoryview(TokenIds(range(large)))[5:9]
    before = allocator.bytes
    del view
    assert before - allocator.bytes >= large


def test_a_little_of_a_result_pins_nothing_large(tmp_path: Path) -> None:
    run_with_own_allocator(hold_little, tmp_path)


def test_a_cut_result_pins_nothing_large(tmp_path: Path) -> None:
    run_with_own_allocator(hold_what_was_cut, tmp_path)


def hold_what_was_cut() -> None:
    """Truncate a long prompt to a few ids, and hold these."""
    allocator = Allocator()
    cached: Any = CachedTokenizer(build())
    cached.enable_truncation(5)
    text = "<s>hello</s>" * 20_000
    for _ in range(2):
        ids = cached.encode(text)
        assert len(ids) == 5
        before = allocator.bytes
        del ids
        assert before - allocator.bytes < SMALL
