"""Check what other libraries do to a tokenizer: share it, ask for attributes."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.encoding_runs import build, make_texts
from tests.toys import plain, special, toy
from tokcache import CachedTokenizer, SharedTokenizerCache
from tokcache.backends._added_tokens import lists_are_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenizers import Tokenizer

TEXTS = make_texts(60)


def run_threads(*targets: Callable[[], None]) -> None:
    """Run all at once, and raise what the first of them raises."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(targets))

    def run(target: Callable[[], None]) -> None:
        try:
            barrier.wait(timeout=60)
            target()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextlib.contextmanager
def old_versions_own_error() -> Iterator[None]:
    """Let pass what a tokenizer before 0.21 raises where two threads use it at once."""
    try:
        yield
    except RuntimeError as error:
        if lists_are_true() or "borrowed" not in str(error):
            raise


def test_threads_share_a_tokenizer_whose_truncation_is_switched() -> None:
    """B41: ids of one setting or the other, and none of them stored as the other's."""
    inner = build()
    cached = CachedTokenizer(inner)
    raw = build()
    whole = {text: raw.encode(text).ids for text in TEXTS}
    raw.enable_truncation(5)
    short = {text: raw.encode(text).ids for text in TEXTS}
    rounds, finished = 25, threading.Semaphore(0)

    def switch() -> None:
        for _ in range(7):
            while not finished.acquire(blocking=False):
                with old_versions_own_error():
                    cached.enable_truncation(5)
                with old_versions_own_error():
                    cached.no_truncation()

    def encode() -> None:
        try:
            for text in TEXTS[:20] * rounds:
                with old_versions_own_error():
                    assert cached.encode(text).ids in (whole[text], short[text])
        finally:
            finished.release()

    def encode_batch() -> None:
        try:
            for _ in range(rounds):
                with old_versions_own_error():
                    found: Any = cached.encode_batch(TEXTS)
                    for text, ids in zip(TEXTS, found, strict=True):
                        assert ids.ids in (whole[text], short[text])
        finally:
            finished.release()

    run_threads(switch, *[encode] * 4, *[encode_batch] * 3)
    cached.no_truncation()
    for text in TEXTS:
        assert cached.encode(text).ids == whole[text]
    assert [ids.ids for ids in cached.encode_batch(TEXTS)] == list(whole.values())


def test_attributes_are_the_inner_tokenizers_and_live() -> None:
    """B44: whoever asks the wrapper is answered by the tokenizer."""
    inner = build()
    cached: Any = CachedTokenizer(inner)
    assert cached.inner is inner
    assert not isinstance(cached, type(inner))  # documented: hand over `.inner`
    for name in ("get_vocab", "get_vocab_size", "get_added_tokens_decoder", "to_str"):
        assert getattr(cached, name)() == getattr(inner, name)()
    n_tokens = cached.get_vocab_size()
    cached.add_tokens(["ello"])
    assert cached.get_vocab_size() == n_tokens + 1 == inner.get_vocab_size()
    assert cached.token_to_id("ello") == inner.token_to_id("ello")
    assert cached.id_to_token(n_tokens) == "ello"
    for text in TEXTS:
        ids = cached.encode(text)
        assert ids.ids == inner.encode(text).ids
        assert cached.decode(ids) == inner.decode(ids.ids)
    with pytest.raises(AttributeError):
        _ = cached.no_such_attribute


def test_ids_are_kept_by_content_and_not_by_identity() -> None:
    """B45: a deep copy shares if asked; a new tokenizer at an old address does not."""
    cache = SharedTokenizerCache()
    first = build()
    one = CachedTokenizer(first, cache=cache)
    for text in TEXTS:
        one.encode(text)
    other = CachedTokenizer(copy.deepcopy(first), cache=cache)
    for text in TEXTS:
        assert other.encode(text).ids == first.encode(text).ids
    assert other.cache_stats().misses < one.cache_stats().misses

    def another(i: int) -> Tokenizer:
        return toy(special("<s>"), plain(("ell", "hel", "llo")[i % 3]))

    shared = SharedTokenizerCache()
    text = "<s>hello<s>hello"
    want = [another(i).encode(text).ids for i in range(3)]
    assert len({tuple(ids) for ids in want}) == 3
    addresses = set()
    for i in range(1000):
        tokenizer = another(i)
        addresses.add(id(tokenizer))
        cached = CachedTokenizer(tokenizer, cache=shared)
        assert cached.encode(text).ids == want[i % 3]
        del cached, tokenizer
    gc.collect()
    assert len(addresses) < 1000


def test_a_batch_of_misses_is_one_call_and_a_disabled_cache_takes_the_raw_one() -> None:
    """B72: the inner tokenizer's own batch is not lost, whether cached or not."""
    texts = [
        f"<|im_start|>{text}<|im_end|>{i}" for i, text in enumerate(make_texts(64))
    ]
    want = [build().encode(text).ids for text in texts]
    listed: list[str] | None
    for listed in (None, []):
        cached = CachedTokenizer(build(), listed)
        cached.encode("<|im_start|>x<|im_end|>")  # the tokens are tried now
        counts = {"encode_bare_batch": 0, "encode_whole_batch": 0}
        alone = {"encode_run": 0, "encode_bare": 0, "encode_whole": 0}
        for name in (*counts, *alone):
            _count(cached, name, counts if name in counts else alone)
        assert [ids.ids for ids in cached.encode_batch(texts)] == want
        assert sum(counts.values()) == 1
        assert sum(alone.values()) == 0


def _count(cached: CachedTokenizer, name: str, counts: dict[str, int]) -> None:
    backend: Any = cached._backend
    real = getattr(backend, name)

    def counted(*args: Any) -> Any:
        counts[name] += 1
        return real(*args)

    setattr(backend, name, counted)
