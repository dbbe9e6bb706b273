"""Check made-up batches on every tokenizer at hand: ids, counts, errors of the loop."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import data
from tokcache import CachedTokenizer, CacheTokenUsage
from tokcache import batch as batch_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

# No tokenizer takes it: a text with it is an error, wherever it stands in a batch.
SURROGATE = "\ud800"
EXAMPLES = 12


def parts(tokenizer: Tokenizer) -> list[str]:
    """Return what texts are made of: added tokens of every kind, and real text."""
    draw = random.Random(4)
    added = list(tokenizer.get_added_tokens_decoder().values())
    kinds: dict[tuple[bool, ...], list[str]] = {}
    for token in added:
        flags = (token.special, token.normalized, token.lstrip, token.rstrip)
        kinds.setdefault((*flags, token.single_word), []).append(token.content)
    found = [
        content
        for contents in kinds.values()
        for content in draw.sample(contents, min(3, len(contents)))
    ]
    turns = [text for turns in data.OWN_TURNS for text in turns]
    return [*found * 3, *draw.sample(turns, 12), "", " ", "\n", "a", found[0][:-1]]


def outcome(call: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """Return what a call gives or how it fails."""
    try:
        return (call(*args),)
    except Exception as error:  # noqa: BLE001 - the tokenizer's own, whatever it is
        return type(error), str(error)


@pytest.mark.parametrize("family", data.families())
def test_made_up_batches(family: str) -> None:
    tokenizer = data.load_family(family)
    text = st.lists(st.sampled_from(parts(tokenizer)), max_size=7).map("".join)
    bad = st.tuples(text, text).map(SURROGATE.join)
    texts = st.lists(st.one_of(text, text, text, text, bad), max_size=8)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        texts=texts,
        warm=st.lists(text, max_size=2),
        flag=st.booleans(),
        n_texts=st.sampled_from([1, 1, 4, 128]),
    )
    def check(texts: list[str], warm: list[str], flag: bool, n_texts: int) -> None:
        texts = [*texts, *(text + "more" for text in texts[:3]), *texts[:2]]
        with patch.object(batch_module, "JOINED_TEXTS", n_texts):
            check_batch(tokenizer, texts, warm, flag=flag)

    check()


def check_batch(
    tokenizer: Tokenizer, texts: list[str], warm: list[str], *, flag: bool
) -> None:
    """Compare a batch with the loop and with the tokenizer, from equal caches."""
    one, many = CachedTokenizer(tokenizer), CachedTokenizer(tokenizer)
    told: tuple[list[CacheTokenUsage], list[CacheTokenUsage]] = ([], [])
    for text in warm:
        one.encode(text, add_special_tokens=flag)
        many.encode(text, add_special_tokens=flag)
    one.with_token_observer(told[0].append)
    many.with_token_observer(told[1].append)

    def encode(text: str, cached: CachedTokenizer = one) -> list[int]:
        return cached.encode(text, add_special_tokens=flag).ids

    loop = [outcome(encode, text) for text in texts]
    failed = [each for each in loop if len(each) > 1]
    got = outcome(many.encode_batch, texts, False, flag)
    if failed:
        assert got == failed[0]
    elif tokenizer.padding is None:
        assert [(ids.ids,) for ids in got[0]] == loop
        raw = tokenizer.encode_batch(texts, add_special_tokens=flag)
        assert [(each.ids,) for each in raw] == loop
    else:  # to the longest of the batch, or to what is set
        raw = tokenizer.encode_batch(texts, add_special_tokens=flag)
        assert [ids.ids for ids in got[0]] == [each.ids for each in raw]
    assert told[1] == told[0]
    assert many.cache_stats() == one.cache_stats()
    many._trie.check()
    # Nothing that failed keeps the rest from being served.
    for text, want in zip(texts, loop, strict=True):
        assert outcome(encode, text, many) == want
