"""Check options and changes of the inner tokenizer: nothing stale, nothing mixed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Encoding, normalizers, pre_tokenizers, processors

from tokcache import CachedTokenizer

from .checks import InnerCalls, assert_exact, assert_same, raw_ids
from .toys import plain, special, token_id, toy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer


def framed() -> Tokenizer:
    """Make a tokenizer that puts one special in front on request."""
    return toy(special("<s>"), special("<im>"), template="<s> $A")


def test_the_first_token_is_added_once_and_only_at_the_front() -> None:
    """A suffix that is encoded with the caller's flag gets one in the middle."""
    bos = token_id(framed(), "<s>")
    cached = CachedTokenizer(framed())
    for text in ("a<im>", "a<im>hello", "a<im>hello<im>foo", "a<im>hello"):
        ids = assert_same(cached, framed(), text, special=True)
        assert ids.index(bos) == 0
        assert ids.count(bos) == 1
    assert_exact(framed, ["a<im>"], "a<im>hello", stored=True, hit=True)


def test_special_tokens_at_both_ends() -> None:
    """What the post-processor puts after the ids is added once, at the end."""

    def build() -> Tokenizer:
        return toy(special("<s>"), special("</s>"), template="<s> $A </s>")

    assert_exact(build, ["a</s>"], "a</s>hello", stored=True, hit=True)
    assert_exact(build, ["a</s>"], "a</s>hello</s>", stored=True, hit=True)


def test_the_flag_for_special_tokens_is_part_of_the_question() -> None:
    """Entries keyed by the text alone give one flag's ids for the other."""
    raw = framed()
    for first in (True, False):
        cached = CachedTokenizer(framed())
        for i in range(20):
            assert_same(cached, raw, "a<im>hello", special=first ^ bool(i % 2))
            assert_same(cached, raw, "<im>", special=first ^ bool(i % 2))
            assert_same(cached, raw, "hello", special=first ^ bool(i % 2))


def test_both_flags_share_what_is_cached() -> None:
    """The ids between the ends are the same; they are stored once."""
    cached = CachedTokenizer(framed())
    cached.encode("a<im>hello", add_special_tokens=False)
    stats = cached.cache_stats()
    calls = InnerCalls(cached)
    assert_same(cached, framed(), "a<im>hello", special=True)
    assert not len(calls)
    assert cached.cache_stats().entries == stats.entries


def test_specials_that_are_switched_to_plain_text() -> None:
    """In that mode a cut at a special is wrong; switched back, it is right again."""
    raw = toy(special("<s>"), plain("<im>"))
    cached = CachedTokenizer(toy(special("<s>"), plain("<im>")))
    text = "<s>hello<im>foo"
    for mode in (False, True, False, True, True, False):
        raw.encode_special_tokens = mode
        cached.inner.encode_special_tokens = mode
        entries = cached.cache_stats().entries
        ids = assert_same(cached, raw, text)
        assert (ids[0] == raw.token_to_id("<s>")) is not mode
        assert_same(cached, raw, "<s>hello")
        if mode:
            assert cached.cache_stats().entries == entries


def _truncate_and_pad(tokenizer: Tokenizer) -> None:
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(pad_to_multiple_of=5)


LIMITS: list[tuple[str, Callable[[Tokenizer], None]]] = [
    ("truncate right", lambda t: t.enable_truncation(3)),
    ("truncate left", lambda t: t.enable_truncation(3, direction="left")),
    ("pad", lambda t: t.enable_padding(length=8)),
    ("both", _truncate_and_pad),
]


@pytest.mark.parametrize("switch", [s for _, s in LIMITS], ids=[n for n, _ in LIMITS])
@pytest.mark.parametrize("at_first", [True, False])
def test_truncation_and_padding(
    switch: Callable[[Tokenizer], None],
    at_first: bool,
) -> None:
    """Each segment by itself would be cut or padded; what is kept is neither."""
    raw = toy(special("<s>"), special("</s>"))
    inner = toy(special("<s>"), special("</s>"))
    texts = ["<s>hello</s><s>hello", "<s>hello</s>", "hello", "<s>foo</s><s>hello"]
    cached = CachedTokenizer(inner)
    if at_first:
        switch(inner)
        cached = CachedTokenizer(inner)
    else:
        for text in texts[:2]:
            assert_same(cached, raw, text)
        switch(inner)
    switch(raw)
    for text, flag in itertools.product(texts, (True, False)):
        assert_same(cached, raw, text, special=flag)
    assert cached.cache_stats().hits
    for tokenizer in (raw, inner):
        tokenizer.no_truncation()
        tokenizer.no_padding()
    for text, flag in itertools.product(texts * 2, (True, False)):
        assert_same(cached, raw, text, special=flag)
    assert cached.cache_stats().entries
    calls = InnerCalls(cached)
    assert_same(cached, raw, texts[0])
    assert not len(calls)


def assert_same_encoding(got: object, want: Encoding) -> None:
    """Compare everything that an Encoding has."""
    assert isinstance(got, Encoding)
    for name in ("ids", "type_ids", "tokens", "offsets", "attention_mask"):
        assert getattr(got, name) == getattr(want, name)


@pytest.mark.parametrize("flag", [True, False])
def test_a_pair_is_the_inner_tokenizers(flag: bool) -> None:
    """The answer is richer than ids: it is the inner tokenizer's own object."""
    cached = CachedTokenizer(framed())
    for text in ("<im>hello<im>foo", "hello", ""):
        for _ in range(2):
            assert_same(cached, framed(), text, special=flag)
            got = cached.encode(text, "foo<im>", add_special_tokens=flag)
            want = framed().encode(text, "foo<im>", add_special_tokens=flag)
            assert_same_encoding(got, want)
            got = cached.encode(text, pair="foo<im>", add_special_tokens=flag)
            assert_same_encoding(got, want)


@pytest.mark.parametrize("flag", [True, False])
def test_pretokenized_input_is_the_inner_tokenizers(
    flag: bool,
) -> None:
    """A list of words is not the text of the words."""
    cached = CachedTokenizer(framed())
    words: Any = ["<im>", "hello", "<im>hello"]
    for _ in range(2):
        assert_same(cached, framed(), "<im>hello<im>hello", special=flag)
        got: Any = cached.encode(words, is_pretokenized=True, add_special_tokens=flag)
        want = framed().encode(words, is_pretokenized=True, add_special_tokens=flag)
        assert_same_encoding(got, want)


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 3},
        {"truncation": True},
        {"padding": True},
        {"return_tensors": "pt"},
        {"text_pair": "a"},
        {"is_split_into_words": True},
        {"stride": 2},
    ],
)
def test_an_unknown_option_is_the_inner_tokenizers_affair(
    options: dict[str, Any],
) -> None:
    """The wrapper swallows no option and reads no meaning into one."""
    cached: Any = CachedTokenizer(framed())
    raw: Any = framed()
    for _ in range(2):
        with pytest.raises(TypeError) as want:
            raw.encode("<im>hello", **options)
        with pytest.raises(TypeError) as got:
            cached.encode("<im>hello", **options)
        assert next(iter(options)) in str(got.value)
        assert type(got.value) is type(want.value)
        assert_same(cached, raw, "<im>hello")


def test_a_batch_is_the_single_calls() -> None:
    """Each item has its own ids, in order, whatever is cached."""
    cached = CachedTokenizer(framed())
    texts = ["<im>hello", "", "foo", "<im>hello<im>", "<im>hello", "a<im>hello"]
    for flag in (True, False, True):
        got = cached.encode_batch(texts, add_special_tokens=flag)
        assert [ids.ids for ids in got] == [
            raw_ids(framed(), text, special=flag) for text in texts
        ]
    assert cached.encode_batch([]) == []


def test_a_batch_of_pairs_or_words_is_the_inner_tokenizers() -> None:
    """What is no list of single texts is answered as without the cache."""
    cached = CachedTokenizer(framed())
    pairs: Any = [("<im>hello", "foo"), ("a", "b")]
    words: Any = [["<im>", "hello"], ["foo"]]
    mixed: Any = ["<im>hello", ("<im>hello", "foo")]
    for _ in range(2):
        got: Any = cached.encode_batch(pairs)
        for one, want in zip(got, framed().encode_batch(pairs), strict=True):
            assert list(one.ids) == want.ids
        got = cached.encode_batch(words, is_pretokenized=True)
        expected = framed().encode_batch(words, is_pretokenized=True)
        for one, want in zip(got, expected, strict=True):
            assert list(one.ids) == want.ids
        got = cached.encode_batch(mixed)
        for one, want in zip(got, framed().encode_batch(mixed), strict=True):
            assert list(one.ids) == want.ids


def _add_through_wrapper(cached: Any, added: Any) -> None:
    cached.add_tokens([added])


def _add_special_through_wrapper(cached: Any, added: Any) -> None:
    cached.add_special_tokens([added])


def _add_behind_its_back(cached: Any, added: Any) -> None:
    cached.inner.add_tokens([added])
    cached.invalidate()  # such a change is not seen: the docs ask for this


ADD = [_add_through_wrapper, _add_special_through_wrapper, _add_behind_its_back]


@pytest.mark.parametrize("add", ADD)
def test_a_token_that_is_added_when_the_cache_is_warm(
    add: Callable[[Any, Any], None],
) -> None:
    """Cached ids of before are wrong after: none of them may come back."""
    cached = CachedTokenizer(toy(special("<s>")))
    raw = toy(special("<s>"))
    for text in ("<s>hello", "<s>hello<s>foo"):
        assert_same(cached, raw, text)
    add(cached, plain("ell"))
    raw.add_tokens([plain("ell")])
    assert raw.encode("<s>hello").tokens == ["<s>", "h", "ell", "o"]
    for _ in range(2):
        for text in ("<s>hello", "<s>hello<s>foo", "<s>hello ell", "ell", "hello"):
            assert_same(cached, raw, text)


@pytest.mark.parametrize("add", ADD)
def test_a_token_that_is_added_again_with_other_flags(
    add: Callable[[Any, Any], None],
) -> None:
    """The vocabulary is as large as before, but the white space is swallowed now."""
    cached = CachedTokenizer(toy(special("<s>")))
    raw = toy(special("<s>"))
    for text in ("<s>hello", "<s> hello"):
        assert_same(cached, raw, text)
    add(cached, special("<s>", rstrip=True))
    if add is _add_special_through_wrapper:
        raw.add_special_tokens([special("<s>", rstrip=True)])
    else:
        raw.add_tokens([special("<s>", rstrip=True)])
    assert raw_ids(raw, "<s> hello") == raw_ids(raw, "<s>hello")
    for _ in range(2):
        for text in ("<s> hello", "<s>hello", "<s> <s> foo"):
            assert_same(cached, raw, text)


def test_a_part_that_is_set_when_the_cache_is_warm() -> None:
    """Another normalizer, pre-tokenizer or post-processor: set through the wrapper."""
    cached: Any = CachedTokenizer(framed())
    raw = framed()
    parts = {
        "normalizer": normalizers.Replace("ll", "foo"),
        "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True),
        "post_processor": processors.TemplateProcessing(
            single="<im> $A <im>", special_tokens=[("<im>", raw.token_to_id("<im>"))]
        ),
    }
    for name, part in parts.items():
        for text in ("<im>hello", "hello<im>foo"):
            before = assert_same(cached, raw, text, special=True)
        setattr(cached, name, part)
        setattr(raw, name, part)
        assert raw_ids(raw, text, special=True) != before
        for text in ("<im>hello", "hello<im>foo"):
            assert_same(cached, raw, text, special=True)
            assert_same(cached, raw, text)


def test_random_merges_are_never_stored() -> None:
    """With dropout two encodes differ: there is no right answer to remember."""
    cached = CachedTokenizer(toy(special("<s>"), dropout=0.5))
    assert "dropout" in str(cached.explain().reason)
    seen = {tuple(cached.encode("<s>hello hello hello").ids) for _ in range(60)}
    assert len(seen) > 1
    stats = cached.cache_stats()
    assert (stats.entries, stats.hits, stats.misses, stats.memory_bytes) == (0,) * 4


def test_decoding_is_the_inner_tokenizers() -> None:
    """B47: also for ids that end within a character, with and without specials."""
    raw = toy(special("<s>"), special("</s>"))
    cached = CachedTokenizer(toy(special("<s>"), special("</s>")))
    ids = raw_ids(raw, "<s>né 😀 ก hello\u200d👩</s> 中")
    cached.encode("<s>né 😀 ก hello\u200d👩</s> 中")
    cuts = [ids[a:b] for a in range(len(ids)) for b in range(a, len(ids) + 1, 3)]
    for skip in (True, False):
        for part in cuts:
            want = raw.decode(part, skip_special_tokens=skip)
            assert cached.decode(part, skip_special_tokens=skip) == want
        want_all = raw.decode_batch(cuts, skip_special_tokens=skip)
        assert cached.decode_batch(cuts, skip_special_tokens=skip) == want_all
    encoded: Any = cached.encode("<s>hello")
    assert cached.decode(encoded) == raw.decode(encoded.ids) == "hello"
    assert cached.decode_batch([encoded, [0]]) == raw.decode_batch([encoded.ids, [0]])


def test_other_attributes_are_the_inner_tokenizers() -> None:
    """A wrapper that hides half of the tokenizer cannot take its place."""
    inner = toy(special("<s>"))
    cached: Any = CachedTokenizer(inner)
    assert cached.inner is inner
    assert cached.get_vocab_size() == inner.get_vocab_size()
    assert cached.token_to_id("<s>") == inner.token_to_id("<s>")
    assert cached.id_to_token(3) == inner.id_to_token(3)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = cached.no_such_thing
