"""Check what is read and measured of a ``tokenizers.Tokenizer``.

The rules themselves are tested elsewhere; here each fact that they need must be found
on the live object, whatever way it is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from tokcache.backends import backend_for
from tokcache.backends.added_tokens import (
    NOT_AGAIN,
    NOT_SHOWN,
    UNKNOWN_PHASE,
    lists_are_true,
)
from tokcache.backends.probing import UNLIKELY
from tokcache.backends.tokenizers import LARGE, NONE_LEFT, TokenizersBackend

from .checks import raw_ids
from .inspection import IS_UNKNOWN, eligible, inspected, reasons
from .toys import plain, special, toy

if TYPE_CHECKING:
    from tokenizers.models import Model
    from tokenizers.normalizers import Normalizer


HAS_ALPHA = hasattr(models.Unigram(), "alpha")


def unigram(**options: Any) -> Tokenizer:
    """Make a Unigram tokenizer with one boundary token."""
    model = models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0, **options)
    tokenizer = Tokenizer(model)
    tokenizer.add_tokens([special("<s>")])
    return tokenizer


class PythonPart:
    """Do nothing, in any place."""

    def pre_tokenize(self, _: object) -> None:
        """Leave the text as it is."""

    normalize = pre_tokenize


def with_python_part(place: str, *, nested: bool) -> Tokenizer:
    """Make a tokenizer with a part made in Python, within a sequence if nested."""
    tokenizer = toy(special("<s>"), plain("<n>", normalized=True))
    part: Any
    nest: Any
    if place == "normalizer":
        part = normalizers.Normalizer.custom(PythonPart())
        nest = normalizers.Sequence([normalizers.Sequence([]), part])
    else:
        part = pre_tokenizers.PreTokenizer.custom(PythonPart())
        nest = pre_tokenizers.Sequence([pre_tokenizers.Digits(), part])
    setattr(tokenizer, place, nest if nested else part)
    return tokenizer


def test_a_tokenizer_of_another_kind_is_a_type_error() -> None:
    assert backend_for(toy()).name == "tokenizers"
    with pytest.raises(TypeError, match=r"with encode and decode, got builtins\.str$"):
        backend_for("a name")


# -- the whole cache is off

OFF: dict[str, Callable[[], Tokenizer]] = {
    "the model's dropout is on: one text can get different ids": lambda: toy(
        special("<s>"), dropout=0.1
    ),
    "the tokenizer has no added tokens": toy,
    NONE_LEFT: lambda: toy(
        special("<s>", single_word=True),
        plain("<n>", normalized=True),
        normalizer=normalizers.Lowercase(),
    ),
}
if HAS_ALPHA:
    OFF["the model's alpha is on: one text can get different ids"] = lambda: unigram(
        alpha=0.3, nbest_size=4
    )


@pytest.mark.parametrize("reason", OFF)
@pytest.mark.parametrize("trust_custom", [False, True])
def test_what_turns_the_whole_cache_off(reason: str, trust_custom: bool) -> None:
    found = inspected(OFF[reason](), trust_custom=trust_custom)
    assert (found.enabled, found.reason) == (False, reason)


@pytest.mark.parametrize("dropout", [0.0, None])
def test_lots_that_are_never_drawn_turn_nothing_off(dropout: float | None) -> None:
    options = {"alpha": dropout} if HAS_ALPHA else {}
    for tokenizer in (toy(special("<s>"), dropout=dropout), unigram(**options)):
        backend = TokenizersBackend(tokenizer)
        assert backend.inspect(None).enabled
        assert backend.bypass_reason() is None


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a sequence"])
@pytest.mark.parametrize("place", ["normalizer", "pre_tokenizer"])
def test_a_part_made_in_python_needs_the_callers_word(place: str, nested: bool) -> None:
    tokenizer = with_python_part(place, nested=nested)
    found = inspected(tokenizer)
    assert not found.enabled
    assert found.reason == f"the {place} is made in Python (see trust_custom)"
    trusted = inspected(tokenizer, trust_custom=True)
    assert (trusted.before, trusted.after) == ((), ())
    if place != "normalizer":
        assert eligible(trusted) == ["<s>", "<n>"]
    elif lists_are_true():  # nobody knows what it does: it is taken to do something
        assert eligible(trusted) == ["<s>"]
    else:  # and that it does nothing shows nothing
        assert (eligible(trusted), trusted.reason) == ([], NONE_LEFT)
        assert reasons(trusted)["<s>"] == UNKNOWN_PHASE


def test_a_decoder_made_in_python_does_not_matter() -> None:
    tokenizer = toy(special("<s>"))
    tokenizer.decoder = decoders.Decoder.custom(PythonPart())
    assert inspected(tokenizer).enabled


@pytest.mark.parametrize("empty", [[], ()])
def test_a_list_may_leave_no_boundary(empty: list[str]) -> None:
    tokenizer = toy(special("<s>"), special("</s>", single_word=True))
    found = inspected(tokenizer, special_tokens=empty)
    assert (found.enabled, found.reason) == (False, "special_tokens is empty")
    found = inspected(tokenizer, special_tokens=["</s>"])
    assert (found.enabled, found.reason) == (False, NONE_LEFT)
    assert reasons(found)["<s>"] == "it is not in special_tokens"


def test_a_list_is_checked_even_if_all_is_off() -> None:
    with pytest.raises(ValueError, match="no added token of the tokenizer: 'hello'"):
        inspected(toy(special("<s>"), dropout=0.1), special_tokens=["<s>", "hello"])


EMPTY = normalizers.Sequence([])
STRIP = normalizers.Strip()
NORMALIZERS: dict[str, tuple[Normalizer | None, bool]] = {
    "none": (None, False),
    "empty": (EMPTY, False),
    "empty in empty": (normalizers.Sequence([EMPTY]), False),
    "one": (STRIP, True),
    "in a sequence": (normalizers.Sequence([EMPTY, STRIP]), True),
    "deep inside": (normalizers.Sequence([normalizers.Sequence([STRIP])]), True),
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_only_a_normalizer_that_does_something_counts(name: str) -> None:
    normalizer, does_something = NORMALIZERS[name]
    added = (special("<s>"), plain("<n>", normalized=True))
    found = inspected(toy(*added, normalizer=normalizer))
    assert eligible(found) == ["<s>", "<n>"][: 1 if does_something else 2]
    assert [each.content for each in found.unscanned] == ["<n>"] * does_something


# -- what is on at the moment of a call

Switch = Callable[[Tokenizer], object]


def set_model(name: str, value: float | None) -> Switch:
    return lambda tokenizer: setattr(tokenizer.model, name, value)


LIVE: dict[str, tuple[Switch, Switch]] = {
    "truncation is on": (lambda t: t.enable_truncation(2), Tokenizer.no_truncation),
    "padding is on": (lambda t: t.enable_padding(length=8), Tokenizer.no_padding),
    "encode_special_tokens is on": (
        lambda t: setattr(t, "encode_special_tokens", True),
        lambda t: setattr(t, "encode_special_tokens", False),
    ),
}
DRAWN = {
    f"the model's {name} is on": (set_model(name, 0.5), set_model(name, None))
    for name in ("dropout", "alpha")
    if name == "dropout" or HAS_ALPHA
}


@pytest.mark.parametrize("reason", [*LIVE, *DRAWN])
def test_a_live_setting_counts_for_as_long_as_it_is_on(reason: str) -> None:
    on, off = {**LIVE, **DRAWN}[reason]
    backend = TokenizersBackend(unigram() if "alpha" in reason else toy())
    assert backend.bypass_reason() is None
    for _ in range(2):
        on(backend.inner)
        assert backend.bypass_reason() == reason
        off(backend.inner)
        assert backend.bypass_reason() is None


@pytest.mark.parametrize("setting", LIVE)
def test_a_setting_that_is_on_at_first_is_measured_around(setting: str) -> None:
    tokenizer = toy(special("<s>"), special("</s>"), template="<s> $A </s>")
    expected = inspected(tokenizer)
    assert expected.before
    LIVE[setting][0](tokenizer)
    state = tokenizer.to_str()
    found = inspected(tokenizer)
    if "encode_special_tokens" in setting and not lists_are_true():
        assert found.reason == NOT_SHOWN.format(setting)
    else:
        assert found == expected
    assert tokenizer.to_str() == state
    assert TokenizersBackend(tokenizer).bypass_reason() == setting


def test_a_setting_that_cannot_be_measured_around() -> None:
    tokenizer = toy(special("<s>"), template="<s> $A")
    tokenizer.model = models.BPE({"a": 0, "b": 1}, [])  # its id is far off now
    if not lists_are_true():
        assert inspected(tokenizer).reason == NOT_AGAIN
        return
    assert inspected(tokenizer).affix_reason is None
    tokenizer.enable_truncation(2)
    found = inspected(tokenizer)
    assert (found.enabled, found.before, found.after) == (True, None, None)
    assert found.affix_reason == (
        "truncation or padding was on when it was to be measured"
    )


# -- the unknown token

UNKNOWN_NAME: Any = {"unk_token": "<odd>"}
WORDS = {"<odd>": 0, "a": 1, "hello": 2}
PIECES = [("a", -1.0), ("<odd>", -2.0), ("hello", -3.0)]
BYTES = [(f"<0x{i:02X}>", -9.0) for i in range(256)]
UNLIKELY_PIECES = [(char, -9.0) for char in UNLIKELY]
# a model, and whether "<odd>" is its unknown token
MODELS: dict[str, tuple[Model, bool]] = {
    "BPE": (models.BPE(WORDS, [], **UNKNOWN_NAME), True),
    "WordPiece": (models.WordPiece(WORDS, **UNKNOWN_NAME), True),
    "WordLevel": (models.WordLevel(WORDS, **UNKNOWN_NAME), True),
    "not in the vocabulary": (models.BPE({"a": 0}, [], **UNKNOWN_NAME), True),
    "Unigram": (models.Unigram(PIECES, 1), True),
    "byte fallback": (models.Unigram(PIECES + BYTES, 1, byte_fallback=True), True),
    "unlikely pieces": (models.Unigram(PIECES + UNLIKELY_PIECES, 1), True),
    "no unknown token": (models.BPE(WORDS, []), False),
    "Unigram without": (models.Unigram(PIECES), False),
    "Unigram, another": (models.Unigram(PIECES, 0), False),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_unknown_token_is_found_in_the_model(name: str) -> None:
    """What a token is called does not tell: <unk> is a token like others here."""
    model, is_unknown = MODELS[name]
    tokenizer = Tokenizer(model)
    tokenizer.add_tokens([special("<odd>"), special("<s>"), special("<unk>")])
    found = inspected(tokenizer)
    expected = IS_UNKNOWN if is_unknown else None
    assert reasons(found) == {"<odd>": expected, "<s>": None, "<unk>": None}


# -- encoding


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])
@pytest.mark.parametrize("filler", ["hello foo<s> \n\n", "é中😀 <s>"])
def test_short_and_long_texts_are_encoded_alike(filler: str, size: int) -> None:
    tokenizer = toy(special("<s>", rstrip=True), template="<s> $A")
    backend = TokenizersBackend(tokenizer)
    text = (filler * size)[:size]
    assert len(text) == size
    assert backend.encode_run(text) == raw_ids(tokenizer, text)
    for flag in (False, True):
        assert backend.encode_whole(text, flag) == raw_ids(
            tokenizer, text, special=flag
        )


@pytest.mark.parametrize("wrong", ["\ud800", b"a"], ids=["surrogate", "bytes"])
@pytest.mark.parametrize("size", [1, LARGE])
def test_what_is_no_text_fails_as_it_does_raw(wrong: Any, size: int) -> None:
    tokenizer = toy(special("<s>"))
    with pytest.raises((TypeError, UnicodeEncodeError)) as raw:
        tokenizer.encode(wrong * size)
    with pytest.raises(raw.type):
        TokenizersBackend(tokenizer).encode_run(wrong * size)
