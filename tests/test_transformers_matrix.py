"""Check that accelerated tokenizers have the same results for every option."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from . import data
from .hf_tokenizers import (
    assert_same,
    configuration,
    configured,
    facts,
    plain_tokenizer,
    small,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokenizers import Tokenizer

from tokcache.transformers import accelerate, cached_tokenizer

# One of each kind gets every option: byte-level, WordPiece, Metaspace, Unigram, and one
# whose file has truncation and padding on. The others get some.
EVERY_OPTION = (
    "qwen3",
    "bert_uncased",
    "roberta_base",
    "t5_small",
    "mistral_v3_metaspace",
    "minilm_trunc_pad",
)
# One of each class; loading the largest takes longer than all else here.
CONFIGURED = [
    family
    for family in (
        "qwen3",
        "deepseek_v4",
        "phi3_mini",
        "mixtral_8x22b",
        "clip",
        "t5_small",
        "roberta_base",
    )
    if family in data.families() and "tokenizer_config.json" in configuration(family)
]

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
    {"truncation": "longest_first", "max_length": 7, "return_length": True},
    {"truncation": "do_not_truncate", "max_length": 5},
    {"return_tensors": "np"},
    {"return_tensors": "pt"},
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


# A template that marks what the assistant said: its tokens are found by their offsets.
MARKED = (
    "{% for m in messages %}{{ eos_token }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}"
    "{% endif %}{% endfor %}"
)
CHAT_OPTIONS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": True},
    {"return_dict": True},
    {"return_dict": False},
    {"return_dict": True, "return_tensors": "np", "padding": True},
    {"max_length": 12, "truncation": True},
    {"max_length": 400, "padding": "max_length"},
    {"continue_final_message": True},
    {"tokenize": False},
    {"tokenizer_kwargs": {"split_special_tokens": True}},
    {"tokenizer_kwargs": {"return_offsets_mapping": True}, "return_dict": True},
    {
        "chat_template": MARKED,
        "return_dict": True,
        "return_assistant_tokens_mask": True,
    },
]


def calls(texts: list[str], options: dict[str, Any]) -> Iterator[Callable[[Any], Any]]:
    """Yield the ways to call a tokenizer with some options."""
    for text in texts:
        yield lambda t, text=text: t(text, **options)  # type: ignore[misc]
    yield lambda t: t(texts, **options)
    yield lambda t: t(tuple(texts[:3]), **options)
    yield lambda t: t(texts[0], texts[1], **options)
    yield lambda t: t(texts[:3], texts[1:4], **options)
    words = [text.split() for text in texts[:3]]
    yield lambda t: t(words[0], is_split_into_words=True, **options)
    yield lambda t: t(words, is_split_into_words=True, **options)
    yield lambda t: t(words[0], words[1], is_split_into_words=True, **options)
    yield lambda t: t(text_target=texts[0], **options)
    yield lambda t: t(texts[0], text_target=texts[1], **options)
    yield lambda t: t.encode(texts[0], **options)
    yield lambda t: t.encode(texts[0], texts[1], **options)
    # Gone in version 5: then both fail alike.
    yield lambda t: t.encode_plus(texts[0], **options)
    yield lambda t: t.batch_encode_plus(texts, **options)
    yield lambda t: t.batch_encode_plus(list(itertools.pairwise(texts)), **options)


def _called(given: Any, options: dict[str, Any], tokenizer: Any) -> Any:
    return tokenizer(given, **options)


def _templated(chat: Any, options: dict[str, Any], tokenizer: Any) -> Any:
    return tokenizer.apply_chat_template(chat, **options)


@pytest.mark.parametrize("family", data.families())
def test_every_option_has_the_same_results(family: str) -> None:
    """B17, B19: cold, warm, with what other calls left on in the shared backend."""
    raw = plain_tokenizer(family)
    fast = accelerate(copy.deepcopy(raw))
    texts = texts_of(family)
    step = 1 if family in EVERY_OPTION else 5
    n_compared = 0
    for is_warm in (False, True):
        for options in OPTIONS[::step]:
            for call in calls(texts, options):
                assert_same(raw, fast, call, deep=is_warm)
                n_compared += 1
    assert n_compared > 800 // step
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits or not cached_tokenizer(fast).explain().enabled


@pytest.mark.parametrize("family", [f for f in data.families() if f in EVERY_OPTION])
def test_other_ways_to_encode(family: str) -> None:
    """Chat templates, tokens, and both sides of truncation and padding."""
    raw = copy.deepcopy(plain_tokenizer(family))
    fast = accelerate(copy.deepcopy(raw))
    talk = data.conversations("own", 1)[0]
    for side in ("left", "right"):
        for each in (raw, fast):
            each.truncation_side = each.padding_side = side
        for end in range(1, len(talk) + 1):
            for options in CHAT_OPTIONS:
                for chat in (talk[:end], [talk[:1], talk[:end]]):
                    call = functools.partial(_templated, chat, options)
                    assert_same(raw, fast, call, deep=True)
        text = texts_of(family)[0]
        assert fast.tokenize(text) == raw.tokenize(text)
        for options in OPTIONS:
            call = functools.partial(_called, [text, "a"], options)
            assert_same(raw, fast, call, deep=True)
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits or not cached_tokenizer(fast).explain().enabled


def test_a_length_without_truncation() -> None:
    """Version 5 truncates then, version 4 does not; the same is done here."""
    raw, fast = small(), accelerate(small())
    for _ in range(3):
        for options in ({"max_length": 3}, {}, {"max_length": 2, "truncation": True}):
            for text in ("<im>hello hello hello<im>", "hello hello hello"):
                assert fast.encode(text, **options) == raw.encode(text, **options)


@pytest.mark.parametrize("family", CONFIGURED)
def test_tokenizers_as_they_are_loaded(family: str, tmp_path: Path) -> None:
    """Their own classes, special tokens and chat templates, from files."""
    raw = configured(family, tmp_path)
    fast = accelerate(configured(family, tmp_path))
    assert type(fast) is type(raw)
    talk = data.conversations("own", 1)[0]
    for turn in range(2):
        for end in range(1, len(talk) + 1):
            for options in CHAT_OPTIONS[: -1 if turn else None]:
                chat = functools.partial(_templated, talk[:end], options)
                assert_same(raw, fast, chat, deep=bool(turn))
        for call in calls(texts_of(family), {"return_offsets_mapping": True}):
            assert_same(raw, fast, call, deep=bool(turn))
        # In some classes this makes another post-processor.
        for each in (raw, fast):
            each.add_bos_token = each.add_eos_token = bool(turn)
    stats = cached_tokenizer(fast).cache_stats()
    assert stats.hits or not cached_tokenizer(fast).explain().enabled


LEFT_BEHIND: dict[str, Callable[[Tokenizer], object]] = {
    "truncation": lambda backend: backend.enable_truncation(2, stride=1),
    "padding": lambda backend: backend.enable_padding(length=9, direction="left"),
    "plain text": lambda backend: setattr(backend, "encode_special_tokens", True),
}


@pytest.mark.parametrize("switch", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_what_is_left_on_in_the_backend(switch: Callable[[Tokenizer], object]) -> None:
    """By a call, by another object that shares it, or by hand."""
    raw, fast = small(), accelerate(small())
    texts = ["<im>hello hello<im>hello", "hello", "<s><im>"]
    for _ in range(2):
        for options in OPTIONS:
            for call in calls(texts, options):
                for each in (raw, fast):
                    switch(each.backend_tokenizer)
                assert_same(raw, fast, call, deep=True)
                for each in (raw, fast):
                    switch(each.backend_tokenizer)
                assert_same(
                    raw,
                    fast,
                    lambda t: list(map(facts, t.backend_tokenizer.encode_batch(texts))),
                    deep=True,
                )
    assert cached_tokenizer(fast).cache_stats().hits
