"""Check what the cache makes of a ``gigatoken.Tokenizer``, against itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import gigatoken
import numpy as np
import pytest

from tokcache import CachedTokenizer, special_tokens_of
from tokcache._scan import Scanner
from tokcache.backends import backend_for

from . import data
from .inspection import reasons
from .toys import plain, special, toy

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

    from tokcache.eligibility import Eligibility


def giga(tokenizer: Tokenizer) -> gigatoken.Tokenizer:
    """Load what ``tokenizers`` has built."""
    return gigatoken.Tokenizer.from_json(tokenizer.to_str())


def inspected(tokenizer: Tokenizer, listed: list[str] | None) -> Eligibility:
    """Inspect gigatoken's version of a tokenizer."""
    return backend_for(giga(tokenizer)).inspect(listed, trust_custom=False)


# -- the list


def test_it_asks_for_what_it_cannot_see() -> None:
    with pytest.raises(TypeError, match=r"gigatoken does not tell .*special_tokens_of"):
        inspected(toy(special("<a>")), None)
    assert inspected(toy(special("<a>")), []).reason == "special_tokens is empty"


def test_a_list_is_tried_on_the_tokenizer() -> None:
    found = inspected(toy(special("<a>"), plain("<b>")), ["<a>", "<b>", "<img>"])
    assert found.enabled
    assert reasons(found)["<a>"] is None
    assert reasons(found)["<b>"] is None
    assert str(reasons(found)["<img>"]).startswith("encoded alone it gives")


# -- how it matches


@pytest.mark.parametrize(
    "added",
    [
        [special("<a>"), plain("<b>")],
        [special("<a>", rstrip=True), special("<b>", lstrip=True)],
        [special("<a>", single_word=True), special("x<a>")],
        [special("<|"), special("|>"), special("<|EOS|>")],
        [special("ab", normalized=True), special("bc")],
        [special("|x|"), special("x|y")],
        [special("a"), special("aa")],
    ],
)
def test_every_text_splits_behind_every_boundary(added: list[AddedToken]) -> None:
    """Its rule is leftmost-longest over all added tokens, whatever their flags."""
    tokenizer = toy(*added)
    backend = backend_for(giga(tokenizer))
    found = backend.inspect([token.content for token in added], trust_custom=False)
    scanner = Scanner((t.content, t.id, t.phase, t.is_eligible) for t in found.tokens)
    rng = random.Random(1)
    pieces = [token.content for token in added] * 3
    pieces += ["hello", "hello ", " ", "\n\n", "x", "|", "<", ">", "ab", "é", "\u3000"]
    n_cuts = 0
    for _ in range(400):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        whole = list(backend.encode_run(text))
        for end, index in scanner.boundaries(text):
            token = found.tokens[index]
            left = list(backend.encode_run(text[:end]))
            right = list(backend.encode_run(token.content + text[end:]))
            assert left[-1] == right[0] == token.id
            assert left + right[1:] == whole
            n_cuts += 1
    assert n_cuts > 400


# -- how it is called


def test_ids_stay_a_buffer() -> None:
    inner = giga(toy(special("<a>")))
    backend = backend_for(inner)
    ids = backend.encode_run("hello<a>")
    assert isinstance(ids, np.ndarray)
    assert ids.dtype == np.uint32
    assert list(ids) == list(inner.encode("hello<a>"))
    # It has no template: special tokens are never added.
    assert list(backend.encode_whole("hello<a>", True)) == list(ids)
    found = backend.inspect(["<a>"], trust_custom=False)
    assert (found.before, found.after) == ((), ())


def test_untrusted_parts_cannot_be_encoded() -> None:
    backend = backend_for(giga(toy(special("<a>"))))
    assert list(backend.encode_segment("<a>", True)) == list(backend.encode_run("<a>"))
    with pytest.raises(
        NotImplementedError, match="looks for its added tokens in every text"
    ):
        backend.encode_segment("<a>", False)


def test_its_own_errors_pass() -> None:
    backend = backend_for(giga(toy(special("<a>"))))
    with pytest.raises(TypeError, match="expected str or bytes"):
        backend.encode_run("<a>\ud800")


@pytest.mark.parametrize("family", data.families())
def test_real_tokens_are_boundaries(family: str) -> None:
    text = data.family_text(family)
    try:
        inner = gigatoken.Tokenizer.from_json(text)
    except RuntimeError:
        pytest.skip("gigatoken cannot load it")
    listed = special_tokens_of(text)
    found = backend_for(inner).inspect(listed, trust_custom=False)
    assert found.enabled
    assert [t.content for t in found.tokens if t.is_eligible] == listed


# -- through a wrapper


def test_a_conversation_is_encoded_turn_by_turn() -> None:
    tokenizer = toy(special("<|"), special("|>"), special("<|EOS|>", rstrip=True))
    inner = giga(tokenizer)
    cached: Any = CachedTokenizer(inner, special_tokens_of(tokenizer.to_str()))
    for n_turns in range(1, 12):
        text = "<|EOS|>\n hello<|foo|>" * n_turns
        for _ in range(2):
            assert list(cached.encode(text)) == inner.encode(text).tolist()
        assert cached.count(text) == len(inner.encode(text))
    stats = cached.cache_stats()
    assert stats.misses == 1
    assert stats.self_check_failures == 0
    texts = ["<|EOS|>hello", "foo", "<|EOS|>\n"]
    assert [list(ids) for ids in cached.encode_batch(texts)] == (
        inner.encode_batch_list(texts)
    )


def test_the_wrapper_asks_for_a_list() -> None:
    with pytest.raises(TypeError, match="special_tokens_of"):
        CachedTokenizer(giga(toy(special("<a>"))))


def test_a_batch_has_the_ids_of_its_texts() -> None:
    texts = ["hello <|a|>foo" * n + "<|b|>" * (n % 3) + "x" * n for n in range(40)]
    inner = giga(toy(special("<|a|>"), special("<|b|>")))
    cached: Any = CachedTokenizer(inner, ["<|a|>", "<|b|>"])
    one = [inner.encode(text).tolist() for text in texts]
    for _ in range(2):
        batch = cached.encode_batch(texts)
        assert [list(ids) for ids in batch] == one
    assert cached.cache_stats().hits
