"""Check what is measured: the ids around a text, and a token at its first sight."""

from __future__ import annotations

import pytest

from tokcache._scan import Scanner
from tokcache.eligibility import find_affixes, probe_token

from .toys import plain, special, token_id, toy

# -- what is put around a text


def template(single: str) -> dict[str, object]:
    """Measure a post-processor's template on a toy tokenizer."""
    tokenizer = toy(special("<s>"), special("</s>"), special("<im>"), template=single)
    ids = {name: token_id(tokenizer, name) for name in ("<s>", "</s>")}
    found = find_affixes(
        lambda text, add: tokenizer.encode(text, add_special_tokens=add).ids,
        ["a", "hello", "x<im>y", "<s>"],
    )
    return {"found": found, **ids}


def test_no_post_processor_puts_nothing_around() -> None:
    tokenizer = toy(special("<im>"))
    assert find_affixes(
        lambda text, add: tokenizer.encode(text, add_special_tokens=add).ids,
        ["a", "hello<im>foo"],
    ) == ((), ())


@pytest.mark.parametrize(
    ("single", "before", "after"),
    [
        ("<s> $A", ["<s>"], []),
        ("$A </s>", [], ["</s>"]),
        ("<s> <s> $A </s>", ["<s>", "<s>"], ["</s>"]),
        ("$A", [], []),
    ],
)
def test_a_template_with_one_text_is_measured(
    single: str, before: list[str], after: list[str]
) -> None:
    result = template(single)
    assert result["found"] == (
        tuple(result[name] for name in before),
        tuple(result[name] for name in after),
    )


@pytest.mark.parametrize("single", ["<s> $A </s> $A", "$A <s> $A"])
def test_a_template_that_repeats_the_text_is_refused(single: str) -> None:
    assert template(single)["found"] == (
        "the post-processor does not put fixed ids around the text"
    )


def test_a_template_that_drops_the_text_is_refused() -> None:
    # It does so without special tokens too: all texts have the same ids, none.
    assert template("<s>")["found"] == (
        "no text was found to measure the post-processor with"
    )


def test_ids_that_depend_on_the_text_are_refused() -> None:
    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return [*([len(text)] if add_special_tokens else []), *map(ord, text)]

    assert isinstance(find_affixes(encode, ["ab", "abc"]), str)
    assert find_affixes(encode, ["ab", "cd"]) == ((2,), ())


def test_affixes_that_look_like_the_text_are_refused() -> None:
    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return [0] * (len(text) + add_special_tokens)

    assert find_affixes(encode, ["a", "bb"]) == (
        "the post-processor's ids cannot be told from the text's"
    )


def test_probes_that_cannot_be_encoded_are_left_out() -> None:
    def encode(text: str, add_special_tokens: bool) -> list[int]:
        if "x" in text:
            message = "no unknown token"
            raise ValueError(message)
        return [*map(ord, text), *([0] if add_special_tokens else [])]

    assert find_affixes(encode, ["x", "a", "b"]) == ((), (0,))
    assert find_affixes(encode, ["x", "a"]) == (
        "no text was found to measure the post-processor with"
    )
    assert isinstance(find_affixes(encode, []), str)


def test_an_error_with_special_tokens_is_told() -> None:
    def encode(text: str, add_special_tokens: bool) -> list[int]:
        if add_special_tokens:
            message = "bad template"
            raise ValueError(message)
        return [*map(ord, text)]

    assert find_affixes(encode, ["a", "b"]) == "encoding with it fails: bad template"


class PanicException(BaseException):
    """Stand in for what a panic in Rust code raises."""


def test_a_panic_in_a_trial_does_not_escape_but_others_do() -> None:
    def encode(_text: str, _add: bool) -> list[int]:
        raise PanicException

    assert isinstance(find_affixes(encode, ["a", "b"]), str)

    def interrupt(_text: str, _add: bool) -> list[int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_affixes(interrupt, ["a", "b"])


# -- the trial at first sight


def spell(text: str, *tokens: str) -> list[int]:
    """Encode as code points, some tokens as 1000 and up: leftmost, the first fits."""
    ids = []
    at = 0
    while at < len(text):
        for i, token in enumerate(tokens):
            if text.startswith(token, at):
                ids.append(1000 + i)
                at += len(token)
                break
        else:
            ids.append(ord(text[at]))
            at += 1
    return ids


def test_a_token_that_splits_passes() -> None:
    scanner = Scanner([("<a>", 1000, 1, True), ("<b>", 1001, 1, True)])
    texts = []

    def encode(text: str) -> list[int]:
        texts.append(text)
        return spell(text, "<a>", "<b>")

    assert probe_token(encode, scanner, 0, "<a>", 1000, "<b>") is None
    assert {"a<a>b", "1<a>2", "é<a>中", "<b><a><b>", " <a> ", "\n<a>\n\n"} <= set(texts)
    assert probe_token(encode, scanner, 1, "<b>", 1001, None) is None


def test_a_token_without_its_id_fails() -> None:
    scanner = Scanner([("<a>", 7, 1, True)])
    found = probe_token(lambda text: spell(text, "<a>"), scanner, 0, "<a>", 7, None)
    assert found == "between '' and '' it does not yield its id 7"


def test_a_token_that_changes_its_surroundings_fails() -> None:
    scanner = Scanner([("<a>", 1000, 1, True)])

    def encode(text: str) -> list[int]:
        ids = spell(text, "<a>")
        # A letter before the token makes one behind it another one.
        return [*ids[:-1], 5] if text == "a<a>b" else ids

    assert probe_token(encode, scanner, 0, "<a>", 1000, None) == (
        "between 'a' and 'b' the text does not split at it"
    )


def test_only_places_that_the_scanner_sees_count() -> None:
    tokens = [("<a>", 1000, 1, True), ("a<a>", 1001, 1, False)]
    scanner = Scanner(tokens)
    texts = []

    def encode(text: str) -> list[int]:
        texts.append(text)
        return spell(text, "a<a>", "<a>")  # their ids are the other way round

    assert probe_token(encode, scanner, 0, "<a>", 1001, None) is None
    assert texts
    assert not any("a<a>" in text for text in texts)


def test_a_token_that_no_context_shows_is_refused() -> None:
    scanner = Scanner([("<a>", 1000, 1, False)])
    found = probe_token(lambda text: spell(text, "<a>"), scanner, 0, "<a>", 1000, None)
    assert found == "it could be tried in no context"


def test_contexts_that_cannot_be_encoded_are_left_out() -> None:
    scanner = Scanner([("<a>", 1000, 1, True)])

    def encode(text: str) -> list[int]:
        if set(text) - set("<a>"):
            message = "unknown"
            raise ValueError(message)
        return spell(text, "<a>")

    assert probe_token(encode, scanner, 0, "<a>", 1000, None) is None


@pytest.mark.parametrize(
    "token", [special("<s>", rstrip=True), special("<s>", lstrip=True), plain("<s>")]
)
def test_real_tokens_pass(token: object) -> None:
    tokenizer = toy(token)  # type: ignore[arg-type]
    number = token_id(tokenizer, "<s>")
    scanner = Scanner([("<s>", number, 1, True)])
    found = probe_token(
        lambda text: tokenizer.encode(text).ids, scanner, 0, "<s>", number, None
    )
    assert found is None
