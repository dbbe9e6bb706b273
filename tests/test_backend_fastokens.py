# ruff: noqa: RUF001 - real tokens have characters that look alike
"""Check what the cache makes of a ``fastokens.Tokenizer``, against itself.

Its ids need not be those of ``tokenizers``; they are where both load a file.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import fastokens
import pytest
from tokenizers import Tokenizer, normalizers

from tokcache import CachedTokenizer, special_tokens_of
from tokcache._scan import Scanner
from tokcache.backends import backend_for
from tokcache.backends.fastokens import LARGE, VOUCH, FastokensBackend

from . import data
from .fuzz.random_tokenizer import random_text, random_tokenizer
from .inspection import reasons
from .toys import plain, special, toy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenizers.normalizers import Normalizer

    from tokcache.eligibility import Eligibility


def fast(tokenizer: Tokenizer) -> fastokens.Tokenizer:
    """Load what ``tokenizers`` has built."""
    return fastokens.Tokenizer.from_json_str(tokenizer.to_str())


def inspected(
    inner: fastokens.Tokenizer, special_tokens: Sequence[str] | None = None
) -> Eligibility:
    """Inspect a tokenizer with no list, unless one is given."""
    return FastokensBackend(inner).inspect(special_tokens)


def loaded(seeds: range) -> Iterator[tuple[random.Random, Tokenizer, Any, Any]]:
    """Draw random tokenizers, and yield those that fastokens can load."""
    for seed in seeds:
        rng = random.Random(seed)
        tokenizer, fragments = random_tokenizer(rng)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        try:
            inner = fast(tokenizer)
        except ValueError:
            continue
        yield rng, tokenizer, inner, fragments


def test_tokens_are_read_from_the_live_object() -> None:
    inner = fast(toy(special("<a>"), plain("<b>", rstrip=True)))
    assert backend_for(inner).name == "fastokens"
    found = inspected(inner)
    assert found.enabled
    assert reasons(found) == {"<a>": None, "<b>": None}
    inner.add_tokens([special("<c>", single_word=True)])
    assert "single_word" in str(reasons(inspected(inner))["<c>"])


def test_a_list_restricts_and_must_be_of_added_tokens() -> None:
    inner = fast(toy(special("<a>"), special("<b>")))
    assert reasons(inspected(inner, ["<a>"])) == {
        "<a>": None,
        "<b>": "it is not in special_tokens",
    }
    assert inspected(inner, []).reason == "special_tokens is empty"
    with pytest.raises(ValueError, match="'<img>'"):
        inspected(inner, ["<img>"])


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()])
def test_normalized_tokens_need_a_vouch_that_there_is_no_normalizer(
    normalizer: Normalizer | None,
) -> None:
    """The object does not tell; its ``tokenizer.json`` does."""
    tokenizer = toy(
        special("<a>"), special("ze", normalized=True), normalizer=normalizer
    )
    assert reasons(inspected(fast(tokenizer))) == {"<a>": None, "ze": VOUCH}
    listed = special_tokens_of(tokenizer.to_str())
    assert listed == (["<a>", "ze"] if normalizer is None else ["<a>"])
    found = inspected(fast(tokenizer), listed)
    assert [t.content for t in found.tokens if t.is_eligible] == listed


def test_tokens_that_overlap_one_of_the_other_phase_are_refused() -> None:
    """Which phase goes first can depend on what stands right of both."""
    tokenizer = toy(
        special("ab", normalized=True), special("bc"), special("c|"), special("<a>")
    )
    for listed in (["ab", "bc", "c|", "<a>"], None):
        found = inspected(fast(tokenizer), listed)
        assert [t.content for t in found.tokens if t.is_eligible] == ["<a>"]
        assert reasons(found)["bc"] == (
            "it can overlap 'ab', and either of them may be looked for first"
        )
        # Whether it is taken depends on that one.
        assert str(reasons(found)["c|"]).startswith("it can overlap 'bc'")


@pytest.mark.parametrize("has_list", [False, True])
def test_every_text_splits_behind_every_boundary(has_list: bool) -> None:
    """Over random tokenizers with all flags, normalizers and overlaps."""
    n_cuts = 0
    for rng, tokenizer, inner, fragments in loaded(range(400)):
        listed = special_tokens_of(tokenizer.to_str()) if has_list else None
        # Long texts are not drawn here, so none need be tried.
        backend = backend_for(inner, max_chars=1000)
        found = backend.inspect(listed, trust_custom=False)
        if not found.enabled:
            continue
        scanner = Scanner(
            (t.content, t.id, t.phase, t.is_eligible) for t in found.tokens
        )
        for _ in range(8):
            text = random_text(rng, fragments)
            try:
                whole = list(backend.encode_run(text))
            except Exception:  # noqa: BLE001, S112 - a character that it does not know
                continue
            for end, index in scanner.boundaries(text):
                token = found.tokens[index]
                left = list(backend.encode_run(text[:end]))
                right = list(backend.encode_run(token.content + text[end:]))
                if left[-1:] == [token.id] == right[:1]:  # the self-check
                    n_cuts += 1
                    assert left + right[1:] == whole, (text, token)
    assert n_cuts > 1000


def test_special_tokens_are_added_where_its_template_says() -> None:
    inner = fast(toy(special("<s>"), special("</s>"), template="<s> $A </s>"))
    backend = FastokensBackend(inner)
    found = backend.inspect(None)
    start, end = (inner.token_to_id(each) for each in ("<s>", "</s>"))
    assert (found.before, found.after) == ((start,), (end,))
    assert list(backend.encode_whole("hello", True)) == inner.encode("hello", True).ids
    assert list(backend.encode_whole("hello", False)) == inner.encode("hello").ids
    assert not backend.adds_special_tokens  # nor does its encode, if it is not told


def test_truncation_and_padding_are_seen_at_every_call() -> None:
    inner = fast(toy(special("<s>")))
    backend = backend_for(inner)
    assert backend.bypass_reason() is None
    inner.enable_truncation(3)
    assert backend.bypass_reason() == "truncation is on"
    long = "hello <s>" * LARGE
    assert list(backend.encode_whole(long, False)) == inner.encode(long).ids
    inner.no_truncation()
    inner.enable_padding(length=8)
    assert backend.bypass_reason() == "padding is on"
    assert len(backend.encode_whole("hello", False)) == 8
    found = backend.inspect(None, trust_custom=False)
    assert found.enabled
    assert found.before is None
    assert "padding was on" in str(found.affix_reason)
    inner.no_padding()
    assert backend.bypass_reason() is None
    assert backend.inspect(None, trust_custom=False).before == ()


def test_long_runs_have_the_ids_of_the_whole() -> None:
    """From some length on ids are taken as a buffer."""
    inner = fast(toy(special("<s>")))
    backend = backend_for(inner)
    for n_words in (1, LARGE // 9, LARGE):
        text = "hello <s>" * n_words
        assert list(backend.encode_run(text)) == inner.encode(text).ids


def test_parts_of_a_segment_list_are_trusted_or_plain_text() -> None:
    inner = fast(toy(special("<s>"), plain("<t>")))
    backend = backend_for(inner)
    text = "<s>hello<t>"
    for allow_special in (True, False):
        assert list(backend.encode_segment(text, allow_special)) == (
            inner.encode_segments([(text, allow_special)]).ids
        )


def test_its_own_errors_pass() -> None:
    backend = backend_for(fast(toy(special("<s>"))))
    with pytest.raises(UnicodeEncodeError):
        backend.encode_run("<s>\ud800")


def test_options_are_its_own() -> None:
    backend = backend_for(fast(toy(special("<s>"))))
    assert backend.with_options({}) is backend
    assert backend.with_options({"split_special_tokens": True}) is None


@pytest.mark.parametrize("family", data.families())
def test_real_tokens_are_boundaries(family: str) -> None:
    text = data.family_text(family)
    try:
        inner = fastokens.Tokenizer.from_json_str(text)
    except ValueError:
        pytest.skip("fastokens cannot load it")
    listed = special_tokens_of(text)
    assert set(listed) <= {token["content"] for token in inner.added_tokens()}
    found = inspected(inner, listed)
    assert found.enabled
    refused = {token.content for token in found.tokens} - {
        token.content for token in found.tokens if token.is_eligible
    }
    overlap = {"<｜/table>｜", "｜DSML｜"} if family == "deepseek_v4" else set()
    assert refused & set(listed) == overlap & set(listed)


# -- through a wrapper


def test_a_conversation_is_encoded_turn_by_turn() -> None:
    inner = fast(toy(special("<s>"), special("<e>", rstrip=True), template="<s> $A"))
    cached = CachedTokenizer(inner)
    for n_turns in range(1, 12):
        text = "<e>\n hello foo" * n_turns
        flags: list[dict[str, Any]]
        flags = [{}, {"add_special_tokens": True}, {"add_special_tokens": False}]
        for flag in flags:
            assert cached.encode(text, **flag) == inner.encode(text, **flag).ids
            assert cached.count(text, **flag) == len(inner.encode(text, **flag))
    stats = cached.cache_stats()
    assert stats.misses == 1
    assert stats.self_check_failures == 0


def test_changes_are_noticed_and_nothing_is_stale() -> None:
    inner = fast(toy(special("<s>")))
    cached = CachedTokenizer(inner)
    text = "<s>hello<s>foo"

    def check() -> None:
        for _ in range(2):
            assert cached.encode(text) == inner.encode(text).ids
            assert cached.encode(text, split_special_tokens=True).ids == (
                inner.encode(text, split_special_tokens=True).ids
            )

    check()
    inner.enable_truncation(3)
    check()
    cached.enable_padding(length=9)
    check()
    inner.no_truncation()
    cached.no_padding()
    check()
    cached.add_tokens([plain("ell")])
    check()
    cached.add_tokens([special("<s>", rstrip=True)])
    text = "<s> hello"
    check()
    inner.add_tokens([plain("oo")])  # behind the wrapper's back, before a new text
    text = "<s>foo<s>hello"
    check()
    assert cached.cache_stats().hits


def test_segments_are_its_own() -> None:
    inner = fast(toy(special("<s>")))
    cached = CachedTokenizer(inner)
    parts = [("<s>", True), ("<s>hello", False)]
    assert cached.encode_segments(parts) == inner.encode_segments(parts).ids
    assert cached.encode_segments(parts) != cached.encode("<s><s>hello")


def test_a_batch_has_the_ids_of_its_texts() -> None:
    texts = ["hello <|a|>foo" * n + "<|b|>" * (n % 3) + "x" * n for n in range(40)]
    inner = fast(toy(special("<|a|>"), special("<|b|>"), template="<|a|> $A"))
    cached: Any = CachedTokenizer(inner)
    one = [inner.encode(text).ids for text in texts]
    for _ in range(2):
        batch = cached.encode_batch(texts)
        assert [list(ids) for ids in batch] == one
    assert cached.cache_stats().hits
