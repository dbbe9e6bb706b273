"""Check accelerated tokenizers of transformers: the same results for every option."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import (
    AddedToken,
    Encoding,
    Tokenizer,
    decoders,
    pre_tokenizers,
    processors,
)

from tokcache import SharedTokenizerCache

from . import data
from .encodings import small_encoding
from .toys import plain, special, toy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

transformers = pytest.importorskip("transformers")
from tokcache.transformers import (  # noqa: E402 - needs transformers
    CachedEncoding,
    accelerate,
    cached_tokenizer,
    unaccelerate,
)

# One of each kind: byte-level, WordPiece, Metaspace, Unigram, and one whose file has
# truncation and padding on.
WANTED = (
    "qwen3",
    "bert_uncased",
    "roberta_base",
    "t5_small",
    "mistral_v3_metaspace",
    "minilm_trunc_pad",
)
FAMILIES = [f for f in WANTED if f in data.families()] or list(data.families())[:4]

TEMPLATE = (
    "{% for m in messages %}{{ bos_token or '' }}{{ m.role }}\n{{ m.content }}"
    "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant\n{% endif %}"
)

OPTIONS: list[dict[str, Any]] = [
    {},
    {"add_special_tokens": False},
    {"padding": True},
    {"padding": True, "padding_side": "left", "return_tensors": "np"},
    {"padding": "max_length", "max_length": 40, "truncation": True},
    {"padding": True, "pad_to_multiple_of": 8, "add_special_tokens": False},
    {"truncation": True, "max_length": 9},
    {"truncation": "only_first", "max_length": 9, "add_special_tokens": False},
    {"truncation": "only_second", "max_length": 9},
    {"truncation": True, "max_length": 1},
    {"max_length": 9},
    {"stride": 2},
    {
        "truncation": True,
        "max_length": 9,
        "stride": 3,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
        "padding": True,
    },
    {"return_offsets_mapping": True},
    {"return_special_tokens_mask": True, "return_length": True, "padding": True},
    {"return_token_type_ids": True, "return_attention_mask": False},
    {"split_special_tokens": True},
    {"no_such_option": 1},
]


def make(backend: Tokenizer) -> Any:
    """Make a tokenizer of transformers with some named special tokens."""
    added = [t.content for _, t in sorted(backend.get_added_tokens_decoder().items())]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=added[0],
        eos_token=added[-1],
        chat_template=TEMPLATE,
        model_max_length=100_000,
    )


@functools.lru_cache(maxsize=1)
def plain_tokenizer(family: str) -> Any:
    return make(data.load_family(family))


def small() -> Any:
    """Make a small tokenizer that begins prompts with a special token."""
    return make(toy(special("<s>"), special("<im>"), template="<s> $A"))


def texts_of(family: str) -> list[str]:
    """Return prompts that share prefixes, and texts that are hard in other ways."""
    prompts = [
        data.render(family, talk[: end + 1])
        for talk in data.conversations("own", 3)
        for end in (0, 2)
    ]
    added = data.load_family(family).get_added_tokens_decoder().values()
    marks = "".join(token.content for token in list(added)[:4])
    return [*prompts, "", " ", "hello", f"{marks} x{marks}", "Übung 中文 👩‍👩‍👧 \n\n"]


ENCODING = (
    "ids",
    "type_ids",
    "tokens",
    "offsets",
    "attention_mask",
    "special_tokens_mask",
    "word_ids",
    "sequence_ids",
    "n_sequences",
)


def facts(encoding: Any) -> tuple[Any, ...]:
    overflowing = [facts(each) for each in encoding.overflowing]
    return *(getattr(encoding, name) for name in ENCODING), overflowing, len(encoding)


def outcome(call: Callable[[], Any], *, deep: bool) -> Any:
    """Return all that a call answers, or how it fails."""
    try:
        found = call()
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is one too
        return type(error), str(error)
    if not isinstance(found, transformers.BatchEncoding):
        return comparable(found)
    return {name: comparable(value) for name, value in found.items()}, [
        facts(each) for each in found.encodings if deep
    ]


def comparable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    return value


def calls(texts: list[str], options: dict[str, Any]) -> Iterator[Callable[[Any], Any]]:
    """Yield the ways to call a tokenizer with some options."""
    for text in texts:
        yield lambda t, text=text: t(text, **options)  # type: ignore[misc]
    yield lambda t: t(texts, **options)
    yield lambda t: t(tuple(texts[:3]), **options)
    yield lambda t: t(texts[0], texts[1], **options)
    yield lambda t: t(texts[:3], texts[1:4], **options)
    yield lambda t: t(texts[0].split(), is_split_into_words=True, **options)
    yield lambda t: t.encode(texts[0], **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_option_has_the_same_results(family: str) -> None:
    """Cold, warm, with what other calls left switched on in the shared backend."""
    raw = plain_tokenizer(family)
    fast = accelerate(copy.deepcopy(raw))
    texts = texts_of(family)
    n_compared = 0
    for is_warm in (False, True):
        for options in OPTIONS:
            for call in calls(texts, options):
                got = outcome(lambda c=call: c(fast), deep=is_warm)  # type: ignore[misc]
                want = outcome(lambda c=call: c(raw), deep=is_warm)  # type: ignore[misc]
                assert got == want, options
                n_compared += 1
    assert n_compared > 400
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits > stats.misses or not cached_tokenizer(fast).explain().enabled


@pytest.mark.parametrize("family", FAMILIES)
def test_other_ways_to_encode(family: str) -> None:
    """Chat templates, tokens, and both sides of truncation and padding."""
    raw = copy.deepcopy(plain_tokenizer(family))
    fast = accelerate(copy.deepcopy(raw))
    talk = data.conversations("own", 1)[0]
    for side in ("left", "right"):
        for each in (raw, fast):
            each.truncation_side = each.padding_side = side
        for end in (*range(1, len(talk)), len(talk)):
            for options in ({}, {"max_length": 12, "truncation": True}):
                got, want = (
                    outcome(
                        lambda t=t, n=end, o=options: t.apply_chat_template(  # type: ignore[misc]
                            talk[:n], tokenize=True, add_generation_prompt=True, **o
                        ),
                        deep=True,
                    )
                    for t in (fast, raw)
                )
                assert got == want
        text = texts_of(family)[0]
        assert fast.tokenize(text) == raw.tokenize(text)
        for options in OPTIONS:
            got, want = (
                outcome(lambda t=t, o=options, x=text: t([x, "a"], **o), deep=True)  # type: ignore[misc]
                for t in (fast, raw)
            )
            assert got == want
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits or not cached_tokenizer(fast).explain().enabled


def test_a_length_without_truncation() -> None:
    """Version 5 truncates then, version 4 does not; the same is done here."""
    raw, fast = small(), accelerate(small())
    for _ in range(3):
        for options in ({"max_length": 3}, {}, {"max_length": 2, "truncation": True}):
            for text in ("<im>hello hello hello<im>", "hello hello hello"):
                assert fast.encode(text, **options) == raw.encode(text, **options)


def test_the_object_stays_what_it_is() -> None:
    """Servers check types, and give the backend to compiled code."""
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
    """Lengths, tokens and decoding, also after tokens were added."""
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


def _pickled(tokenizer: Any) -> Any:
    return pickle.loads(pickle.dumps(tokenizer))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled])
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
    assert type(_pickled(shared)("<im>hello")[0]) is Encoding


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
    """The template has it and so has the post-processor: two, with or without cache."""
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


class Around(transformers.PreTrainedTokenizer):  # type: ignore[misc, name-defined]
    """Wrap a tiktoken encoding as Kimi's own tokenizer does."""

    def __init__(self, **options: Any) -> None:
        self.model = small_encoding("<s>", "<e>")
        super().__init__(**options)

    @property
    def vocab_size(self) -> int:
        return int(self.model.n_vocab)

    def get_vocab(self) -> dict[str, int]:
        return {f"{i}": i for i in range(self.vocab_size)}

    def encode(self, text: str, **_: Any) -> list[int]:
        found: list[int] = []
        for start in range(0, len(text), 64):
            part = text[start : start + 64]
            found += self.model.encode(part, allowed_special="all")
        return found + self.model.encode("", disallowed_special=())

    def ordinary(self, text: str) -> list[int]:
        found: list[int] = self.model.encode_ordinary(text)
        return found


@pytest.mark.parametrize("copied", [lambda t: t, copy.copy, copy.deepcopy, _pickled])
def test_a_tokenizer_around_tiktoken(copied: Callable[[Any], Any]) -> None:
    raw = Around()
    fast = copied(accelerate(Around()))
    assert type(fast) is Around
    texts = ["<s>ab ba<e>", "<s>ab ba<e>aab", "", "ab", "<s>" * 50 + "a"]
    for text in texts * 3:
        assert fast.encode(text) == raw.encode(text)
        assert type(fast.encode(text)) is list
        assert fast.ordinary(text) == raw.ordinary(text)
        assert fast.model.decode(fast.encode(text)) == raw.model.decode(
            raw.encode(text)
        )
    assert fast.model.encode_batch(texts, allowed_special="all") == (
        raw.model.encode_batch(texts, allowed_special="all")
    )
    for each in (raw, fast):
        with pytest.raises(ValueError, match="disallowed special token"):
            each.model.encode("<s>")
    assert fast.vocab_size == raw.vocab_size
    assert cached_tokenizer(fast).cache_stats().hits
    unaccelerate(fast)
    assert type(fast.model) is type(raw.model)


def test_a_tokenizer_of_neither_kind() -> None:
    neither = Around()
    neither.__dict__["model"] = None
    with pytest.raises(TypeError, match=r"around a tiktoken\.Encoding"):
        accelerate(neither)
