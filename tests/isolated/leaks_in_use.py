"""What people do with a cache, again and again."""

from __future__ import annotations

import asyncio
import copy
import ctypes
import pickle
from contextlib import suppress
from typing import Any

import numpy as np

from tests.encodings import small_encoding
from tests.isolated.growth import Operation, leaves_nothing
from tests.isolated.traffic import (
    SMALL,
    TEXT,
    build,
    new_number,
    new_text,
    warm,
    wrapper,
)
from tokcache import (
    CachedTokenizer,
    EncodeSegment,
    L1Cache,
    SharedTokenizerCache,
    fingerprint,
)


@leaves_nothing()
def wrappers_come_and_go() -> Operation:
    def operation() -> None:
        cached = wrapper()
        for text in (TEXT, TEXT, TEXT + "x", "hello"):
            cached.encode(text)

    return operation


@leaves_nothing()
def hits() -> Operation:
    cached = wrapper()

    def operation() -> None:
        cached.encode(TEXT)
        cached.encode(TEXT, add_special_tokens=False)
        cached.count(TEXT)

    return operation


@leaves_nothing()
def misses_and_evictions() -> Operation:
    cached = warm(wrapper())

    def operation() -> None:
        cached.encode(new_text())
        cached.count(TEXT + new_text())
        cached.encode(f"no boundary {new_number()}")

    return operation


@leaves_nothing()
def batches() -> Operation:
    cached = warm(wrapper())

    def operation() -> None:
        fresh = [new_text() for _ in range(5)]
        cached.encode_batch([TEXT, *fresh, fresh[0], "hello", ""])
        flat = cached.encode_batch_flat([TEXT, new_text()])
        np.asarray(flat.ids), np.asarray(flat.offsets)

    return operation


@leaves_nothing()
def truncation_and_padding() -> Operation:
    cached = warm(wrapper())

    def operation() -> None:
        cached.enable_truncation(5)
        cached.enable_padding(length=12)
        cached.encode(new_text())
        cached.encode_batch([TEXT, new_text()])
        cached.no_truncation()
        cached.no_padding()
        cached.encode(TEXT)

    return operation


@leaves_nothing()
def clears() -> Operation:
    cached = wrapper()

    def operation() -> None:
        cached.encode(TEXT)
        cached.clear_cache()
        cached.encode(TEXT)
        cached.invalidate()
        cached.explain()
        cached.cache_stats()

    return operation


@leaves_nothing()
def segments() -> Operation:
    cached = wrapper()

    def operation() -> None:
        cached.encode_segments([EncodeSegment(TEXT, allow_special=True), (TEXT, False)])

    return operation


@leaves_nothing()
def shared_caches() -> Operation:
    cache = SharedTokenizerCache(max_memory_bytes=SMALL)
    inner = build()

    def operation() -> None:
        for name in (b"one", b"two", None):
            cached = CachedTokenizer.with_cache(inner, None, cache, name)
            cached.encode(new_text())
            cached.encode(TEXT)
            if name:
                cache.stats(name)
                cache.clear(name)
        cache.stats()
        own = SharedTokenizerCache(max_memory_bytes=SMALL)
        CachedTokenizer.with_cache(inner, None, own).encode(TEXT)

    return operation


@leaves_nothing()
def lower_level() -> Operation:
    inner = build()
    level = L1Cache(SMALL)

    def operation() -> None:
        text = TEXT + new_text()
        match = level.longest_prefix_match(text)
        if match is None:
            level.populate_and_encode(text, inner)
        else:
            level.extend_after_match(text, *match, inner)
        level.insert_at_boundaries(TEXT + "foo", inner)
        level.clear()

    return operation


@leaves_nothing()
def observers() -> Operation:
    def fails(*_: object) -> None:
        raise ValueError

    told = ctypes.c_long(0)

    def listens(*_: object) -> None:
        told.value += 1

    cached = wrapper(on_hit=listens, on_miss=fails, on_tokens=listens)

    def operation() -> None:
        cached.encode(TEXT)
        cached.encode(new_text())
        cached.with_observer(listens, fails).with_token_observer(listens)

    with suppress(ValueError):
        fails()
    return operation


@leaves_nothing()
def verified() -> Operation:
    cached = wrapper(verify=1.0)

    def operation() -> None:
        cached.encode(TEXT)
        cached.encode(TEXT + new_text())

    return operation


@leaves_nothing()
def copies_and_pickles() -> Operation:
    cached = wrapper()
    cached.encode(TEXT)

    def operation() -> None:
        copy.copy(cached).encode(TEXT)
        copy.deepcopy(cached).encode(TEXT)
        pickle.loads(pickle.dumps(cached)).encode(TEXT)  # noqa: S301 - our own
        fingerprint(cached.inner)

    return operation


@leaves_nothing()
def on_an_event_loop() -> Operation:
    cached = warm(wrapper())
    loop = asyncio.new_event_loop()

    def operation() -> None:
        for text in (TEXT, new_text(), new_text() * 40):
            loop.run_until_complete(cached.aencode(text))

    return operation


@leaves_nothing()
def metrics() -> Operation:
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

    from tokcache.observers import publish_metrics  # noqa: PLC0415

    cached = wrapper()

    def operation() -> None:
        registry = CollectorRegistry()
        publish_metrics(cached, model="m", registry=registry)
        publish_metrics(wrapper(), model="gone", registry=registry)
        cached.encode(new_text())
        generate_latest(registry)

    return operation


@leaves_nothing()
def accelerated() -> Operation:
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - takes long

    from tokcache.transformers import accelerate, unaccelerate  # noqa: PLC0415

    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=build())
    tokenizer.pad_token = "<s>"  # noqa: S105 - no password

    def operation() -> None:
        accelerate(tokenizer, max_memory_bytes=SMALL)
        tokenizer(TEXT)
        tokenizer([TEXT, new_text()], padding=True, return_tensors="np")
        tokenizer.encode(new_text())
        unaccelerate(tokenizer)

    return operation


@leaves_nothing()
def tiktoken_encodings() -> Operation:
    inner = small_encoding()
    cached = CachedTokenizer(inner, max_memory_bytes=SMALL)

    def operation() -> None:
        text = f"<|a|>hello {new_number()}<|b|>"
        cached.encode(text, allowed_special="all")
        cached.encode_batch([text, "hello"], allowed_special={"<|a|>", "<|b|>"})
        with suppress(ValueError):
            cached.encode(text)
        CachedTokenizer(inner).encode("hello")

    return operation
