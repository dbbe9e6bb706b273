"""Check that no finalizer can hang on a lock; of forks, see test_processes."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.toys import special, toy
from tokcache import CachedTokenizer, SharedTokenizerCache
from tokcache.state import Root

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

    from tokcache._trie import Trie

TEXT = "<s>hello</s>foo"
TIMEOUT = 60.0


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"), template="<s> $A")


def joined(cache: SharedTokenizerCache, namespace: bytes) -> CachedTokenizer:
    return CachedTokenizer.with_cache(build(), None, cache, namespace)


def ends(work: Callable[[], None]) -> bool:
    """Tell whether something ends, in a thread that may be left behind."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return not thread.is_alive()


class Tenant:
    """Clear a namespace when the collector finds that its tenant is gone."""

    def __init__(self, cache: SharedTokenizerCache, name: bytes) -> None:
        self.itself = self
        self.cache = cache
        self.name = name
        self.cached = joined(cache, name)

    def __del__(self) -> None:
        assert self.cache.stats(self.name).oversized == 0
        self.cache.clear(self.name)


class CollectingRoot(Root):
    """Have the collector run at the worst moment, while a namespace is opened."""

    @classmethod
    def of(cls, *arguments: Any) -> Root:
        gc.collect()
        return Root.of(*arguments)


def test_a_finalizer_may_clear_its_namespace_while_another_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = SharedTokenizerCache()
    monkeypatch.setattr("tokcache.shared.Root", CollectingRoot)

    def come_and_go() -> None:
        for name in (b"one", b"two", b"one"):
            want = build().encode(TEXT).ids
            tenant = Tenant(cache, name)
            for _ in range(2):
                assert tenant.cached.encode(TEXT).ids == want
            del tenant

    assert ends(come_and_go)
    gc.collect()
    assert not cache.namespaces
    cache.trie.check()


class Watched:
    """A trie that lets another thread try something before one of its calls."""

    def __init__(self, trie: Trie, name: str, meanwhile: Callable[[], None]) -> None:
        self.trie = trie
        self.name = name
        self.meanwhile = meanwhile

    def __getattr__(self, name: str) -> object:
        if name == self.name:
            thread = threading.Thread(target=self.meanwhile)
            thread.start()
            thread.join(0.2)
        return getattr(self.trie, name)


@pytest.mark.parametrize("call", ["stats", "clear"])
def test_a_namespace_may_be_forgotten_while_it_is_asked_about(call: str) -> None:
    cache: Any = SharedTokenizerCache()
    keeper = joined(cache, b"one")
    keeper.encode(TEXT)

    def forget() -> None:
        nonlocal keeper
        del keeper
        gc.collect()
        cache.clear(b"one")

    name = {"stats": "usage", "clear": "clear"}[call]
    trie, cache._trie = cache._trie, Watched(cache._trie, name, forget)
    getattr(cache, call)(b"one")
    cache._trie = trie
    cache.clear()
    assert not cache.namespaces
    trie.check()
