"""The compiled scanner against its plain-Python model, and against `re`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scans import KINDS, Match, Tokens, assert_same, numbered
from tokcache._scan import Scanner
from tokcache.reference import ReferenceScanner

BLOCK = 32  # places that the compiled scanner looks at together
WINDOW = 5  # code points that it judges a place by
# First characters so many that windows are looked up at every place.
MANY = "bdfhjl"


@st.composite
def token_lists(draw: st.DrawFn, alphabet: str) -> Tokens:
    """Draw tokens that nest, overlap each other and themselves."""
    contents = draw(
        st.lists(st.text(alphabet, min_size=1, max_size=6), max_size=12, unique=True)
    )
    phase = st.sampled_from([1, 1, 2])
    return [(c, i, draw(phase), draw(st.booleans())) for i, c in enumerate(contents)]


@given(st.data())
def test_any_tokens_and_texts(data: st.DataObject) -> None:
    alphabet = data.draw(st.sampled_from([*KINDS, "".join(KINDS), "a"]))
    tokens = data.draw(token_lists(alphabet))
    plain = st.text("".join(KINDS), max_size=12)
    token = st.sampled_from([content for content, _, _, _ in tokens] or ["a"])
    text = "".join(data.draw(st.lists(st.one_of(token, token, plain), max_size=12)))
    assert_same(tokens, text, data.draw(st.integers(0, len(text))))


@given(st.data())
def test_any_code_points(data: st.DataObject) -> None:
    """Lone surrogates too: a scanner gets what a str can hold."""
    char = st.characters(exclude_categories=())
    chars = "".join(data.draw(st.lists(char, min_size=1, max_size=6)))
    tokens = data.draw(token_lists(chars))
    text = data.draw(st.text(st.one_of(st.sampled_from(chars), char), max_size=40))
    assert_same(tokens, text, data.draw(st.integers(0, len(text))))


@given(st.data())
def test_matches_go_on_from_any_boundary(data: st.DataObject) -> None:
    """What a scan finds behind a phase-1 match it finds when it starts there."""
    tokens = data.draw(token_lists("ab<"))
    text = data.draw(st.text("ab<", max_size=40))
    scanner = Scanner(tokens)
    matches = scanner.matches(text)
    for i, (_, end, token) in enumerate(matches):
        if tokens[token][2] == 1:
            assert scanner.matches(text, end) == matches[i + 1 :]


@pytest.mark.parametrize("n_first", [1, 4, 5, 300])
@pytest.mark.parametrize("phases", [(1,), (2,), (1, 2)])
def test_thousands_of_tokens(n_first: int, phases: tuple[int, ...]) -> None:
    """Above four first characters the scanner filters in another way."""
    rng = random.Random(n_first)
    firsts = [chr(0x21 + 7 * i) for i in range(n_first)]
    contents = sorted(
        {rng.choice(firsts) + str(rng.randrange(9000)) for _ in range(5000)}
    )
    rng.shuffle(contents)
    tokens = numbered(contents, phases, range(0, 5000, 3))
    for filler in ("ab ", "\xe9", "\u4f60", "\U0001f600"):
        parts = [
            filler * rng.randrange(30) + rng.choice(contents)[: rng.randrange(1, 7)]
            for _ in range(400)
        ]
        assert assert_same(tokens, "".join(parts))


@pytest.mark.parametrize("filler", ["x", "\xe9", "\u4f60", "\U0001f600"])
@pytest.mark.parametrize("contents", [["<a>"], ["<"], ["<a>", "\u4f61", "b", ">", "#"]])
def test_tokens_at_any_place_of_a_block(filler: str, contents: list[str]) -> None:
    """Blocks without a first character are passed over together; none is missed."""
    for before in range(2 * BLOCK + 2):
        for after in (0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1):
            for content in contents[:2]:
                text = filler * before + content + filler * after
                for phase in (1, 2):
                    found = assert_same(numbered(contents, [phase]), text)
                    place = (before, before + len(content), contents.index(content))
                    assert found == [place]


@pytest.mark.parametrize("filler", ["x", "\u4f60", "\U0001f600"])
@pytest.mark.parametrize("length", range(1, WINDOW + 3))
@pytest.mark.parametrize("shortest", [1, 2, 3, WINDOW + 3])
def test_tokens_of_any_length_at_any_place(
    filler: str, length: int, shortest: int
) -> None:
    """Windows reach past short tokens, and past the end of the text."""
    contents = ["a" + "b" * (length - 1), *(c + "#" * (shortest - 1) for c in MANY)]
    tokens = numbered(contents)
    for before in range(BLOCK + WINDOW + 4):
        for after in (*range(WINDOW + 1), BLOCK, BLOCK + WINDOW):
            text = filler * before + contents[0] + filler * after
            assert Scanner(tokens).matches(text) == [(before, before + length, 0)]
    assert assert_same(tokens, filler * BLOCK + contents[0] + filler * BLOCK)


@given(st.data())
def test_many_first_characters(data: st.DataObject) -> None:
    """Tokens that share windows, and text of what almost is one."""
    shortest = data.draw(st.integers(1, WINDOW + 1))
    content = st.text("ab" + MANY, min_size=shortest, max_size=shortest + 4)
    drawn = data.draw(st.lists(content, max_size=20, unique=True))
    filling = {c + "!" * (shortest - 1) for c in MANY} - set(drawn)
    contents = [*drawn, *sorted(filling)]
    tokens = numbered(contents, data.draw(st.sampled_from([(1,), (2,), (1, 2)])), [1])
    piece = st.one_of(
        st.sampled_from(contents),
        st.sampled_from([content[:-1] for content in contents]),
        st.text("ab\u0161\u4f60" + MANY, max_size=BLOCK),
    )
    text = "".join(data.draw(st.lists(piece, max_size=30)))
    assert_same(tokens, text, data.draw(st.integers(0, len(text))))


@pytest.mark.parametrize("n_others", [0, 1, 5])
@pytest.mark.parametrize(
    ("content", "alike"),
    [
        ("abcdef", "abcdxf"),
        ("abcdef", "abcdlf"),  # e and l: seven places apart, one bit for both
        ("abcdef", "abcdeg"),
        ("`bcdef", "\u0161bcdef"),  # what wide code points are folded to
        ("`b", "\u0161b"),
        ("\u0161bcdef", "`bcdef"),
        ("ab\u4f60", "ab/"),
        ("\U00010061bcdef", "`bcdef"),
    ],
)
def test_what_only_looks_like_a_token(content: str, alike: str, n_others: int) -> None:
    tokens = numbered([content, *"#$%&+"[:n_others]])
    for before in ("", "x", "x" * BLOCK, "\u4f60" * BLOCK, "\U0001f600" * BLOCK):
        for after in ("", "x", "x" * BLOCK):
            assert assert_same(tokens, before + alike + after) == []
            both = before + alike + content + after
            assert assert_same(tokens, both)[0][0] == len(before) + len(alike)


@pytest.mark.parametrize("contents", [["<b>c"], ["<b>c", "d", "e", "f", "g", "h"]])
def test_a_last_block_sees_nothing_before_its_gap(contents: list[str]) -> None:
    """It begins among places that are done, and these may begin a token."""
    tokens = numbered(["a<b>cz", *contents], [1, *[2] * len(contents)])
    for first in range(0, BLOCK + WINDOW, 3):
        for second in range(2 * BLOCK):
            text = "." * first + "a<b>cz" + "." * second + "a<b>cz"
            found = [(first, first + 6, 0), (first + 6 + second, len(text), 0)]
            assert Scanner(tokens).matches(text) == found
            assert Scanner(tokens).matches(text, first + 2)[0][0] == first + 6 + second


@pytest.mark.parametrize("shared", [0, 1])
def test_first_characters_that_the_text_cannot_hold(shared: int) -> None:
    """A narrow text is only searched for those that it can."""
    wide = ["\u4f60a", "\u4f61a", "\U0001f600a", "\U0001f601a"]
    tokens = numbered([*wide[shared:], *["<a"] * shared])
    for filler in ("x", "\u4f62", "\U0001f602"):
        for content in (*wide, "<a"):
            assert_same(tokens, filler * BLOCK + content + filler * 3)
    assert len(assert_same(tokens, "`a<a" * BLOCK)) == shared * BLOCK


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        pytest.param([], "abc", [], id="no tokens"),
        pytest.param(["a"], "", [], id="no text"),
        pytest.param(["aa"], "aaaaa", [(0, 2, 0), (2, 4, 0)], id="overlaps itself"),
        pytest.param(["aba"], "ababa", [(0, 3, 0)], id="overlaps itself by one"),
        pytest.param(["ab", "bc"], "abc", [(0, 2, 0)], id="leftmost wins"),
        pytest.param(["<", "<|", "<|x|>"], "<|x|", [(0, 2, 1)], id="longest that fits"),
        pytest.param(["<", "<|", "<|x|>"], "<|x|>", [(0, 5, 2)], id="longest"),
        pytest.param(["abcd", "b"], "abcx", [(1, 2, 1)], id="after a false start"),
        pytest.param(["ab", "abcabd"], "abcabx", [(0, 2, 0), (3, 5, 0)], id="fallback"),
        pytest.param(["a", "\u0161"], "\u0161a", [(0, 1, 1), (1, 2, 0)], id="low byte"),
        pytest.param(["\U00010061"], "a\U00010061", [(1, 2, 0)], id="low 16 bits"),
        pytest.param(["\u4f60"], "latin-1 \xff", [], id="token wider than the text"),
        pytest.param(["a"], "\U0001f600a", [(1, 2, 0)], id="text wider than the token"),
        pytest.param(
            ["a\x00b", "\x00"], "\x00a\x00b", [(0, 1, 1), (1, 4, 0)], id="nul"
        ),
    ],
)
def test_one_phase(tokens: list[str], text: str, expected: list[Match]) -> None:
    for phase in (1, 2):
        assert assert_same(numbered(tokens, [phase]), text) == expected


@pytest.mark.parametrize(
    ("first", "second", "text", "expected"),
    [
        pytest.param("b", "ab", "ab", [(1, 2, 0)], id="phase 1 wins from the right"),
        pytest.param("ab", "bc", "abc", [(0, 2, 0)], id="phase 1 wins from the left"),
        pytest.param("|", "a|a", "a|a", [(1, 2, 0)], id="no match across phase 1"),
        pytest.param("|", "a", "a|a", [(0, 1, 1), (1, 2, 0), (2, 3, 1)], id="gaps"),
        pytest.param("|", "aa", "a|aaa", [(1, 2, 0), (2, 4, 1)], id="a chain per gap"),
        pytest.param("aaa", "a", "aaaa", [(0, 3, 0), (3, 4, 1)], id="longer first"),
        pytest.param("a", "aaa", "aaaa", [(i, i + 1, 0) for i in range(4)], id="all"),
    ],
)
def test_two_phases(first: str, second: str, text: str, expected: list[Match]) -> None:
    assert assert_same(numbered([first, second], [1, 2]), text) == expected


def test_ineligible_tokens_match_but_are_no_boundaries() -> None:
    tokens = numbered(["<a>", "<a", "b"], ineligible=[1])
    scanner = Scanner(tokens)
    assert scanner.matches("<a><ab") == [(0, 3, 0), (3, 5, 1), (5, 6, 2)]
    assert scanner.boundaries("<a><ab") == [(3, 0), (6, 2)]


def test_statuses_follow_trial() -> None:
    for kind in (Scanner, ReferenceScanner):
        scanner = kind(numbered(["a", "b", "c"], ineligible=[2]))
        assert [scanner.status(i) for i in range(3)] == [0, 0, 2]
        for i in range(3):
            scanner.trust(i)
        assert [scanner.status(i) for i in range(3)] == [1, 1, 2]
        scanner.refuse(1)
        scanner.trust(1)
        assert [scanner.status(i) for i in range(3)] == [1, 2, 2]
        assert scanner.boundaries("abc") == [(1, 0)]
        assert scanner.matches("abc") == [(0, 1, 0), (1, 2, 1), (2, 3, 2)]


def test_a_scanner_knows_its_tokens() -> None:
    for kind in (Scanner, ReferenceScanner):
        scanner = kind(numbered(["a", "\U0001f600"]))
        assert len(scanner) == 2
        assert scanner.contents == ("a", "\U0001f600")
        assert len(kind([])) == 0


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param([("", 1, 1, True)], id="empty"),
        pytest.param([("a", 1, 1, True), ("a", 2, 2, True)], id="twice"),
        pytest.param([("a", 1, 0, True)], id="phase 0"),
        pytest.param([("a", 1, 3, True)], id="phase 3"),
        pytest.param([("a", -1, 1, True)], id="negative id"),
        pytest.param([("a", 1 << 32, 1, True)], id="id too big"),
    ],
)
def test_bad_tokens_are_refused(tokens: Tokens) -> None:
    for kind in (Scanner, ReferenceScanner):
        with pytest.raises(ValueError, match=r"token|id|phase"):
            kind(tokens)


def test_the_biggest_id_is_taken() -> None:
    assert Scanner([("a", (1 << 32) - 1, 1, True)]).boundaries("a") == [(1, 0)]


@pytest.mark.parametrize("start", [-1, 4, 1 << 40])
def test_a_start_outside_the_text_is_refused(start: int) -> None:
    for scanner in (Scanner(numbered(["a"])), ReferenceScanner(numbered(["a"]))):
        for scan in (scanner.matches, scanner.boundaries):
            with pytest.raises(ValueError, match="start"):
                scan("abc", start)


@pytest.mark.parametrize("index", [-1, 1, 1 << 40])
def test_an_index_of_no_token_is_refused(index: int) -> None:
    for scanner in (Scanner(numbered(["a"])), ReferenceScanner(numbered(["a"]))):
        for method in (scanner.status, scanner.trust, scanner.refuse):
            with pytest.raises(IndexError, match="token"):
                method(index)


def test_only_str_is_scanned() -> None:
    scanner = Scanner(numbered(["a"]))
    for text in (b"a", None, 1):
        with pytest.raises(TypeError):
            scanner.matches(text)  # type: ignore[arg-type]


def test_a_long_text_of_false_starts() -> None:
    """Each character begins a token that never ends: the worst there is."""
    contents = ["a" * n + "b" for n in range(1, 60)]
    assert Scanner(numbered(contents)).matches("a" * 50_000) == []
    found = Scanner(numbered(contents)).matches("a" * 50_000 + "b")
    assert found == [(50_000 - 59, 50_001, 58)]
