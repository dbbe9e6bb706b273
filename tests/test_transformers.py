"""Check that an accelerated tokenizer of transformers stays what it is."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Encoding, Tokenizer, decoders, pre_tokenizers, processors

from .hf_tokenizers import facts, pickled, small
from .toys import plain, special, toy

if TYPE_CHECKING:
    from collections.abc import Callable

from tokcache.transformers import (
    CachedEncoding,
    accelerate,
    cached_tokenizer,
    unaccelerate,
)


def test_the_object_stays_what_it_is() -> None:
    """B44: servers check types, and give the backend to compiled code."""
    raw = small()
    backend, kind = raw._tokenizer, type(raw)
    fast = accelerate(raw)
    assert fast is raw
    assert type(fast) is kind
    assert fast.backend_tokenizer is backend
    assert type(fast.backend_tokenizer) is Tokenizer
    if hasattr(decoders, "DecodeStream"):  # not in the oldest versions
        stream = decoders.DecodeStream(skip_special_tokens=False)
        [first] = fast.encode("foo", add_special_tokens=False)
        assert stream.step(fast.backend_tokenizer, first) == "foo"


def test_what_is_not_encoding_is_untouched() -> None:
    """B44: lengths, tokens and decoding, also after tokens were added."""
    raw, fast = small(), accelerate(small())
    for is_new in (1, 0):
        assert len(fast) == len(raw)
        assert fast.vocab_size == raw.vocab_size
        assert fast.get_vocab() == raw.get_vocab()
        assert fast.all_special_ids == raw.all_special_ids
        assert fast.get_added_vocab() == raw.get_added_vocab()
        ids = fast.encode("<im>hello ell<im>")
        assert ids == raw.encode("<im>hello ell<im>")
        assert fast.decode(ids) == raw.decode(ids)
        assert fast.batch_decode([ids]) == raw.batch_decode([ids])
        assert fast.convert_ids_to_tokens(ids) == raw.convert_ids_to_tokens(ids)
        tokens = raw.convert_ids_to_tokens(ids)
        assert fast.convert_tokens_to_ids(tokens) == ids
        assert fast.convert_tokens_to_string(tokens) == raw.convert_tokens_to_string(
            tokens
        )
        for each in (raw, fast):
            assert each.add_tokens(["ell"]) == is_new


@pytest.mark.parametrize(
    "options",
    [
        {"add_special_tokens": None},
        {"add_special_tokens": 1},
        {"is_split_into_words": None},
        {"is_split_into_words": 0},
    ],
    ids=str,
)
def test_a_flag_that_is_no_bool_is_the_same_error(options: dict[str, Any]) -> None:
    """Cold and warm, of one text and of several."""

    def outcome(tokenizer: Any, text: str | list[str]) -> object:
        try:
            return tokenizer(text, **options)["input_ids"]
        except TypeError as error:
            return str(error)

    raw, fast = small(), accelerate(small())
    texts = ["<im>hello<im>", "foo"]
    fast(texts)
    for text in (texts[0], texts, "<im>foo<im>"):
        assert outcome(fast, text) == outcome(raw, text)


def test_what_is_not_asked_for_is_not_computed() -> None:
    """Ids and masks of a cached text need no call of the tokenizer."""
    fast = accelerate(small())
    fast("<im>hello<im>")
    [encoding] = fast("<im>hello<im>", return_special_tokens_mask=True).encodings
    assert type(encoding) is CachedEncoding
    assert isinstance(encoding, Encoding)
    assert encoding._encoding is None
    assert encoding.offsets == small()("<im>hello<im>")[0].offsets
    assert type(encoding._encoding) is Encoding
    assert encoding.ids == encoding._encoding.ids


def test_what_is_computed_late_has_the_settings_of_its_call() -> None:
    """By then the backend has other ones, and even other tokens."""
    raw, fast = small(), accelerate(small())
    options = {"padding": "max_length", "max_length": 6, "truncation": True}
    texts = ["<im>hello", "<im>hello hello hello hello"]
    want, got = raw(texts, **options), fast(texts, **options)
    fast("hello", padding=False)
    fast.add_tokens(["ell"])
    assert [facts(e) for e in got.encodings] == [facts(e) for e in want.encodings]


def test_an_encoding_is_pickled_and_padded_as_one() -> None:
    """What leaves the process, or is changed, is the tokenizer's own encoding."""
    raw, fast = small(), accelerate(small())
    got, want = fast("<im>hello"), raw("<im>hello")
    made = pickle.loads(pickle.dumps(got))  # noqa: S301 - our own bytes
    assert type(made[0]) is Encoding
    assert facts(made[0]) == facts(want[0])
    assert facts(copy.deepcopy(got)[0]) == facts(want[0])
    for each in (got, want):
        each[0].pad(9, pad_id=3)
        each[0].truncate(7)
    assert facts(got[0]) == facts(want[0])
    assert repr(got[0]) == repr(want[0])


def test_unaccelerate_restores_all() -> None:
    """Not a trace is left on the tokenizer or on its backend."""
    raw = small()
    fields = set(vars(raw))
    accelerate(accelerate(raw))("<im>hello")
    assert unaccelerate(unaccelerate(raw)) is raw
    assert set(vars(raw)) == fields
    assert not vars(raw._tokenizer)
    assert type(raw("<im>hello")[0]) is Encoding
    shared = copy.copy(accelerate(raw))
    unaccelerate(raw)
    assert type(pickled(shared)("<im>hello")[0]) is Encoding


CHANGES: dict[str, Callable[[Any], object]] = {
    "a token": lambda t: t.add_tokens([plain("ell")]),
    "a special token": lambda t: t.add_special_tokens({"cls_token": "hello"}),
    "a token on the backend": lambda t: t.backend_tokenizer.add_tokens(["ell"]),
    "a pre-tokenizer": lambda t: setattr(
        t.backend_tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel()
    ),
    "a post-processor of as many ids": lambda t: setattr(
        t.backend_tokenizer,
        "post_processor",
        processors.TemplateProcessing(
            single="<im> $A:1", special_tokens=[("<im>", t.vocab["<im>"])]
        ),
    ),
    "a type id that is no rule": lambda t: setattr(
        t.backend_tokenizer,
        "post_processor",
        processors.TemplateProcessing(
            single="$A:1 <im> $A", special_tokens=[("<im>", t.vocab["<im>"])]
        ),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_changes_are_noticed(change: Callable[[Any], object]) -> None:
    """A prompt that is cached whole asks the tokenizer nothing, and still is right."""
    raw, fast = small(), accelerate(small())
    texts = ["<im>hello<im>", "hello<im> hello"]
    for _ in range(2):
        assert dict(fast(texts)) == dict(raw(texts))
    before = cached_tokenizer(fast).cache_stats().hits
    change(raw)
    change(fast)
    for _ in range(3):
        got, want = fast(texts, padding=True), raw(texts, padding=True)
        assert dict(got) == dict(want)
        assert [facts(e) for e in got.encodings] == [facts(e) for e in want.encodings]
    assert cached_tokenizer(fast).cache_stats().hits >= before


def test_a_prompt_that_writes_its_first_token_itself() -> None:
    """B35: the template has it, so has the post-processor: two, cached or not."""
    raw, fast = small(), accelerate(small())
    first = raw.convert_tokens_to_ids("<s>")
    for text in ("<s>a", "<s>a<im>hello", "<s>a"):
        assert fast(text)["input_ids"] == raw(text)["input_ids"]
        assert fast(text)["input_ids"][:2] == [first, first]


def test_settings_are_those_of_a_cached_tokenizer() -> None:
    """What it refuses is refused, and then nothing is changed."""
    raw = small()
    with pytest.raises(ValueError, match="max_memory_bytes"):
        accelerate(raw, max_memory_bytes=-1)
    assert not vars(raw._tokenizer)
    off = accelerate(raw, special_tokens=[])
    assert dict(off("<im>hello")) == dict(small()("<im>hello"))
    assert type(off("<im>hello")[0]) is Encoding
    assert cached_tokenizer(off).cache_stats().entries == 0


@pytest.mark.parametrize("what", [object(), toy(special("<s>"))])
def test_what_is_no_fast_tokenizer(what: Any) -> None:
    for call in (accelerate, unaccelerate, cached_tokenizer):
        with pytest.raises(TypeError, match="a fast tokenizer of transformers"):
            call(what)
