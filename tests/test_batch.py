"""Check batches: planned before they work, and equal to the loop."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers, processors

from tests import data
from tests.checks import InnerCalls
from tests.toys import special, toy
from tokcache import CachedTokenizer, CacheTokenUsage, TokenIds
from tokcache import batch as batch_module
from tokcache import state as state_module
from tokcache.eligibility import probe_token as trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

PARTS = ["<s>", "<e>", "hello", "foo", " hello", "x", "\n", "é", "🙂"]


def build() -> Tokenizer:
    return toy(special("<s>"), special("<e>"), template="<s> $A")


def usages(cached: CachedTokenizer) -> list[CacheTokenUsage]:
    """Return a list that what the wrapper tells its observer is put into."""
    told: list[CacheTokenUsage] = []
    cached.with_token_observer(told.append)
    return told


texts_of_parts = st.lists(
    st.lists(st.sampled_from(PARTS), max_size=8).map("".join), max_size=10
)


@given(
    texts=texts_of_parts,
    warm=texts_of_parts,
    flag=st.booleans(),
    shuffle=st.randoms(use_true_random=False),
    budget=st.sampled_from([0, 16, 64, 2**20]),
    n_texts=st.sampled_from([1, 1, 3, 128]),
)
def test_a_batch_is_the_loop(  # noqa: PLR0913, PLR0917 - all that can matter
    texts: list[str],
    warm: list[str],
    flag: bool,
    shuffle: random.Random,
    budget: int,
    n_texts: int,
) -> None:
    """Duplicates, prefixes of each other in any order, empty texts, any budget."""
    texts = [*texts, *(text[: len(text) // 2] for text in texts), *texts[:2]]
    shuffle.shuffle(texts)
    one = CachedTokenizer(build(), max_memory_bytes=budget)
    many = CachedTokenizer(build(), max_memory_bytes=budget)
    for text in warm:
        one.encode(text)
        many.encode(text)
    told_one, told_many = usages(one), usages(many)
    want = [one.encode(text, add_special_tokens=flag).ids for text in texts]
    with patch.object(batch_module, "JOINED_TEXTS", n_texts):
        got = many.encode_batch(texts, add_special_tokens=flag)
    assert [ids.ids for ids in got] == want
    assert want == [build().encode(t, add_special_tokens=flag).ids for t in texts]
    assert told_many == told_one
    assert many.cache_stats() == one.cache_stats()
    many._trie.check()


def test_what_a_batch_lacks_is_encoded_in_one_call_and_once() -> None:
    cached = CachedTokenizer(build())
    cached.encode("<s>a<e>")  # the tokens are tried now
    turns = ["", "<s>hello hello<e>", "foo foo foo foo", "<e><s>", "x hello x" * 9]
    texts = ["".join(turns[:n]) for n in (3, 5, 2, 5, 4, 1)]
    calls: list[list[str]] = []
    backend: Any = cached._backend
    inner = backend.encode_bare_batch

    def encode_bare_batch(runs: list[str]) -> object:
        calls.append(runs)
        return inner(runs)

    backend.encode_bare_batch = encode_bare_batch
    single = InnerCalls(cached)
    got = cached.encode_batch(texts, add_special_tokens=False)
    want = [build().encode(t, add_special_tokens=False).ids for t in texts]
    assert [ids.ids for ids in got] == want
    assert len(calls) == 1
    # Behind each run's anchor nothing is given twice, nor to a call of its own.
    given_chars = sum(map(len, calls[0]))
    assert given_chars < len(texts[1]) + len(texts[0]) + 3 * len("<s>")
    assert not [text for text in single if text and text not in calls[0]]


def test_texts_without_a_boundary_are_one_call_too() -> None:
    cached = CachedTokenizer(build())
    calls: list[list[str]] = []
    backend: Any = cached._backend
    inner = backend.encode_whole_batch

    def encode_whole_batch(texts: list[str], flag: bool) -> object:
        calls.append(texts)
        return inner(texts, flag)

    backend.encode_whole_batch = encode_whole_batch
    texts = ["hello", "foo", "hello", ""]
    got = cached.encode_batch(texts)
    assert [ids.ids for ids in got] == [build().encode(text).ids for text in texts]
    assert calls == [["hello", "foo", ""]]
    stats = cached.cache_stats()
    assert (stats.misses, stats.pass_throughs) == (4, 0)


def test_a_cache_that_is_off_uses_the_tokenizers_own_batch() -> None:
    cached = CachedTokenizer(build(), [])
    calls = InnerCalls(cached)
    texts = ["<s>hello<e>", "foo"]
    got = cached.encode_batch(texts)
    assert [ids.ids for ids in got] == [build().encode(text).ids for text in texts]
    assert list(calls) == texts


@pytest.mark.parametrize("place", [0, 1, 3])
def test_an_error_comes_after_the_batch_and_names_its_text(place: int) -> None:
    cached = CachedTokenizer(build())
    texts = ["<s>a<e>", "<s>b<e>foo", "<s>c<e>"]
    texts.insert(place, "<s>\ud800<e>")
    with pytest.raises(TypeError) as raised:
        cached.encode_batch(texts)
    assert raised.value.index == place  # type: ignore[attr-defined]
    calls = InnerCalls(cached)
    for text in texts[:place] + texts[place + 1 :]:
        assert cached.encode(text).ids == build().encode(text).ids
    assert not len(calls)
    cached._trie.check()


def test_the_first_of_several_errors_is_raised() -> None:
    cached = CachedTokenizer(build())
    with pytest.raises(TypeError) as raised:
        cached.encode_batch(["<s>", "\ud800", "<e>\ud800"])
    assert raised.value.index == 1  # type: ignore[attr-defined]


@pytest.mark.skipif(
    not hasattr(pre_tokenizers, "FixedLength"), reason="no part of it panics for a text"
)
def test_a_panic_of_the_tokenizer_fails_its_text_only() -> None:
    """A panic in Rust code is no Exception."""
    inner = build()
    # It takes no text but tokens: it cuts what is between them to pieces of no length.
    inner.pre_tokenizer = pre_tokenizers.FixedLength(0)
    cached = CachedTokenizer(inner)
    texts = ["<s><e>", "<s>a<e>", "<e>", "b"]
    for call in (cached.encode_batch, cached.encode_batch_flat):
        with pytest.raises(BaseException, match="chunk size") as raised:
            call(texts)
        assert not isinstance(raised.value, Exception)
        assert raised.value.index == 1  # type: ignore[attr-defined]
    stats = cached.cache_stats()
    assert stats.hits + stats.misses == 4  # the two that can be encoded, twice
    assert cached.encode_batch(["<s><e>", "<e>"])[0].ids == inner.encode("<s><e>").ids


class OwnIndexError(ValueError):
    """Have an ``index`` that nobody can set."""

    index = property(lambda _: 5)


def test_an_error_that_cannot_take_the_place_is_raised_as_it_is() -> None:
    class Failing:
        def encode(self, text: str) -> list[int]:
            if "bad" in text:
                raise OwnIndexError(text)
            return [ord(letter) for letter in text]

        def decode(self, ids: list[int]) -> str:
            return "".join(map(chr, ids))

    cached = CachedTokenizer(Failing(), ["#"])
    for call in (cached.encode_batch, cached.encode_batch_flat):
        with pytest.raises(OwnIndexError, match="bad"):
            call(["a#b", "bad#", "c"])


def test_a_huge_batch_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "CHUNK_CHARS", 50)
    cached = CachedTokenizer(build())
    texts = [f"<s>hello {i % 17}<e>{i % 5}foo" for i in range(100)]
    calls = InnerCalls(cached)
    got = cached.encode_batch(texts)
    assert [ids.ids for ids in got] == [build().encode(text).ids for text in texts]
    assert sum(map(len, calls)) < sum(map(len, texts)) / 2


def test_tokens_refused_at_their_first_trial_in_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def probe_token(*args: Any) -> str | None:
        return "refused by the test" if args[3] == "<e>" else trial(*args)

    monkeypatch.setattr(state_module, "probe_token", probe_token)
    cached = CachedTokenizer(build())
    texts = ["<s>hello<e>foo<s>", "<e>foo", "<s>hello<e>foo<s>x"]
    got = cached.encode_batch(texts)
    assert [ids.ids for ids in got] == [build().encode(text).ids for text in texts]
    assert cached.explain().boundary_tokens == ("<s>",)


def test_a_change_of_the_tokenizer_while_a_batch_runs() -> None:
    cached, raw = CachedTokenizer(build()), build()
    texts = [f"<s>hello{i}<e>foo" for i in range(6)]
    backend: Any = cached._backend
    inner = backend.encode_bare_batch

    def encode_bare_batch(runs: list[str]) -> object:
        found = inner(runs)
        cached.add_tokens(["ell"])
        return found

    backend.encode_bare_batch = encode_bare_batch
    got = cached.encode_batch(texts)
    raw.add_tokens(["ell"])
    assert [ids.ids for ids in got] == [raw.encode(text).ids for text in texts]
    backend.encode_bare_batch = inner
    again = cached.encode_batch(texts)
    assert [ids.ids for ids in again] == [raw.encode(text).ids for text in texts]


@pytest.mark.parametrize("flag", [True, False])
def test_a_change_behind_the_wrapper_while_a_batch_runs(flag: bool) -> None:
    inner = build()
    cached, raw = CachedTokenizer(inner), build()
    texts = [f"<s>hello{i}<e>foo hello" for i in range(300)]
    backend: Any = cached._backend
    encode = backend.encode_bare_batch

    def encode_bare_batch(runs: list[str]) -> object:
        found = encode(runs[:7])
        inner.add_tokens(["ell"])
        return [*found, *encode(runs[7:])]

    backend.encode_bare_batch = encode_bare_batch
    got = cached.encode_batch(texts, add_special_tokens=flag)
    raw.add_tokens(["ell"])
    want = [raw.encode(text, add_special_tokens=flag).ids for text in texts]
    assert [ids.ids for ids in got] == want
    assert [cached.encode(t, add_special_tokens=flag).ids for t in texts] == want


def lower_case(cached: CachedTokenizer) -> None:
    cached.normalizer = normalizers.Lowercase()


CHANGES: dict[str, Callable[[CachedTokenizer], object]] = {
    "normalizer": lower_case,
    "token": lambda cached: cached.add_tokens(["FOO"]),
    "token behind the wrapper": lambda cached: cached.inner.add_tokens(["FOO"]),
    "truncation": lambda cached: cached.inner.enable_truncation(2),
    "no truncation": lambda cached: cached.inner.no_truncation(),
    "padding": lambda cached: cached.inner.enable_padding(length=7),
    "special tokens as text": lambda cached: setattr(
        cached.inner, "encode_special_tokens", True
    ),
    "nothing around": lambda cached: setattr(
        cached.inner, "post_processor", processors.ByteLevel()
    ),
}
MIXED = ["<s>FOO<e>foo", "hello FOO", "<s>FOO<e>x", "FOO x FOO", "<e>FOO", "x", "FOO"]


@pytest.mark.parametrize("name", CHANGES)
def test_an_observer_that_changes_the_tokenizer_in_the_middle_of_a_batch(
    name: str,
) -> None:
    """The texts that follow have new ids, those without a boundary too."""

    def changing(cached: CachedTokenizer) -> CachedTokenizer:
        if name == "no truncation":
            cached.inner.enable_truncation(2)
        pending = [CHANGES[name]]
        cached.with_token_observer(lambda _: pending and pending.pop()(cached))
        return cached

    loop, batch = (changing(CachedTokenizer(build())) for _ in range(2))
    want = [loop.encode(text).ids for text in MIXED]
    assert [ids.ids for ids in batch.encode_batch(MIXED)] == want
    assert [loop.inner.encode(text).ids for text in MIXED[1:]] == want[1:]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_a_batchs_encode_and_its_results(name: str) -> None:
    cached = CachedTokenizer(build())
    if name == "no truncation":
        cached.inner.enable_truncation(2)
    backend: Any = cached._backend
    inner = backend.encode_whole_batch

    def encode_whole_batch(*args: Any) -> object:
        found = list(inner(*args))
        CHANGES[name](cached)
        return found

    backend.encode_whole_batch = encode_whole_batch
    got = [ids.ids for ids in cached.encode_batch(MIXED)]
    assert got == [cached.inner.encode(text).ids for text in MIXED]


def test_a_tokenizer_that_changed_is_read_again_for_a_batch_without_boundaries() -> (
    None
):
    """Else each batch would be encoded twice, once in vain."""
    cached = CachedTokenizer(build())
    texts = ["hello FOO", "FOO", "x" * 30]
    cached.encode_batch(texts)
    cached.inner.add_tokens(["FOO"])
    want = [cached.inner.encode(text).ids for text in texts]
    assert [ids.ids for ids in cached.encode_batch(texts)] == want
    calls = InnerCalls(cached)
    assert [ids.ids for ids in cached.encode_batch(texts)] == want
    assert len(calls) == len(texts)


def test_what_a_batch_serves_is_not_looked_at_again() -> None:
    """Reading a thousand added tokens for each text would take longer than encoding."""
    cached = CachedTokenizer(build())
    backend: Any = cached._backend
    looked: list[int] = []
    is_stale = backend.is_stale

    def counting(n_chars: int) -> bool:
        looked.append(n_chars)
        return bool(is_stale(n_chars))

    backend.is_stale = counting
    texts = [f"<s>hello{i}<e>foo" for i in range(50)]
    cached.encode_batch(texts)
    assert len([n for n in looked if n > 1]) == 1
    assert sum(looked) > 400


@pytest.mark.parametrize("family", data.families()[:3])
def test_growing_conversations_of_real_tokenizers(family: str) -> None:
    tokenizer = data.load_family(family)
    prompts = []
    for file in data.conversation_files()[:2]:
        for messages in data.conversations(file, 3):
            prompts += [
                data.render(family, messages[:n]) for n in range(1, len(messages), 3)
            ]
    random.Random(7).shuffle(prompts)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    cached = CachedTokenizer(data.load_family(family))
    cached.no_truncation()
    cached.no_padding()
    got = cached.encode_batch(prompts, add_special_tokens=False)
    want = tokenizer.encode_batch(prompts, add_special_tokens=False)
    assert [ids.ids for ids in got] == [encoding.ids for encoding in want]


def test_a_flat_batch_is_one_buffer_of_ids_and_one_of_offsets() -> None:
    cached = CachedTokenizer(build())
    texts = ["<s>hello<e>foo", "", "<s>hello<e>foo", "x"]
    for flag in (True, False):
        ids, offsets = cached.encode_batch_flat(texts, add_special_tokens=flag)
        assert isinstance(ids, TokenIds)
        flat, ends = np.asarray(ids), np.asarray(offsets)
        assert (flat.dtype.str[1:], ends.dtype.str[1:]) == ("u4", "i8")
        assert ends.flags.c_contiguous
        assert len(ends) == len(texts) + 1
        want = [build().encode(t, add_special_tokens=flag).ids for t in texts]
        assert [flat[a:b].tolist() for a, b in itertools.pairwise(ends)] == want
    empty = cached.encode_batch_flat([])
    assert (list(empty.ids), list(empty.offsets)) == ([], [0])


def test_a_flat_batch_has_ids_only() -> None:
    cached = CachedTokenizer(build())
    bad: Any
    for bad in ([("a", "b")], "text", 7, [1]):
        with pytest.raises(TypeError):
            cached.encode_batch_flat(bad)


@pytest.mark.parametrize("off", ["plain", "list", "affixes"])
@pytest.mark.parametrize("direction", ["left", "right"])
def test_a_batch_of_several_parts_is_padded_to_its_longest_text(
    off: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "CHUNK_CHARS", 8)
    template = "<a> $A $A" if off == "affixes" else "<a> $A"
    tokenizer = toy(special("<a>"), template=template)
    tokenizer.enable_padding(pad_id=7, pad_to_multiple_of=4, direction=direction)
    tokenizer.encode_special_tokens = off == "plain"
    cached = CachedTokenizer(tokenizer, [] if off == "list" else None)
    texts = ["hello<a>foo" * 3, "a", "b<a>", "", "foo<a>" * 2, "a"]
    for add in (True, False):
        wanted = tokenizer.encode_batch(texts, add_special_tokens=add)
        found: Any = cached.encode_batch(texts, add_special_tokens=add)
        assert [ids.ids for ids in found] == [ids.ids for ids in wanted]
