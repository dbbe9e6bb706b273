"""Check a cache over a ``tiktoken.Encoding``: its ids, its refusals, its modes."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from tokcache import CachedTokenizer, SharedTokenizerCache
from tokcache.backends.tiktoken import NONE_ALLOWED

from .encodings import FIRST_SPECIAL, PATTERN, small_encoding, small_ranks
from .test_backend_tiktoken import contents, error_of

if TYPE_CHECKING:
    from collections.abc import Callable


def wrapped(encoding: tiktoken.Encoding) -> Any:
    """Wrap an encoding; what its calls return is checked by comparing it."""
    return CachedTokenizer(encoding)


def answer(call: Callable[[], Any]) -> list[int] | str | None:
    """Return the ids, or what tiktoken says to a text that it refuses."""
    found: list[list[int]] = []
    refused = error_of(lambda: found.append(list(call())))
    return refused if refused is not None else found[0]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    """Draw special tokens, and calls that allow some of them."""
    specials = draw(st.lists(contents, min_size=1, max_size=4, unique=True))
    parts = st.one_of(st.sampled_from(specials), st.text("<|ab>x ", max_size=2))
    texts = st.lists(parts, max_size=6).map("".join)
    options = st.fixed_dictionaries(
        {},
        optional={
            "allowed_special": st.one_of(
                st.just("all"), st.frozensets(st.sampled_from(specials))
            ),
            "disallowed_special": st.sampled_from(["all", (), ("a",)]),
        },
    )
    calls = draw(st.lists(st.tuples(texts, options), min_size=1, max_size=8))
    return specials, calls


@given(traffic())
def test_calls_that_allow_different_tokens_do_not_meet(
    case: tuple[list[str], list[tuple[str, dict[str, Any]]]],
) -> None:
    specials, calls = case
    encoding = small_encoding(*specials)
    cached = wrapped(encoding)
    for text, options in calls * 2:
        want = answer(lambda: encoding.encode(text, **options))  # noqa: B023
        assert answer(lambda: cached.encode(text, **options)) == want  # noqa: B023
        if isinstance(want, list):
            assert cached.count(text, **options) == len(want)
            assert [list(ids) for ids in cached.encode_batch([text], **options)] == [
                want
            ]
    assert cached.cache_stats().self_check_failures == 0


@pytest.mark.parametrize(
    "text", ["x<|b|>y<|a|>z", "x<|a|>y<|b|>z", "<|b|>", "<|a|>x<|a|>" * 20 + "<|b|>"]
)
def test_a_disallowed_token_is_refused_cold_and_warm(text: str) -> None:
    """Where it stands does not matter: in what is cached, or in the rest."""
    encoding = small_encoding()
    options: dict[str, Any] = {"allowed_special": {"<|a|>"}}
    cached = wrapped(encoding)
    refused = error_of(lambda: encoding.encode(text, **options))
    assert refused is not None
    for _ in range(3):
        assert error_of(lambda: cached.encode(text, **options)) == refused
        assert error_of(lambda: cached.count(text, **options)) == refused
        assert error_of(lambda: cached.encode_batch(["a", text], **options)) == refused
        assert cached.cache_stats().entries == 0
    passing: dict[str, Any] = {**options, "disallowed_special": ()}
    for _ in range(3):
        assert cached.encode(text, **passing) == encoding.encode(text, **passing)
        assert error_of(lambda: cached.encode(text, **options)) == refused
        assert cached.encode(text, allowed_special="all") == encoding.encode(
            text, allowed_special="all"
        )


@pytest.mark.parametrize(
    "text",
    [
        "\ud83d\ude00<|a|>x",
        "\U0001f600<|a|>x",
        "\ud83d<|a|>\ude00",
        "\ud83d\ude00<|a|>\ud83d\ude00<|b|>\ud800",
    ],
)
def test_surrogates_are_mended_cold_and_warm(text: str) -> None:
    """B38: also where the mended text is cached under its other spelling."""
    encoding = small_encoding()
    cached = wrapped(encoding)
    for turn in (text, text, text + "<|b|>more", "\U0001f600<|a|>x", text):
        assert cached.encode(turn, allowed_special="all") == encoding.encode(
            turn, allowed_special="all"
        )
    assert cached.cache_stats().hits
    assert cached.cache_stats().self_check_failures == 0


def test_a_conversation_is_encoded_turn_by_turn() -> None:
    encoding = small_encoding()
    cached = wrapped(encoding)
    text = ""
    for turn in range(20):
        text += f"<|a|>hello {turn}" + "foo " * turn + "<|b|>"
        assert cached.encode(text, allowed_special="all") == encoding.encode(
            text, allowed_special="all"
        )
    stats = cached.cache_stats()
    assert (stats.hits, stats.misses) == (19, 1)
    assert stats.token_hit_rate > 0.8


def test_marker_texts_of_users_are_no_markers() -> None:
    encoding = small_encoding()
    cached = wrapped(encoding)
    marker, plain = ("<|a|>", True), ("<|a|>", False)
    ordinary = encoding.encode_ordinary("<|a|>")
    for _ in range(2):
        assert cached.encode_segments([marker, plain]) == [FIRST_SPECIAL, *ordinary]
        assert cached.encode_segments([plain, marker]) == [*ordinary, FIRST_SPECIAL]
        assert cached.encode("<|a|><|a|>", allowed_special="all") == [FIRST_SPECIAL] * 2
    halves = cached.encode_segments([("hel", False), ("lo", False)])
    assert halves == encoding.encode("hel") + encoding.encode("lo")
    assert halves != cached.encode_segments([("he", False), ("llo", False)])


def test_without_an_allowed_token_calls_pass_through() -> None:
    encoding = small_encoding()
    cached = wrapped(encoding)
    assert cached.encode("hello foo") == encoding.encode("hello foo")
    assert error_of(lambda: cached.encode("<|a|>")) == error_of(
        lambda: encoding.encode("<|a|>")
    )
    assert cached.explain().reason == NONE_ALLOWED
    assert cached.cache_stats() == type(cached.cache_stats())()
    listed: Any = {"allowed_special": ["<|a|>"], "disallowed_special": ()}
    with pytest.raises(TypeError):
        encoding.encode("<|a|>", **listed)
    with pytest.raises(TypeError):
        cached.encode("<|a|>", **listed)


def test_all_else_is_the_encodings_own() -> None:
    encoding = small_encoding()
    cached = wrapped(encoding)
    text = "hello <|a|> foo"
    ids = list(cached.encode(text, allowed_special="all"))
    assert cached.decode(ids) == text
    assert cached.encode_ordinary(text) == encoding.encode_ordinary(text)
    assert cached.decode_with_offsets(ids) == encoding.decode_with_offsets(ids)
    assert (
        cached.encode_with_unstable("he")[0] == encoding.encode_with_unstable("he")[0]
    )
    assert cached.n_vocab == encoding.n_vocab
    batch = cached.encode_batch([text], allowed_special="all", num_threads=2)
    assert batch == [ids]


@pytest.mark.parametrize(
    ("pattern", "n_chars", "fails"),
    [(PATTERN, 1_000_000, False), (r"(x+x+)+(?=y)|\s+(?!\S)|\S", 100, True)],
)
def test_equal_characters_end_as_they_do_without_a_cache(
    pattern: str, n_chars: int, fails: bool
) -> None:
    """The second pattern gives up on them; its words pass, and nothing is stored."""
    encoding = tiktoken.Encoding(
        "x",
        pat_str=pattern,
        mergeable_ranks=small_ranks(),
        special_tokens={"<|a|>": FIRST_SPECIAL},
    )
    cached = wrapped(encoding)
    hard = "hello<|a|>" + "x" * n_chars
    for text in ("hello<|a|>", hard, "hello<|a|>foo<|a|>", hard, "hello<|a|>foo"):
        want = answer(lambda: encoding.encode(text, allowed_special="all"))  # noqa: B023
        got = answer(lambda: cached.encode(text, allowed_special="all"))  # noqa: B023
        assert got == want
        assert isinstance(want, str) is (fails and text == hard)
    assert cached.cache_stats().entries == 2


def test_wrappers_of_equal_encodings_share_what_is_cached() -> None:
    shared = SharedTokenizerCache()
    first = CachedTokenizer.with_cache(small_encoding(), None, shared)
    second = CachedTokenizer.with_cache(small_encoding(), None, shared)
    other = CachedTokenizer.with_cache(small_encoding("<|c|>"), None, shared)
    text = "hello<|a|>foo<|b|>"
    ids = first.encode(text, allowed_special="all")
    assert second.encode(text, allowed_special="all") == ids
    assert second.cache_stats().hits == 1
    assert other.encode("hello<|c|>", allowed_special="all") == [259, FIRST_SPECIAL]
    one = second.encode(text, allowed_special={"<|a|>"}, disallowed_special=())
    assert one == small_encoding().encode(
        text, allowed_special={"<|a|>"}, disallowed_special=()
    )


def test_a_copy_has_the_same_encoding() -> None:
    cached = wrapped(small_encoding())
    text = "hello<|a|>foo"
    ids = cached.encode(text, allowed_special="all")
    for again in (copy.deepcopy(cached), pickle.loads(pickle.dumps(cached))):  # noqa: S301
        assert again.cache_stats().entries == 0
        assert again.encode(text, allowed_special="all") == ids


def test_a_batch_has_the_ids_of_its_texts() -> None:
    texts = ["hello <|a|>foo" * n + "<|b|>" * (n % 3) + "x" * n for n in range(40)]
    encoding = small_encoding()
    cached = wrapped(encoding)
    options = {"allowed_special": "all"}
    one = [encoding.encode(text, allowed_special="all") for text in texts]
    for _ in range(2):
        batch = cached.encode_batch(texts, **options)
        assert [list(ids) for ids in batch] == one
    assert cached.cache_stats().hits


def test_a_flat_batch_takes_the_options_of_a_batch() -> None:
    inner = small_encoding("<a>")
    texts = ["a<a>", "", "b"]
    cached = CachedTokenizer(inner)
    ids, offsets = cached.encode_batch_flat(texts, allowed_special="all", num_threads=2)
    wanted = inner.encode_batch(texts, allowed_special="all")
    assert [ids[start:end].ids for start, end in pairwise(offsets)] == wanted


def test_what_is_no_set_for_tiktoken_is_none_here() -> None:
    inner = small_encoding("<a>")
    others: list[Any] = [{"<a>": 0}.keys(), ["<a>"], ("<a>",), {}, None]
    for allowed in others:
        with pytest.raises(TypeError):
            inner.encode("a", allowed_special=allowed)
        with pytest.raises(TypeError):
            CachedTokenizer(inner).encode("a", allowed_special=allowed)
