"""Check what the cache makes of an object with ``encode`` and ``decode``.

Each toy here has one of the habits that make a text's ids differ from those of its
parts. Construction must see it; where there is none, the cache must be on.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tokcache.backends import backend_for
from tokcache.backends.generic import GenericBackend
from tokcache.backends.probing import MAX_CHARS, TEXTS

from .checks import raw_ids
from .inspection import reasons
from .toys import special, toy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokcache.eligibility import Eligibility

SPECIALS = ("<a>", "<b>", "<|end|>")


class Words:
    """Give each word, number, mark and run of white space an id made of its letters."""

    words = re.compile(r"(?i:'s|'t)| ?[^\W\d_]+|\d|\s+|[^\w\s]+|_+")

    def __init__(self, specials: Sequence[str] = SPECIALS) -> None:
        self.specials = tuple(specials)
        self._split = (
            re.compile("|".join(map(re.escape, specials))) if specials else None
        )

    def encode(self, text: str) -> Any:
        ids: list[int] = []
        at = 0
        for match in self._split.finditer(text) if self._split else ():
            ids += self.plain(text[at : match.start()])
            ids.append(self.specials.index(match[0]))
            at = match.end()
        return ids + self.plain(text[at:])

    def plain(self, text: str) -> list[int]:
        """Encode what is between special tokens."""
        return [self.id_of(word) for word in self.words.findall(text)]

    @staticmethod
    def id_of(word: str) -> int:
        """Make an id of a word."""
        number = 0
        for char in reversed(word):
            number = (number * 31 + ord(char)) % 100_003
        return 100 + number

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


class AnotherPathForPlainText(Words):
    """Fold case in contractions only where a special token is in the text (B25)."""

    def encode(self, text: str) -> Any:
        pattern = Words.words.pattern
        if not any(special in text for special in self.specials):
            pattern = pattern.replace("(?i:", "(?:")
        self.words = re.compile(pattern)
        return super().encode(text)


class Slices(Words):
    """Cut a text into slices of fixed length before anything else."""

    length = 1000

    def encode(self, text: str) -> Any:
        ids: list[int] = []
        for at in range(0, len(text), self.length):
            ids += super().encode(text[at : at + self.length])
        return ids


def slices(n_chars: int) -> type[Slices]:
    """Make a class of those."""
    return type(f"Slices{n_chars}", (Slices,), {"length": n_chars})


class AnotherPathForLongText(Words):
    """Split numbers otherwise in long texts."""

    def encode(self, text: str) -> Any:
        self.words = re.compile(r" ?[^\W\d_]+|\d+|\s+|[^\w\s]+|_+")
        if len(text) < 2000:
            del self.words
        return super().encode(text)


class Chance(Words):
    """Drop a merge by chance."""

    def plain(self, text: str) -> list[int]:
        ids = super().plain(text)
        rng = random.Random()
        return [each for each in ids if rng.random() > 0.01]


class Counting(Words):
    """Number the special tokens of a text."""

    def encode(self, text: str) -> Any:
        ids = super().encode(text)
        seen = sum(each < len(self.specials) for each in ids)
        return [each + 1 if each >= 100 and seen > 3 else each for each in ids]


class LooksBehindTokens(Words):
    """Spell the word after a special token by what stands before the token."""

    def encode(self, text: str) -> Any:
        return super().encode(re.sub(r"(?<=[a-z])(<\|end\|>)(?=[a-z])", r"\1 ", text))


class StripsAtTheEnd(Words):
    """Ignore white space at the end of the whole text."""

    def encode(self, text: str) -> Any:
        return super().encode(text.rstrip())


class Framed(Words):
    """Put an id before each text, whether asked for or not."""

    def encode(self, text: str) -> Any:
        return [77, *super().encode(text)]


def inspected(
    inner: Any,
    special_tokens: Sequence[str] | None = SPECIALS,
    *,
    max_chars: int | None = 1000,
) -> Eligibility:
    """Inspect an object with a list of its tokens, by default without long texts."""
    backend = backend_for(inner, max_chars=max_chars)
    listed = None if special_tokens is None else list(special_tokens)
    return backend.inspect(listed, trust_custom=False)


# -- what is tried at construction


def test_a_tokenizer_whose_texts_split_is_cached() -> None:
    found = inspected(Words(), max_chars=None)
    assert found.enabled
    assert found.reason is None
    assert reasons(found) == dict.fromkeys(SPECIALS)
    assert [token.id for token in found.tokens] == [0, 1, 2]
    assert (found.before, found.after) == ((), ())


@pytest.mark.parametrize(
    "kind",
    [
        AnotherPathForPlainText,
        AnotherPathForLongText,
        Chance,
        Counting,
        LooksBehindTokens,
        Framed,
    ],
)
def test_a_tokenizer_whose_texts_do_not_split_is_not(kind: Callable[[], Words]) -> None:
    found = inspected(kind(), max_chars=None)
    refused = [content for content, reason in reasons(found).items() if reason]
    # What only one token does may cost that token alone.
    assert not found.enabled or (kind is LooksBehindTokens and refused == ["<|end|>"])
    assert found.enabled or found.reason


@pytest.mark.parametrize(
    "n_chars", [10, 100, 512, 1000, 4096, 10_000, 30_000, 50_000, 65_000]
)
def test_a_tokenizer_that_slices_long_texts_is_not(n_chars: int) -> None:
    found = inspected(slices(n_chars)(), max_chars=None)
    assert not found.enabled
    assert "does not split behind its special tokens" in str(found.reason)


def test_slices_longer_than_any_text_that_is_cached_do_not_matter() -> None:
    assert inspected(slices(MAX_CHARS)(), max_chars=None).enabled
    assert inspected(slices(1000)(), max_chars=1000).enabled
    assert not inspected(slices(1000)(), max_chars=1100).enabled


def test_texts_of_all_lengths_up_to_the_bound_are_tried() -> None:
    class Noting(Words):
        def encode(self, text: str) -> Any:
            lengths.add(len(text))
            return super().encode(text)

    lengths: set[int] = set()
    inspected(Noting(), max_chars=None)
    assert set(TEXTS) <= lengths
    assert max(lengths) == MAX_CHARS
    lengths.clear()
    inspected(Noting(), max_chars=300)
    assert max(lengths - {0}) == 300


def test_the_bound_is_what_was_tried_unless_the_caller_vouches() -> None:
    assert backend_for(Words()).max_chars == MAX_CHARS
    assert backend_for(Words(), max_chars=10**9).max_chars == 10**9
    assert backend_for(Words(), max_chars=10).max_chars == 10


# -- the list


def test_without_a_list_nothing_is_known() -> None:
    with pytest.raises(
        TypeError, match=r"Words does not tell its special tokens, so give"
    ):
        inspected(Words(), None)


def test_an_empty_list_turns_the_cache_off() -> None:
    found = inspected(Words(), [])
    assert (found.enabled, found.reason) == (False, "special_tokens is empty")


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        (["<|", "<|end|>"], ["'<|'", "'<|end|>'"]),
        (["<a>", "a"], ["'a'", "'<a>'"]),
        (["ab", "bc"], ["'ab'", "'bc'"]),
        (["<b>", "|x|"], ["'|x|'", "itself"]),
    ],
)
def test_a_list_that_can_overlap_turns_the_cache_off(
    listed: list[str], named: list[str]
) -> None:
    found = inspected(Words(listed), listed)
    assert not found.enabled
    assert all(name in str(found.reason) for name in named)


def test_listed_strings_that_are_no_tokens_are_refused() -> None:
    found = inspected(Words(["<a>", " "]), ["<a>", "<img>", "", " ", "<a>"])
    assert found.enabled
    assert reasons(found) == {
        "<a>": None,
        " ": "it is white space alone",
        "<img>": "encoded alone it gives 3 ids and not one",
        "": "it is empty",
    }


def test_a_listed_string_that_is_an_ordinary_word_is_refused() -> None:
    found = inspected(Words(["<a>"]), ["<a>", "hello"])
    assert found.enabled
    assert reasons(found)["hello"]
    assert reasons(found)["<a>"] is None


def test_a_list_of_no_tokens_turns_the_cache_off() -> None:
    found = inspected(Words(()), ["<img>"])
    assert found.reason == "none of the special tokens can be a boundary"


def test_a_token_that_stands_for_what_is_unknown_is_refused() -> None:
    class Closed(Words):
        def id_of(self, word: str) -> int:  # type: ignore[override]
            return super().id_of(word) if word.isascii() else 1

    found = inspected(Closed())
    assert reasons(found)["<b>"] == "its id stands for what the model does not know"
    assert found.enabled


def test_an_alphabet_without_most_characters_can_be_tried() -> None:
    class Narrow(Words):
        def plain(self, text: str) -> list[int]:
            text.encode("ascii")
            return super().plain(text)

    assert inspected(Narrow()).enabled


def test_a_tokenizer_that_fails_on_all_long_texts_is_not_cached() -> None:
    class Short(Words):
        def encode(self, text: str) -> Any:
            if len(text) > 3000:
                msg = "too long"
                raise ValueError(msg)
            return super().encode(text)

    found = inspected(Short(), max_chars=None)
    assert found.reason == "no text of 4,096 characters can be encoded: too long"
    assert inspected(Short(), max_chars=3000).enabled


# -- how it is called


@dataclass
class Answer:
    """Hold ids as some libraries do."""

    ids: list[int]


@pytest.mark.parametrize(
    "wrap",
    [
        tuple,
        np.array,
        lambda ids: np.array(ids, np.uint32),
        lambda ids: np.array(ids, np.int64),
        Answer,
        iter,
    ],
)
def test_ids_may_come_in_many_ways(wrap: Callable[[list[int]], Any]) -> None:
    class Wrapped(Words):
        def encode(self, text: str) -> Any:
            return wrap(super().encode(text))

    backend = backend_for(Wrapped(), max_chars=1000)
    assert backend.inspect(SPECIALS, trust_custom=False).enabled
    text = "hello <a> world"
    assert list(backend.encode_run(text)) == Words().encode(text)
    assert list(backend.encode_whole(text, True)) == Words().encode(text)


class Flagged(Words):
    """Add special tokens unless told not to, as transformers does."""

    def encode(self, text: str, add_special_tokens: bool = True, **_: Any) -> Any:
        ids = super().encode(text)
        return [0, *ids, 2] if add_special_tokens else ids


def test_a_flag_for_special_tokens_is_used_and_measured() -> None:
    backend = backend_for(Flagged(), max_chars=1000)
    assert isinstance(backend, GenericBackend)
    found = backend.inspect(list(SPECIALS), trust_custom=False)
    assert (found.enabled, found.before, found.after) == (True, (0,), (2,))
    assert backend.adds_special_tokens
    text = "hello <b>"
    assert backend.encode_run(text) == Words().encode(text)
    assert backend.encode_whole(text, False) == Words().encode(text)
    assert backend.encode_whole(text, True) == [0, *Words().encode(text), 2]
    assert not GenericBackend(Words()).adds_special_tokens


def test_special_tokens_that_depend_on_the_text_pass_through() -> None:
    class Odd(Words):
        def encode(self, text: str, *, add_special_tokens: bool = False) -> Any:
            ids = super().encode(text)
            return [len(ids) % 3, *ids] if add_special_tokens else ids

    found = inspected(Odd())
    assert found.enabled
    assert found.before is None
    assert found.affix_reason


def test_the_flow_and_its_options_are_the_objects_own() -> None:
    backend = backend_for(Words())
    assert backend.mode is None
    assert backend.with_options({}) is backend
    assert backend.with_options({"errors": "strict"}) is None
    assert backend.bypass_reason() is None
    backend.check_text("<a>")


def test_untrusted_parts_need_a_way_to_encode_them() -> None:
    class Ordinary(Words):
        def encode_ordinary(self, text: str) -> list[int]:
            return self.plain(text)

    assert backend_for(Words()).encode_segment("<a>", True) == [0]
    assert backend_for(Ordinary()).encode_segment("<a>", True) == [0]
    assert backend_for(Ordinary()).encode_segment("<a>", False) == Words().plain("<a>")
    with pytest.raises(NotImplementedError):
        backend_for(Words()).encode_segment("<a>", False)


def test_errors_are_the_objects_own() -> None:
    class Picky(Words):
        def encode(self, text: str) -> Any:
            if "!!" in text:
                raise KeyError(text)
            return super().encode(text)

    backend = backend_for(Picky(), max_chars=1000)
    assert backend.inspect(list(SPECIALS), trust_custom=False).enabled
    for call in (backend.encode_run, lambda text: backend.encode_whole(text, False)):
        with pytest.raises(KeyError, match="a!!"):
            call("a!!")


def test_what_is_no_tokenizer_is_a_type_error() -> None:
    for thing in (object(), "a name", 5, None):
        with pytest.raises(TypeError):
            backend_for(thing).inspect(["<a>"], trust_custom=False)


def test_no_library_is_imported_that_is_not_in_use() -> None:
    libraries = ("tiktoken", "fastokens", "gigatoken", "numpy")
    code = (
        "import sys, tokcache, tokcache.backends.tiktoken, tokcache.backends.fastokens,"
        " tokcache.backends.gigatoken, tokcache.backends.generic;"
        "from tokenizers import Tokenizer, models;"
        "tokcache.CachedTokenizer(Tokenizer(models.BPE()));"
        f"print([each for each in {libraries} if each in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_a_wrapped_tokenizer_of_a_known_library_works_too() -> None:
    class Wrapper:
        def __init__(self) -> None:
            self.inner = toy(special("<a>"), special("<b>"))

        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return raw_ids(self.inner, text, special=add_special_tokens)

        def decode(self, ids: list[int]) -> str:
            return self.inner.decode(ids)

    found = inspected(Wrapper(), ["<a>", "<b>"])
    assert found.enabled
    assert reasons(found) == {"<a>": None, "<b>": None}
