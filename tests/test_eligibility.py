"""Check the rules for boundary tokens, and the explanation."""

from __future__ import annotations

import random

import pytest

from tokcache._scan import Scanner
from tokcache.eligibility import (
    WHITE_SPACE,
    AddedTokenView,
    Explanation,
    TokenVerdict,
    check_list,
    judge,
)


def view(content: str, token_id: int, *flags: str) -> AddedTokenView:
    """Make an added token, every flag off unless named."""
    return AddedTokenView(content, token_id, **dict.fromkeys(flags, True))


def reasons(
    *added: AddedTokenView,
    normalizes: bool = False,
    unknown_contents: tuple[str, ...] = (),
    unknown_ids: tuple[int, ...] = (),
    listed: list[str] | None = None,
) -> dict[str, str | None]:
    """Judge tokens; return the reasons by content."""
    scanned, unscanned = judge(
        added,
        normalizes=normalizes,
        unknown_contents=unknown_contents,
        unknown_ids=unknown_ids,
        listed=listed,
    )
    return {verdict.content: verdict.reason for verdict in (*scanned, *unscanned)}


# -- the rules


def test_a_plain_token_of_either_phase_is_eligible() -> None:
    scanned, unscanned = judge(
        [view("<a>", 1, "special"), view("<b>", 2, "normalized", "rstrip")],
        normalizes=False,
    )
    assert scanned == (
        TokenVerdict("<a>", 1, 1, None, "special"),
        TokenVerdict("<b>", 2, 2, None, "normalized,rstrip"),
    )
    assert unscanned == ()
    assert all(verdict.is_eligible for verdict in scanned)
    assert view("<a>", 1).flags == "plain"


def test_strip_flags_of_its_own_phase_do_not_matter() -> None:
    found = reasons(view("<a>", 1, "rstrip"), view("<b>", 2, "lstrip"), view("<c>", 3))
    assert found == {"<a>": None, "<b>": None, "<c>": None}


def test_a_single_word_token_is_refused() -> None:
    found = reasons(view("<a>", 1, "single_word"), view("<b>", 2))
    assert found["<a>"] == (
        "it is single_word: the text after it decides whether it matches"
    )
    assert found["<b>"] is None


@pytest.mark.parametrize(
    "content", [" ", "  ", "\n\n", "\t \r", "\xa0", "\u3000", "\x85\u2028"]
)
def test_white_space_alone_is_refused(content: str) -> None:
    assert reasons(view(content, 1)) == {content: "it is white space alone"}


@pytest.mark.parametrize("content", ["\x1c", "\u200b", "\ufeff", "▁▁", " a", "<a>\n"])
def test_what_only_looks_like_white_space_is_not(content: str) -> None:
    assert reasons(view(content, 1)) == {content: None}


def test_white_space_is_unicodes() -> None:
    others = {"\x1c", "\x1d", "\x1e", "\x1f"}  # white space for str alone
    assert {chr(i) for i in range(0x110000) if chr(i).isspace()} - others == WHITE_SPACE


@pytest.mark.parametrize("unknown", [{"contents": ("<u>",)}, {"ids": (1,)}])
def test_the_models_unknown_token_is_refused(unknown: dict[str, tuple[str]]) -> None:
    named = {f"unknown_{kind}": which for kind, which in unknown.items()}
    found = reasons(view("<u>", 1), view("<v>", 2), **named)  # type: ignore[arg-type]
    assert found == {
        "<u>": "it is the model's unknown token, whose id stands for any text",
        "<v>": None,
    }


@pytest.mark.parametrize("longer", ["<a>b", "x<a>b", "x<a><a>", "<a><a>"])
def test_a_token_that_a_longer_one_goes_on_after_is_refused(longer: str) -> None:
    found = reasons(view("<a>", 1), view(longer, 2))
    assert found == {
        "<a>": f"the longer token {longer!r} goes on after it",
        longer: None,
    }


@pytest.mark.parametrize("longer", ["x<a>", "<<a>", "b"])
def test_a_token_at_the_end_of_a_longer_one_is_eligible(longer: str) -> None:
    assert reasons(view("<a>", 1), view(longer, 2)) == {"<a>": None, longer: None}


def test_a_token_may_overlap_itself_and_be_overlapped_from_the_left() -> None:
    assert reasons(view("|x|", 1), view("y|", 2)) == {"|x|": None, "y|": None}


def test_a_longer_token_of_the_second_phase_does_not_hurt_the_first() -> None:
    found = reasons(view("<a>", 1), view("<a>b", 2, "normalized"))
    assert found["<a>"] is None
    assert found["<a>b"] == "'<a>', looked for before it, is in it"


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
def test_a_flag_in_the_first_phase_refuses_the_second(flag: str) -> None:
    found = reasons(view("<a>", 1, "normalized"), view("far", 2, flag))
    assert found["<a>"] == f"'far', looked for before it, is {flag}"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("a", "'a', looked for before it, is in it"),
        ("<a", "'<a', looked for before it, is in it"),
        ("x<a>y", "the longer token 'x<a>y' goes on after it"),
        ("<a>y", "the longer token '<a>y' goes on after it"),
        (">y", "'>y', looked for before it, begins in it"),
        ("a>y", "'a>y', looked for before it, begins in it"),
        ("x<", None),
        ("x<a>", None),
        ("y", None),
    ],
)
def test_what_the_first_phase_can_take_of_the_second(
    first: str, reason: str | None
) -> None:
    assert reasons(view("<a>", 1, "normalized"), view(first, 2))["<a>"] == reason


def test_under_a_normalizer_the_second_phase_is_not_scanned() -> None:
    scanned, unscanned = judge(
        [
            view("<a>", 1, "rstrip"),
            view("<b>", 2, "normalized"),
            view(" ", 3, "normalized"),
        ],
        normalizes=True,
    )
    assert [verdict.content for verdict in scanned] == ["<a>"]
    assert scanned[0].is_eligible
    assert [verdict.reason for verdict in unscanned] == [
        "it is looked for in the normalized text, where its neighbours can change it",
        "it is white space alone",
    ]


def test_what_no_scanner_can_hold_is_not_scanned() -> None:
    scanned, unscanned = judge(
        [view("", 1), view("<a>", 1 << 32), view("<b>", 3), view("<b>", 4)],
        normalizes=False,
    )
    assert [(v.content, v.reason) for v in scanned] == [("<b>", "it is listed twice")]
    assert [verdict.reason for verdict in unscanned] == [
        "it is empty",
        "its id 4294967296 does not fit 32 bits",
        "it is listed twice",
    ]
    Scanner([(v.content, v.id, v.phase, v.is_eligible) for v in scanned])


def test_tokens_that_share_an_id_are_refused() -> None:
    found = reasons(view("<a>", 1), view("<b>", 1), view("<c>", 0xFFFF_FFFF))
    assert found == {
        "<a>": "another added token has its id 1",
        "<b>": "another added token has its id 1",
        "<c>": None,
    }


# -- the caller's list


def test_a_list_restricts_and_the_others_stay_known_to_the_scanner() -> None:
    added = [
        view("<a>", 1),
        view("<a>b", 2),
        view("<c>", 3),
        view("<d>", 4, "normalized"),
    ]
    scanned, unscanned = judge(added, normalizes=False, listed=["<a>", "<c>"])
    assert [(v.content, v.reason) for v in scanned] == [
        ("<a>", "the longer token '<a>b' goes on after it"),
        ("<a>b", "it is not in special_tokens"),
        ("<c>", None),
        ("<d>", "it is not in special_tokens"),
    ]
    assert unscanned == ()


def test_a_listed_string_that_is_no_added_token_is_named() -> None:
    with pytest.raises(ValueError, match=r"no added token .*: '<img>', '<x>'$"):
        reasons(view("<a>", 1), listed=["<a>", "<img>", "<x>"])
    with pytest.raises(ValueError, match=r"'1', '2', '3', '4', '5', \.\.\.$"):
        reasons(listed=list("123456"))


@pytest.mark.parametrize("wrong", ["<a>", b"<a>", {"<a>"}, 3, iter(["<a>"])])
def test_what_is_no_list_is_a_type_error(wrong: object) -> None:
    with pytest.raises(
        TypeError, match="special_tokens must be a list or tuple of str"
    ):
        check_list(wrong)  # type: ignore[arg-type]


def test_what_is_no_string_in_a_list_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="special_tokens must hold str, got 3"):
        check_list(["<a>", 3])  # type: ignore[list-item]
    for fine in (None, [], (), ["<a>"], ("<a>",)):
        check_list(fine)


# -- all at once


def is_taken(token: AddedTokenView, added: list[AddedTokenView]) -> bool:
    """Say by the letter of the rules whether other tokens make one no boundary."""
    text, n = token.content, len(token.content)
    for other in added:
        theirs = other.content
        places = [i for i in range(len(theirs)) if theirs.startswith(text, i)]
        goes_on = any(i + n < len(theirs) for i in places)
        if goes_on and other.phase in {token.phase, 1}:
            return True
        if token.phase == 2 and other.phase == 1:
            if other.single_word or other.lstrip or other.rstrip or theirs in text:
                return True
            if any(theirs.startswith(text[i:]) for i in range(n)):
                return True
    return False


def test_the_rules_agree_with_their_letter() -> None:
    rng = random.Random(7)
    seen = set()
    for _ in range(4000):
        contents = {"".join(rng.choices("ab<", k=rng.randint(1, 4))) for _ in range(5)}
        flags = ["normalized", "single_word", "lstrip", "rstrip"]
        added = [
            view(content, i, *(flag for flag in flags if rng.random() < 0.15))
            for i, content in enumerate(sorted(contents))
        ]
        for verdict in judge(added, normalizes=False)[0]:
            token = added[verdict.id]
            expected = not token.single_word and not is_taken(token, added)
            assert verdict.is_eligible == expected, (verdict, added)
            seen.add((verdict.phase, expected))
    assert len(seen) == 4


@pytest.mark.parametrize("kind", ["alike", "nested", "random"])
def test_ten_thousand_tokens_are_judged_soon(kind: str) -> None:
    rng = random.Random(9)
    contents = {
        "alike": [f"<|reserved_special_token_{i}|>" for i in range(10_000)],
        "nested": [f"<extra_id_{i}" for i in range(10_000)],
        "random": ["".join(rng.choices("abcdefghij", k=30)) for _ in range(10_000)],
    }[kind]
    added = [view(c, i, *["normalized"] * (i % 2)) for i, c in enumerate(contents)]
    scanned, _ = judge(added, normalizes=False)
    assert len(scanned) == 10_000


# -- the explanation


def test_an_explanation_is_readable() -> None:
    found = Explanation(
        enabled=True,
        reason=None,
        boundary_tokens=("<a>", "<b> c", *(f"<{i}>" for i in range(1000))),
        refused_tokens={
            "<unk>": "it is unknown",
            **{" " * i: "it is white space alone" for i in range(1, 40)},
        },
        add_special_tokens="it repeats the text",
        bypass="truncation is on",
        notes=("one thing", "and another"),
    )
    white_space = "39 (' ' '  ' '   ' '    ' ' '*5 ' '*6 ...): it is white space alone"
    assert str(found).splitlines() == [
        "cache               on",
        "boundary tokens     1,002 (<a> '<b> c' <0> <1> <2> <3> ...)",
        "refused tokens      <unk>: it is unknown",
        f"                    {white_space}",
        "add_special_tokens  passes through: it repeats the text",
        "at this moment      calls pass through: truncation is on",
        "note                one thing",
        "                    and another",
    ]


def test_an_explanation_of_a_disabled_cache_is_short() -> None:
    found = Explanation(enabled=False, reason="the model's dropout is on")
    assert str(found) == "cache  off: the model's dropout is on"
    assert "none" in str(Explanation(enabled=True, reason=None))


def test_an_explanation_stays_short_whatever_is_refused() -> None:
    refused = {f"<{i}>" * 30: f"reason {i}" for i in range(500)}
    lines = str(Explanation(enabled=True, reason=None, refused_tokens=refused))
    assert len(lines.splitlines()) < 20
    assert "and 488 more, for other reasons" in lines
    assert max(map(len, lines.splitlines())) < 100
