"""Check what the cache makes of a ``tiktoken.Encoding``.

Which of two special tokens tiktoken takes where both begin depends on their order in
its hash table. So the rule for boundaries is tested against a model of tiktoken's
matching under every order, and against tiktoken itself.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from tokcache._scan import Scanner
from tokcache.backends import backend_for
from tokcache.backends.overlap import overlapping
from tokcache.backends.tiktoken import MAX_OPTIONS, NONE_ALLOWED, TiktokenBackend

from .encodings import AB, FIRST_SPECIAL, PATTERN, small_encoding, small_ranks
from .inspection import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokcache.eligibility import Eligibility

# Short strings over few letters: they contain, begin and end with each other.
contents = st.text("<|ab>", min_size=1, max_size=4)
special_lists = st.lists(contents, min_size=1, max_size=4, unique=True)


def with_options(encoding: tiktoken.Encoding, **options: Any) -> TiktokenBackend:
    """Return the backend for calls with these options."""
    found = backend_for(encoding).with_options(options)
    assert isinstance(found, TiktokenBackend)
    return found


def inspected(
    encoding: tiktoken.Encoding,
    special_tokens: Sequence[str] | None = None,
    **options: Any,
) -> Eligibility:
    """Inspect the backend for calls with these options, or with all tokens allowed."""
    options = options or {"allowed_special": "all"}
    return with_options(encoding, **options).inspect(special_tokens)


def scanner_of(found: Eligibility) -> Scanner:
    """Make the scanner that a cache would."""
    return Scanner((t.content, t.id, t.phase, t.is_eligible) for t in found.tokens)


def matches(
    text: str, order: Sequence[str], allowed: set[str]
) -> list[tuple[int, str]]:
    """Model tiktoken: the ends of the tokens that it takes, and the tokens.

    At each place the first token of ``order`` that stands there is looked at; if it is
    not allowed, the search goes on one character later.
    """
    found = []
    at = 0
    while at < len(text):
        here = next((each for each in order if text.startswith(each, at)), None)
        if here in allowed:
            at += len(here)
            found.append((at, here))
        else:
            at += 1
    return found


# -- which tokens are boundaries


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], set[str], str]:
    """Draw special tokens, those that are allowed, and a text that is full of them."""
    specials = draw(special_lists)
    allowed = draw(st.sets(st.sampled_from(specials)))
    parts = st.one_of(st.sampled_from(specials), st.text("<|ab>x ", max_size=2))
    return specials, allowed, "".join(draw(st.lists(parts, max_size=8)))


@given(cases())
def test_boundaries_are_matched_in_whatever_order_tiktoken_looks(
    case: tuple[list[str], set[str], str],
) -> None:
    specials, allowed, text = case
    sure = [each for each in specials if each in allowed - overlapping_in(specials)]
    scanner = Scanner((each, i, 1, True) for i, each in enumerate(sure))
    seen = [(end, sure[index]) for end, index in scanner.boundaries(text)]
    for order in itertools.permutations(specials):
        taken = matches(text, order, allowed)
        assert [match for match in taken if match[1] in sure] == seen


def overlapping_in(specials: Sequence[str]) -> set[str]:
    """Return the tokens that the rule refuses."""
    return set(overlapping(specials, itself=False))


@given(cases())
def test_a_text_splits_behind_every_boundary(
    case: tuple[list[str], set[str], str],
) -> None:
    specials, allowed, text = case
    encoding = small_encoding(*specials)
    options: dict[str, Any] = {"allowed_special": allowed, "disallowed_special": ()}
    backend = with_options(encoding, **options)
    found = backend.inspect(None)
    whole = encoding.encode(text, **options)
    assert list(backend.encode_run(text)) == whole
    assert list(backend.encode_whole(text, True)) == whole
    boundaries = scanner_of(found).boundaries(text)
    ids = {token.id for token in found.tokens}
    assert [each for each in whole if each in ids] == [
        found.tokens[index].id for _, index in boundaries
    ]
    for end, index in boundaries:
        anchor = found.tokens[index].content
        left = list(backend.encode_run(text[:end]))
        right = list(backend.encode_run(anchor + text[end:]))
        assert left[-1] == right[0] == found.tokens[index].id
        assert left + right[1:] == whole


def test_a_token_that_overlaps_another_is_refused_even_if_that_is_not_allowed() -> None:
    encoding = small_encoding("<|", "<|EOS|>", "<x>")
    found = inspected(encoding, allowed_special={"<|EOS|>", "<x>"})
    assert [token.content for token in found.tokens] == ["<x>"]
    assert reasons(found) == {
        "<x>": None,
        "<|EOS|>": "it can overlap '<|', and either of them can win",
        "<|": "it can overlap '<|EOS|>', and either of them can win",
    }


def test_a_token_that_overlaps_itself_is_a_boundary() -> None:
    encoding = small_encoding("|x|")
    found = inspected(encoding)
    assert [token.content for token in found.tokens] == ["|x|"]
    assert scanner_of(found).boundaries("|x|x|x|") == [(3, 0), (7, 0)]
    backend = with_options(encoding, allowed_special="all")
    assert list(backend.encode_run("|x|x|x|")) == [FIRST_SPECIAL, 120, FIRST_SPECIAL]


def test_a_call_without_an_allowed_token_has_no_boundary() -> None:
    backend = backend_for(small_encoding())
    found = backend.inspect(None, trust_custom=False)
    assert (found.enabled, found.reason) == (False, NONE_ALLOWED)
    assert backend.mode is None
    assert not inspected(small_encoding(), allowed_special={"<|c|>"}).enabled


def test_a_call_has_the_boundaries_that_it_allows() -> None:
    found = inspected(small_encoding(), allowed_special={"<|b|>"})
    assert found.enabled
    assert reasons(found) == {
        "<|b|>": None,
        "<|a|>": "it is not among the call's allowed special tokens",
    }
    assert (found.before, found.after) == ((), ())


def test_a_list_restricts_the_boundaries() -> None:
    encoding = small_encoding()
    found = inspected(encoding, ["<|a|>"])
    assert reasons(found)["<|b|>"] == "it is not in special_tokens"
    assert [token.content for token in found.tokens] == ["<|a|>"]
    assert inspected(encoding, []).reason == "special_tokens is empty"
    with pytest.raises(ValueError, match=r"no added token of the tokenizer: '<\|c\|>'"):
        inspected(encoding, ["<|a|>", "<|c|>"])
    with pytest.raises(TypeError):
        inspected(encoding, "<|a|>")


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ({"<|a|>": 104, "<|b|>": 1001}, "its id 104 is that of other text, too"),
        ({"<|a|>": 1000, "<|b|>": 1000}, "another added token has its id 1000"),
        ({"<|a|>": 1000, " ": 1001}, "it is white space alone"),
    ],
)
def test_a_token_whose_id_does_not_tell_it_is_refused(
    ids: dict[str, int], reason: str
) -> None:
    found = inspected(small_encoding(ids=ids))
    assert reason in reasons(found).values()
    refused = {content for content, why in reasons(found).items() if why == reason}
    assert not refused & {token.content for token in found.tokens}


# -- options


def test_equal_allowed_tokens_are_one_mode_whatever_is_disallowed() -> None:
    encoding = small_encoding()
    base = backend_for(encoding)
    every = with_options(encoding, allowed_special="all")
    assert every.mode == frozenset(AB)
    assert with_options(encoding, allowed_special=set(AB)).mode == every.mode
    assert isinstance(with_options(encoding, allowed_special={"<|a|>"}).mode, frozenset)
    assert with_options(encoding, allowed_special={*AB, "<|c|>"}).mode == every.mode
    assert with_options(encoding, disallowed_special=()).mode is None
    one = base.with_options({"allowed_special": {"<|a|>"}, "disallowed_special": ()})
    two = base.with_options({"allowed_special": {"<|a|>"}})
    assert one is not None
    assert two is not None
    assert one.mode == two.mode == frozenset({"<|a|>"})


def test_equal_options_give_the_backend_that_is_there() -> None:
    base = backend_for(small_encoding())
    assert base.with_options({}) is base
    assert base.with_options({"allowed_special": set()}) is base
    options = {"allowed_special": frozenset(AB), "disallowed_special": ()}
    first = base.with_options(options)
    assert first is not None
    assert base.with_options(options) is first
    assert first.with_options(options) is first
    assert first.with_options({}) is base
    again = {"allowed_special": list(AB), "disallowed_special": []}
    assert base.with_options(again | {"allowed_special": set(AB)}) is not None


def test_the_memory_of_options_is_bounded() -> None:
    base = backend_for(small_encoding())
    assert isinstance(base, TiktokenBackend)
    for i in range(3 * MAX_OPTIONS):
        base.with_options({"disallowed_special": (f"{i}",)})
    assert base._option.cache_info().currsize == MAX_OPTIONS  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_special": "<|a|>"},
        {"allowed_special": ["<|a|>"]},
        {"allowed_special": None},
        {"allowed_special": {1}},
        {"allowed_special": frozenset({b"<|a|>"})},
        {"disallowed_special": "<|a|>"},
        {"disallowed_special": None},
        {"disallowed_special": ([],)},
        {"disallowed_special": 5},
        {"pad": True},
        {"allowed_special": "all", "errors": "strict"},
    ],
)
def test_options_that_tiktoken_takes_in_its_own_way_are_its_own(
    options: dict[str, Any],
) -> None:
    assert backend_for(small_encoding()).with_options(options) is None


# -- the check for disallowed tokens


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"allowed_special": {"<|a|>"}},
        {"allowed_special": "all"},
        {"disallowed_special": ()},
        {"disallowed_special": ["hello"]},
        {"allowed_special": "all", "disallowed_special": {"<|a|>", "x"}},
        {"disallowed_special": ("",)},
        {"allowed_special": {"<|a|>"}, "disallowed_special": ("<|a", "a|>")},
    ],
)
@pytest.mark.parametrize(
    "text",
    ["hello", "x<|a|>y", "<|b|>", "<|a|><|b|>", "", "<|a", "\ud800<|b|>", "é<|a|>"],
)
def test_what_tiktoken_refuses_is_refused_with_its_own_words(
    options: dict[str, Any], text: str
) -> None:
    encoding = small_encoding()
    backend = with_options(encoding, **options)
    refused = error_of(lambda: encoding.encode(text, **options))
    assert error_of(lambda: backend.check_text(text)) == refused
    # What was let pass is encoded by any backend of the mode.
    want = encoding.encode(text, **(options | {"disallowed_special": ()}))
    assert list(backend.encode_whole(text, False)) == want
    assert backend.encode_whole_batch([text, text], True) == [want, want]


def error_of(call: Callable[[], object]) -> str | None:
    """Return the words of the ``ValueError`` that a call raises."""
    try:
        call()
    except ValueError as error:
        return f"{error}"
    return None


# -- surrogates


@pytest.mark.parametrize(
    "text",
    [
        "\ud83d\ude00<|a|>x",
        "\ud83d<|a|>\ude00",
        "a\ud800<|a|>b",
        "<|a|>\udc00\ud800<|b|>",
        "\ufeff\ud83d\ude00<|a|>",
        "hello<|a|>\ud83d" + "hello " * 1000,
        "\ufeff<|a|>" + "\ud83d\ude00" * 2100 + "<|b|>",
    ],
)
def test_surrogates_are_mended_in_a_part_as_in_the_whole(text: str) -> None:
    encoding = small_encoding()
    backend = with_options(encoding, allowed_special="all")
    whole = encoding.encode(text, allowed_special="all")
    assert list(backend.encode_run(text)) == whole
    for end, index in scanner_of(backend.inspect(None)).boundaries(text):
        left = list(backend.encode_run(text[:end]))
        right = list(backend.encode_run(AB[index] + text[end:]))
        assert left + right[1:] == whole


@pytest.mark.parametrize("content", ["\U0001f600", "<\ufffd>", "a\U0001f600b"])
def test_a_token_that_only_the_mended_text_has_is_encoded_as_one(content: str) -> None:
    encoding = small_encoding(content, "<|a|>")
    backend = with_options(encoding, allowed_special="all")
    for text in ("x\ud83d\ude00y<|a|>", "<\ud800><|a|>", "a\ud83d\ude00b\ud800<|a|>z"):
        assert list(backend.encode_run(text)) == encoding.encode(
            text, allowed_special="all"
        )


# -- runs and parts


def test_long_runs_have_the_same_ids_as_short_ones() -> None:
    encoding = small_encoding()
    backend = with_options(encoding, allowed_special="all")
    for text in ("hello <|a|>" * 3, "hello <|a|>\n\n" * 1000, "é" * 5000 + "<|b|>"):
        assert list(backend.encode_run(text)) == encoding.encode(
            text, allowed_special="all"
        )


def test_a_thousand_allowed_tokens_are_not_gone_through_for_each_run() -> None:
    """Those that the run does not have change nothing, so they are not passed on."""
    contents = [f"<|reserved_{i}|>" for i in range(1000)]
    encoding = small_encoding(*contents, "<|reserved_1|><|reserved_2|>")
    backend = with_options(encoding, allowed_special="all")
    assert backend._not_sought == {
        "<|reserved_1|>",
        "<|reserved_2|>",
        "<|reserved_1|><|reserved_2|>",
    }
    for text in ("hello", "<|reserved_7|>x<|reserved_1|><|reserved_2|>y", contents[9]):
        assert list(backend.encode_run(text)) == encoding.encode(
            text, allowed_special="all"
        )


def test_parts_of_a_segment_list_are_trusted_or_plain_text() -> None:
    encoding = small_encoding()
    base = backend_for(encoding)
    marker = [FIRST_SPECIAL]
    assert base.encode_segment("<|a|>", True) == marker
    assert base.encode_segment("<|a|>", False) == encoding.encode_ordinary("<|a|>")
    one = with_options(encoding, allowed_special={"<|b|>"})
    assert one.encode_segment("<|a|>", True) == encoding.encode_ordinary("<|a|>")
    assert one.encode_segment("<|b|>", True) == [FIRST_SPECIAL + 1]
    assert one.encode_segment("<|b|>", False) == encoding.encode_ordinary("<|b|>")


# -- identity


def test_the_fingerprint_is_of_what_decides_the_ids_and_not_of_the_name() -> None:
    def fingerprint(**changes: Any) -> bytes:
        parts: dict[str, Any] = {
            "pat_str": PATTERN,
            "mergeable_ranks": small_ranks(),
            "special_tokens": {"<|a|>": 1000},
        }
        return backend_for(
            tiktoken.Encoding(**{"name": "x"} | parts | changes)
        ).fingerprint()

    ranks = small_ranks()
    moved = ranks | {b"hello": ranks[b"foo"], b"foo": ranks[b"hello"]}
    different = [
        fingerprint(),
        fingerprint(pat_str=r"\S+|\s+"),
        fingerprint(mergeable_ranks=moved),
        fingerprint(mergeable_ranks={k: v for k, v in ranks.items() if k != b"foo"}),
        fingerprint(special_tokens={"<|a|>": 1001}),
        fingerprint(special_tokens={"<|b|>": 1000}),
        fingerprint(special_tokens={}),
    ]
    assert len(set(different)) == len(different)
    reordered = dict(sorted(ranks.items(), reverse=True))
    assert fingerprint(name="y", mergeable_ranks=reordered) == fingerprint()


class Shouting(tiktoken.Encoding):
    """Encode in a way of its own."""

    def encode(self, text: str, **options: Any) -> list[int]:
        return super().encode(text.upper(), **options)


def test_a_subclass_that_encodes_in_its_own_way_is_an_unknown_object() -> None:
    shouting = Shouting(
        "x", pat_str=PATTERN, mergeable_ranks=small_ranks(), special_tokens={"<A>": 999}
    )
    assert backend_for(shouting).name == "generic"
    with pytest.raises(TypeError, match="does not tell its special tokens"):
        backend_for(shouting).inspect(None, trust_custom=False)
