# ruff: noqa: RUF001 - real tokens have characters that look alike
"""Check what is measured on a ``tokenizers.Tokenizer``, small ones and real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import processors

from tokcache.backends.added_tokens import NOT_SHOWN, OVERLAPS, lists_are_true
from tokcache.backends.tokenizers import NONE_LEFT, _try_alone
from tokcache.eligibility import TokenVerdict

from . import data
from .checks import raw_ids
from .inspection import IS_UNKNOWN, eligible, inspected, reasons
from .toys import plain, special, token_id, toy

if TYPE_CHECKING:
    from tokenizers.processors import PostProcessor

# -- what a token gives alone


def template(single: str) -> PostProcessor:
    used = [(f"<{i}>", i) for i in range(4) if f"<{i}>" in single.split()]
    return processors.TemplateProcessing(single=single, special_tokens=used)


def sequence(*singles: str) -> PostProcessor:
    return processors.Sequence([processors.ByteLevel(), *map(template, singles)])


# The library panics where a template of a sequence gets more than two pieces.
ALONE: dict[str, PostProcessor] = {
    "encoded alone it gives the ids [268, 268], not its own id 268": template("$A $A"),
    "encoded alone it gives the ids [], not its own id 268": template("<1> <2>"),
    "it cannot be encoded alone: not yet implemented": sequence("$A $A $A", "$A"),
}


@pytest.mark.parametrize("reason", ALONE)
def test_a_post_processor_that_changes_texts_leaves_no_boundary(reason: str) -> None:
    tokenizer = toy(special("<s>"))
    tokenizer.post_processor = ALONE[reason]
    assert token_id(tokenizer, "<s>") == 268
    found = inspected(tokenizer)
    if "not yet implemented" in reason and not lists_are_true():
        assert found.reason == NOT_SHOWN.format("no text was found to do it in")
        return
    assert (found.enabled, found.reason) == (False, NONE_LEFT)
    assert reasons(found) == {"<s>": reason}


def test_one_token_of_each_class_is_tried_and_the_next_after_a_failure() -> None:
    tokenizer = toy(special("<s>"))
    number = token_id(tokenizer, "<s>")
    verdicts = (
        TokenVerdict("hello", 5, 1, None, "special"),  # no added token: it fails
        TokenVerdict("refused", 6, 1, "for a reason", "special"),
        TokenVerdict("<s>", number, 1, None, "special"),
        TokenVerdict("foo", 7, 1, None, "special"),  # its class has passed
        TokenVerdict("foo foo", 8, 2, None, "special"),
        TokenVerdict("x", 9, 1, None, "lstrip"),
    )
    tried = {each.content: each.reason for each in _try_alone(tokenizer, verdicts)}
    assert "not its own id 5" in str(tried["hello"])
    assert tried["refused"] == "for a reason"
    assert tried["<s>"] is tried["foo"] is None
    assert "not its own id 8" in str(tried["foo foo"])
    assert "not its own id 9" in str(tried["x"])


# -- what is put around a text

PAIR = (("<2>", 2), ("<1>", 1))  # what follows the text, what precedes it
TWO_IDS: Any = {"id": "X", "ids": [3, 1], "tokens": ["<3>", "<1>"]}
BERT, ROBERTA = processors.BertProcessing(*PAIR), processors.RobertaProcessing(*PAIR)
TWICE = processors.TemplateProcessing(single="X $A", special_tokens=[TWO_IDS])
Ids = tuple[int, ...]
FRAMES: dict[str, tuple[PostProcessor, Ids, Ids]] = {
    "the text alone": (template("$A"), (), ()),
    "before": (template("<1> $A"), (1,), ()),
    "after": (template("$A <2>"), (), (2,)),
    "several": (template("<1> <1> $A <2> <3>"), (1, 1), (2, 3)),
    "one with two ids": (TWICE, (3, 1), ()),
    "Roberta": (ROBERTA, (1,), (2,)),
    "Bert": (BERT, (1,), (2,)),
    "an empty sequence": (processors.Sequence([]), (), ()),
    "byte-level in one": (sequence(), (), ()),
    "a template in one": (sequence("<1> $A <2>"), (1,), (2,)),
    "Bert and another": (processors.Sequence([BERT, template("<3> $A")]), (3, 1), (2,)),
    # The second one gets a pair, for which it has no ids.
    "one ignored": (sequence("<1> $A", "$A <2>"), (1,), ()),
}


@pytest.mark.parametrize("name", FRAMES)
def test_what_a_post_processor_puts_around_is_measured(name: str) -> None:
    tokenizer = toy(special("<s>"))
    tokenizer.post_processor, before, after = FRAMES[name]
    found = inspected(tokenizer)
    assert found.enabled
    assert found.affix_reason is None
    assert (found.before, found.after) == (before, after)
    for text in ("hello foo", "a<s> hello"):
        bare = raw_ids(tokenizer, text)
        assert raw_ids(tokenizer, text, special=True) == [*before, *bare, *after]


NO_FRAMES: dict[str, PostProcessor] = {
    "the post-processor does not put fixed ids around the text": template("$A <1> $A"),
    "no text was found to measure the post-processor with": template("<1>"),
    "encoding with it fails: not yet implemented": sequence("<1> $A <2>", "$A"),
}


@pytest.mark.parametrize("reason", NO_FRAMES)
def test_a_post_processor_without_fixed_ids_is_not_cached(reason: str) -> None:
    tokenizer = toy(special("<s>"))
    for processor in (NO_FRAMES[reason], processors.Sequence([NO_FRAMES[reason]])):
        tokenizer.post_processor = processor
        found = inspected(tokenizer)
        assert (found.before, found.after) == (None, None)
        assert found.affix_reason == reason


# -- many tokens


def test_ten_thousand_added_tokens() -> None:
    added = [special(f"<|reserved_{i}|>") for i in range(5_000)]
    added += [plain(f"<extra_{i}>", normalized=True) for i in range(4_998)]
    added += [special("<|reserved_49"), special("49|>")]
    tokenizer = toy(*added)
    found = inspected(tokenizer)
    assert found.enabled
    assert len(found.tokens) == 10_000
    assert found.unscanned == ()
    refused = {name: why for name, why in reasons(found).items() if why}
    assert refused.pop("<|reserved_49") == (
        "the longer token '<|reserved_49|>' goes on after it"
    )
    # Three that overlap, of which one always goes first, do not show about the others.
    doubts = set() if lists_are_true() else {OVERLAPS}
    assert set(refused.values()) == doubts
    assert all("49|>" in name or "<|reserved_49" in name for name in refused)


# -- real tokenizers

IS_SHARED = "bert_uncased" in data.families()

# family -> some boundary tokens, and behind a slash the unknown token
BOUNDARIES = {
    "bert_uncased": "[PAD] [CLS] [SEP] [MASK] / [UNK]",
    "claude_legacy": "<EOT> <META>",
    "deepseek_r1": "<｜User｜> <｜Assistant｜> <｜end▁of▁sentence｜>",
    "deepseek_v4": "<｜User｜> <｜Assistant｜> <｜begin▁of▁sentence｜>",
    "gpt_oss": "<|start|> <|message|> <|end|> <|channel|> <|return|>",
    "glm_4_7_flash": "<|user|> <|assistant|> [gMASK] <sop>",
    "minilm_trunc_pad": "[CLS] [SEP] / [UNK]",
    "mistral_nemo": "<s> </s> [INST] [/INST]",
    "mistral_v3_metaspace": "<s> </s> [INST] [/INST] / <unk>",
    "mixtral_8x22b": "<s> </s> / <unk>",
    "phi2": "<|endoftext|>",
    "phi3_mini": "<s> <|user|> <|assistant|> <|end|> / <unk>",
    "qwen3": "<|im_start|> <|im_end|> <tool_call> <think>",
    "roberta_base": "<s> </s> <pad> <mask>",
    "t5_small": "<pad> </s> <extra_id_0> <extra_id_99> / <unk>",
}


@pytest.mark.parametrize("family", data.families())
def test_the_boundary_tokens_of_a_real_tokenizer(family: str) -> None:
    found = inspected(data.load_family(family))
    names = eligible(found)
    if family == "clip":
        assert (names, found.enabled, found.reason) == ([], False, NONE_LEFT)
        assert reasons(found)["<|endoftext|>"] == IS_UNKNOWN
        return
    assert found.enabled
    assert names
    assert found.affix_reason is None
    if IS_SHARED:
        expected, _, unknown = BOUNDARIES.get(family, "").partition(" / ")
        assert set(expected.split()) <= set(names)
        refused = {name for name, why in reasons(found).items() if why == IS_UNKNOWN}
        assert refused == set(unknown.split())


@pytest.mark.skipif(not IS_SHARED, reason="needs the shared tokenizers")
def test_what_is_special_about_some_real_tokenizers() -> None:
    phi2 = inspected(data.load_family("phi2"))
    refused = {each: why for each, why in reasons(phi2).items() if why}
    assert len(refused) > 30
    assert set(refused.values()) == {"it is white space alone"}
    assert eligible(phi2) == ["<|endoftext|>"]
    # Role markers need not be special, and may be of phase 2.
    deepseek = inspected(data.load_family("deepseek_v4"))
    [flags] = [each.flags for each in deepseek.tokens if each.content == "<｜User｜>"]
    assert flags == "normalized"
    # A token may strip the white space before it.
    roberta = inspected(data.load_family("roberta_base"))
    [mask] = [each for each in roberta.tokens if each.content == "<mask>"]
    assert mask.is_eligible
    assert "lstrip" in mask.flags
