"""Check copies, pickles and files of accelerated tokenizers of transformers."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken

from tokcache import SharedTokenizerCache

from .hf_tokenizers import pickled, small, transformers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tokcache.transformers import accelerate, cached_tokenizer


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_copies_are_accelerated(copied: Callable[[Any], Any]) -> None:
    """A copy shares the backend and so the cache; a deep copy has its own."""
    fast = accelerate(small(), max_memory_bytes=12_345)
    fast("<im>hello<im>")
    made = copied(fast)
    assert type(made) is type(fast)
    assert dict(made("<im>hello<im>")) == dict(small()("<im>hello<im>"))
    cache = cached_tokenizer(made)
    assert (cache is cached_tokenizer(fast)) is (copied is copy.copy)
    assert cache.cache_stats().max_memory_bytes == 12_345
    made.padding_side = "left"  # the copy's own affair
    assert dict(fast(["<im>", "a<im>hello"], padding=True)) == dict(
        small()(["<im>", "a<im>hello"], padding=True)
    )


def test_nothing_goes_by_the_identity_of_objects() -> None:
    """Memory gives an identity out again: a thousand tokenizers come and go."""
    shared = SharedTokenizerCache()
    kinds = [small(), small()]
    kinds[1].add_tokens([AddedToken("ell", normalized=False)])
    want = [kind("<im>hello")["input_ids"] for kind in kinds]
    assert want[0] != want[1]
    for i in range(1000):
        fast = accelerate(copy.deepcopy(kinds[i % 2]), cache=shared)
        assert fast("<im>hello")["input_ids"] == want[i % 2], i
        del fast
    assert len(shared.namespaces) == 2


def test_nothing_is_left_when_a_tokenizer_goes() -> None:
    """The backend is in no circle that the garbage collector cannot see."""
    fast = accelerate(small())
    hook, cache = weakref.ref(vars(fast)["_tokcache_hook"]), cached_tokenizer(fast)
    held = weakref.ref(cache)
    encoding = fast("<im>hello")[0]
    shallow = copy.copy(fast)
    del fast, cache
    gc.collect()
    assert shallow("<im>hello").input_ids == small()("<im>hello").input_ids
    assert hook() is not None
    backend = shallow.backend_tokenizer
    method = backend.encode_batch
    del shallow
    gc.collect()
    assert hook() is None
    assert held() is None
    assert not vars(backend)
    assert backend.encode_batch(["<im>hello"])[0].ids == encoding.ids
    assert encoding.offsets == small()("<im>hello")[0].offsets
    with pytest.raises(ReferenceError, match="encode_batch"):
        method(["<im>"])


def test_copies_share_a_shared_cache() -> None:
    """A namespace is a tokenizer's content: that of a deep copy is the same."""
    shared = SharedTokenizerCache()
    fast = accelerate(small(), cache=shared)
    fast("<im>hello<im>")
    entries = shared.stats().entries
    made = copy.deepcopy(fast)
    assert made("<im>hello<im>")["input_ids"] == fast("<im>hello<im>")["input_ids"]
    assert shared.stats().entries == entries
    assert cached_tokenizer(made).cache_stats().misses == 0
    made.add_tokens(["ell"])
    assert made.tokenize("<im>hello") == ["<im>", "h", "ell", "o"]
    assert fast.tokenize("<im>hello") == ["<im>", "hello"]


def test_saved_files_know_nothing_of_it(tmp_path: Path) -> None:
    """What is loaded again is a plain tokenizer with the same ids."""
    accelerate(small()).save_pretrained(tmp_path / "fast")
    small().save_pretrained(tmp_path / "plain")
    for path in (tmp_path / "plain").iterdir():
        assert (tmp_path / "fast" / path.name).read_bytes() == path.read_bytes()
    loaded = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "fast")
    assert dict(loaded("<im>hello")) == dict(small()("<im>hello"))
    with pytest.raises(ValueError, match="not accelerated"):
        cached_tokenizer(loaded)
    assert dict(accelerate(loaded)("<im>hello")) == dict(small()("<im>hello"))
