"""Check where texts are cut: the ids stay exact and as much as possible is cached.

Each test is a fault that prefix caches for tokenizers have shown in the field.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
)

from tokcache import CachedTokenizer
from tokcache._scan import Scanner

from .checks import assert_exact, assert_same, raw_ids
from .toys import plain, special, token_id, toy, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

UNKNOWN = "<unk>"
PREPEND = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the raw tokenizer's tokens."""
    return list(tokenizer.encode(text, add_special_tokens=False).tokens)


def build_nested() -> Tokenizer:
    """Make one whose longest special contains two shorter ones."""
    return toy(special("<|"), special("|>"), special("<|EOS|>"))


def build_overlapping() -> Tokenizer:
    """Make one whose only special can overlap itself."""
    return toy(special("|x|"))


@pytest.mark.parametrize(
    ("warm", "text", "expected"),
    [
        ("<|", "<|EOS|>", ["<|EOS|>"]),
        ("x<|EOS|>", "x<|EOS|>hello", ["x", "<|EOS|>", "hello"]),
        ("x|>", "x|>hello<|EOS|>foo|>", ["x", "|>", "hello", "<|EOS|>", "foo", "|>"]),
        ("<|EOS|>", "<|EO<|EOS|>", ["<|", "E", "O", "<|EOS|>"]),
    ],
)
def test_a_special_that_contains_shorter_specials(
    warm: str, text: str, expected: list[str]
) -> None:
    """Every occurrence of a short special was a cut: the long one came out in parts."""
    assert tokens(build_nested(), text) == expected
    assert_exact(build_nested, [warm], text, stored=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("|x|x|", ["|x|", "x", "|"]),
        ("|x|x|x|", ["|x|", "x", "|x|"]),
        ("|x||x|x|", ["|x|", "|x|", "x", "|"]),
    ],
)
def test_a_special_that_overlaps_itself(text: str, expected: list[str]) -> None:
    """Overlapping occurrences were all cuts; only the leftmost chain is real."""
    assert tokens(build_overlapping(), text) == expected
    for warm in ("|x|", "x|x|", "|x|x|x|"):
        assert_exact(build_overlapping, [warm], text, stored=True)


SWALLOWED = ["\n\n", " ", "\t \r\n", "\u00a0", "\u3000", "\u0085", "\u2028"]
KEPT = ["\u200b", "\ufeff", "\u001c"]


@pytest.mark.parametrize("space", [*SWALLOWED, *KEPT])
def test_a_special_that_swallows_the_white_space_after_it(space: str) -> None:
    """A cut right after the marker gave the white space tokens of its own."""

    def build() -> Tokenizer:
        return toy(special("<s>", rstrip=True))

    expected = assert_exact(build, ["<s>"], f"<s>{space}hello", stored=True, hit=True)
    swallowed = expected == raw_ids(build(), "<s>hello")
    assert swallowed is (space in SWALLOWED)
    assert_exact(build, ["<s>", "<s>hello"], f"<s>{space}", stored=True, hit=True)
    assert_exact(build, [f"<s>{space}<s>"], f"<s>{space}<s>{space}foo", hit=True)


def test_white_space_alone_behind_a_special_that_swallows_it() -> None:
    """A segment or tail may have no ids at all, and is cached all the same."""

    def build() -> Tokenizer:
        return toy(special("<s>", rstrip=True))

    assert len(assert_exact(build, ["<s>"], "<s>" + " \n" * 30, stored=True)) == 1
    assert len(assert_exact(build, ["<s>"], "<s>" + " \n" * 30_000, stored=True)) == 1


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@pytest.mark.parametrize("shape", ["alone", "in a sequence", "with a Unigram model"])
def test_a_mark_that_is_put_before_the_first_piece_only(
    scheme: str, shape: str
) -> None:
    """A suffix encoded by itself is a first piece too, and gained a mark."""

    def build() -> Tokenizer:
        pre: PreTokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        if shape == "in a sequence":
            pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre])
        return toy(special("<s>"), pre=pre, unigram=shape == "with a Unigram model")

    text = "hello<s>hello"
    mark = {"first": "▁", "always": "▁", "never": ""}[scheme]
    second = {"first": "", "always": "▁", "never": ""}[scheme]
    assert tokens(build(), text) == [f"{mark}hello", "<s>", f"{second}hello"]
    assert_exact(build, ["hello<s>"], text, stored=True, hit=True)
    assert_exact(build, ["<s>hello"], text, stored=True)
    assert_exact(build, ["<s>"], "<s>hello hello<s> hello", stored=True, hit=True)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(
    ("normalizer", "content", "warm", "text", "expected"),
    [
        (normalizers.Sequence(PREPEND), "<s>", "<s>", "<s>hello", None),
        (normalizers.Strip(), "<s>", "a<s>", "a<s> hello", ["a", "<s>", "Ġhello"]),
        (normalizers.NFC(), "ze", "ze", "ze\u0301x", None),
    ],
    ids=["prepend", "strip", "compose"],
)
def test_a_special_that_is_looked_for_in_normalized_text(  # noqa: PLR0913, PLR0917 - a table
    normalizer: Normalizer,
    content: str,
    warm: str,
    text: str,
    expected: list[str] | None,
    normalized: bool,
) -> None:
    """The normalizer sees across the cut: such a token is no boundary."""

    def build() -> Tokenizer:
        return toy(special(content, normalized=normalized), normalizer=normalizer)

    if expected is not None and normalized:
        assert tokens(build(), text) == expected
    assert_exact(build, [warm], text, stored=not normalized, hit=not normalized)
    assert_exact(build, [text], warm)
    explained = CachedTokenizer(build()).explain()
    assert (content in explained.boundary_tokens) is not normalized
    if normalized:
        assert "normaliz" in explained.refused_tokens[content]


def test_a_special_that_needs_a_word_boundary_after_it() -> None:
    """Whether it is a token at all depends on the text behind the cut."""

    def build() -> Tokenizer:
        return toy(special("<s>", single_word=True))

    assert tokens(build(), "<s>hello") == ["<", "s", ">", "hello"]
    assert_exact(build, ["<s>", "<s> hello"], "<s>hello", stored=False, hit=False)
    assert_exact(build, ["<s>hello"], "<s> hello", stored=False, hit=False)
    assert "<s>" in CachedTokenizer(build()).explain().refused_tokens


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("EOT", ["EOT", "t", "o", "o", "l", "Ġ", "x"]),
        ("<a>", ["<a>", "tool", "Ġ", "x"]),
    ],
)
def test_a_word_token_right_behind_a_special(content: str, expected: list[str]) -> None:
    """The cut hid the letter to its left, and the word token matched wrongly."""

    def build() -> Tokenizer:
        return toy(special(content), plain("tool", single_word=True))

    text = f"{content}tool x"
    assert tokens(build(), text) == expected
    assert_exact(build, [content], text, stored=True, hit=True)


def test_a_phase_one_token_that_depends_on_its_neighbour() -> None:
    """A later-phase token is no boundary where an earlier phase can eat into it."""

    def build() -> Tokenizer:
        return toy(special("x<a>", single_word=True), special("<a>", normalized=True))

    for warm, text in (("x<a>y", "x<a> y"), ("x<a> y", "x<a>y"), ("<a>", "x<a><a>")):
        assert_exact(build, [warm], text)


def test_a_space_that_is_put_before_every_piece() -> None:
    """A rule "the first piece only" is wrong here; behind the anchor it is exact."""

    def build() -> Tokenizer:
        pre = pre_tokenizers.ByteLevel(add_prefix_space=True)
        return toy(special("<s>"), pre=pre)

    assert tokens(build(), "hello<s>hello") == ["Ġhello", "<s>", "Ġhello"]
    assert_exact(build, ["hello<s>"], "hello<s>hello", stored=True, hit=True)


def test_an_added_token_that_ends_in_a_specials_text() -> None:
    """A cut before the special lost the longer token."""

    def build() -> Tokenizer:
        return toy(special("<s>"), plain("a<s>"))

    assert tokens(build(), "a<s>foo") == ["a<s>", "foo"]
    assert_exact(build, ["a", "<s>"], "a<s>foo", stored=True)
    assert_exact(build, ["b<s>", "a<s>"], "a<s>foo", stored=True, hit=True)


def test_cuts_are_only_at_ends_of_tokens_that_the_tokenizer_matches() -> None:
    """Any cut elsewhere is a wrong id sooner or later."""
    contents = ["<s>", "a<s>", "|x|", "<|", "|>", "<|E|>", "s>b", "é<", "☃"]
    raw = toy(*(special(content) for content in contents))
    ids = [token_id(raw, content) for content in contents]
    scanner = Scanner([(c, i, 1, True) for c, i in zip(contents, ids, strict=True)])
    rng = random.Random(5)
    pieces = ["<", "|", "E", ">", "s", "a", "b", "x", "é", "☃", "😀", " ", *contents]
    for _ in range(3000):
        text = "".join(rng.choices(pieces, k=rng.randrange(20)))
        encoding = raw.encode(text, add_special_tokens=False)
        matched = [
            (start, end, ids.index(found))
            for found, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if found in ids
        ]
        assert scanner.matches(text) == matched
        ends = {end for _, end, _ in matched}
        assert {end for end, _ in scanner.boundaries(text)} <= ends


def test_tags_that_are_plain_text_are_no_boundaries() -> None:
    """Only what the tokenizer matches as a whole is cut at, whatever it looks like."""
    entries = []
    for tag in ("<tool_call>", "tool call"):
        cached = CachedTokenizer(toy(special("<im>")))
        for text in (f"<im>hello {tag} foo<im>", f"<im>hello {tag} foo<im>hello {tag}"):
            assert_same(cached, cached.inner, text)
        entries.append(cached.cache_stats().entries)
    assert entries == [2, 2]
    build = lambda: toy(special("<im>"), plain("<tool_call>"))  # noqa: E731
    text = "<im>hello <tool_call> foo<tool_call>hello<im>"
    assert_exact(build, ["<im>hello <tool_call>"], text, stored=True, hit=True)


def test_a_listed_token_that_the_tokenizer_does_not_know() -> None:
    """A name from a config file is no token: cutting there splits what is one word."""

    def build() -> Tokenizer:
        return toy(special("<s>"))

    with pytest.raises(ValueError, match="<img>"):
        CachedTokenizer(build(), ["<s>", "<img>"])
    assert_exact(build, ["<img>"], "<img>hello", stored=False, hit=False)
    assert_exact(build, ["<img>"], "<img>hello", stored=False, special_tokens=["<s>"])


def test_a_list_restricts_the_boundaries() -> None:
    """What is not on the list is not cut at, and the ids stay the same."""

    def build() -> Tokenizer:
        return toy(special("<s>"), special("<im>"))

    cached = CachedTokenizer(build(), ["<im>"])
    for _ in range(2):
        assert_same(cached, build(), "<s>hello<im>foo<s>hello<im>")
    assert cached.cache_stats().entries == 2
    assert cached.explain().boundary_tokens == ("<im>",)


def test_a_specials_spelling_inside_user_text() -> None:
    """It is what the tokenizer makes of it; the cache repairs nothing."""

    def build() -> Tokenizer:
        return toy(special("<s>"), special("<im>"))

    text = "<im>user\nhi <s> there<im>bot\n"
    assert_exact(build, ["<im>user\n", "<im>user\nhi "], text, stored=True, hit=True)


def test_a_prompt_that_has_its_first_token_already() -> None:
    """The template's BOS and the encoder's are both kept, as without the cache."""

    def build() -> Tokenizer:
        return toy(special("<s>"), template="<s> $A")

    raw = build()
    bos = raw.token_to_id("<s>")
    assert raw_ids(raw, "<s>a", special=True)[:2] == [bos, bos]
    assert_exact(build, ["<s>a"], "<s>a", stored=True, hit=True)


def test_prefix_lengths_are_counted_not_guessed() -> None:
    """A share of the bytes is no share of the tokens."""

    def build() -> Tokenizer:
        return toy(special("<s>"))

    for heavy in ("😀" * 1000, "ก" * 1000):
        text = f"{heavy}<s>{'a ' * 1000}"
        assert_exact(build, [f"{heavy}<s>"], text, stored=True, hit=True)
        assert_exact(build, [f"{'a ' * 1000}<s>"], f"{'a ' * 1000}<s>{heavy}", hit=True)


def _python_part() -> Tokenizer:
    class Split:
        def pre_tokenize(self, text: object) -> None:
            """Do nothing."""

    tokenizer = toy(special("<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Split())
    return tokenizer


def _word_level() -> Tokenizer:
    tokenizer = toy(special("<s>"))
    tokenizer.model = models.BPE(vocabulary(), [], unk_token=UNKNOWN)
    tokenizer.add_special_tokens([AddedToken(UNKNOWN, normalized=False)])
    return tokenizer


REFUSED: list[tuple[str, Callable[[], Tokenizer], str, str]] = [
    ("needs a word end", lambda: toy(special("<s>", single_word=True)), "<s>", "word"),
    ("in a longer one", build_nested, "<|", "<|EOS|>"),
    ("the unknown token", _word_level, "<unk>", "unk"),
    ("white space", lambda: toy(special("  ")), "  ", "space"),
    (
        "normalized",
        lambda: toy(special("<s>", normalized=True), normalizer=normalizers.NFC()),
        "<s>",
        "normaliz",
    ),
    (
        "a neighbour goes first",
        lambda: toy(special("<s>", normalized=True), special("a", single_word=True)),
        "<s>",
        "",
    ),
]


@pytest.mark.parametrize(
    ("build", "content", "word"),
    [row[1:] for row in REFUSED],
    ids=[r[0] for r in REFUSED],
)
def test_every_refused_token_has_its_reason(
    build: Callable[[], Tokenizer], content: str, word: str
) -> None:
    """Users could not find out why nothing was cached."""
    explained = CachedTokenizer(build()).explain()
    assert content not in explained.boundary_tokens
    assert explained.refused_tokens[content]
    assert word in explained.refused_tokens[content]
    assert explained.refused_tokens[content] in " ".join(str(explained).split())


OFF: list[tuple[str, Callable[[], CachedTokenizer], str]] = [
    ("dropout", lambda: CachedTokenizer(toy(special("<s>"), dropout=0.5)), "dropout"),
    ("a Python part", lambda: CachedTokenizer(_python_part()), "pre_tokenizer"),
    ("an empty list", lambda: CachedTokenizer(toy(special("<s>")), []), "empty"),
    ("no added token", lambda: CachedTokenizer(toy()), "token"),
]


@pytest.mark.parametrize(
    ("build", "word"), [r[1:] for r in OFF], ids=[r[0] for r in OFF]
)
def test_a_cache_that_is_off_says_why(
    build: Callable[[], CachedTokenizer], word: str
) -> None:
    """The whole cache is off for what is named, and nothing is counted or stored."""
    cached = build()
    explained = cached.explain()
    assert not explained.enabled
    assert explained.reason
    assert word in explained.reason.lower()
    assert explained.reason in " ".join(str(explained).split())


@pytest.mark.parametrize(
    ("switch", "word"),
    [
        (lambda t: t.enable_truncation(3), "truncation"),
        (lambda t: t.enable_padding(length=8), "padding"),
        (lambda t: setattr(t, "encode_special_tokens", True), "encode_special_tokens"),
    ],
)
def test_a_switch_that_makes_calls_pass_through_is_named(
    switch: Callable[[Tokenizer], None], word: str
) -> None:
    """What is on at the moment is told at the moment."""
    cached = CachedTokenizer(toy(special("<s>")))
    assert cached.explain().bypass is None
    switch(cached.inner)
    assert word in str(cached.explain().bypass)
    assert word in str(cached.explain())


@pytest.mark.parametrize("template", ["<s> $A </s> $A", "<s> </s>", "$A $A"])
def test_a_template_that_is_no_frame(template: str) -> None:
    """Where the text's ids come twice or not at all, nothing can be put together."""

    def build() -> Tokenizer:
        return toy(special("<s>"), special("</s>"), template=template)

    assert not CachedTokenizer(build()).explain().enabled
    assert_exact(build, ["<s>hello"], "<s>hello</s>foo", stored=False)
