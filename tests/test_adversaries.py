"""What somebody would send to make a cache slow, big, wrong, or to overflow a stack.

That work is linear is measured by ``python -m benchmarks.adversaries``; here the same
texts, smaller, must get the right ids and leave a sound trie.
"""

from __future__ import annotations

import copy
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checks import assert_same
from tests.toys import special, toy
from tokcache import CachedTokenizer, SharedTokenizerCache
from tokcache._plan import Plan
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Walker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

    from tokcache import TokenIds

UNBOUNDED = 2**40
MARK = 9  # the id of "#"
SMALL_STACK = 2**16  # bytes: a call for each of 200,000 nodes would not fit by far


class Driven:
    """A trie of its own with ``#`` as its only token, and made-up ids."""

    def __init__(self, resident: int = UNBOUNDED, *, hash_bits: int = 64) -> None:
        self.trie = Trie(UNBOUNDED, resident, hash_bits=hash_bits)
        self.scanner = Scanner([("#", MARK, 1, True)])
        self.scanner.trust(0)
        self.walker = Walker(self.trie, None, self.scanner)

    @staticmethod
    def ids(text: str) -> list[int]:
        return [MARK if c == "#" else 100 + ord(c) for c in text]

    def encode(self, text: str) -> TokenIds:
        found = self.walker.lookup(text, False)
        if not isinstance(found, Plan):
            return found
        for i in range(found.n_runs):
            assert found.feed(i, self.ids(found.run_text(i))) == 0
        return found.finish()


def on_a_small_stack(work: Callable[[], None]) -> None:
    """Run something where recursion would end the process."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    before = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("end", ["clear", "evict", "dealloc"])
def test_the_deepest_trie_needs_no_stack(end: str) -> None:
    text = "".join(f"{i}#" for i in range(200_000))

    def work() -> None:
        driven = Driven()
        driven.encode(text)
        assert driven.encode(text) == driven.ids(text)
        assert driven.trie.usage()[0] == 200_000
        [(_, path)] = driven.trie.leaves()
        assert "".join(path) == text
        if end == "clear":
            driven.trie.clear()
            assert driven.trie.usage()[:4] == (0, 0, 0, 0)
            driven.trie.check()
        elif end == "evict":
            full = Driven(driven.trie.usage()[3] * 3 // 2)
            other = text.replace("#", "!#")
            full.encode(text)
            full.encode(other)
            assert full.trie.usage()[5] > 50_000
            assert full.encode(other) == full.ids(other)

    on_a_small_stack(work)


def test_the_deepest_trie_is_checked_and_copied() -> None:
    cached = CachedTokenizer(toy(special("#")), max_memory_bytes=2**26)
    text = "".join(f"{i % 10}#" for i in range(20_000))
    ids = cached.encode(text)
    cached._trie.check()
    for other in (copy.deepcopy(cached), pickle.loads(pickle.dumps(cached))):  # noqa: S301 - our own
        assert other.cache_stats().entries == 0
        assert other.encode(text) == ids
    assert pickle.loads(pickle.dumps(ids)) == ids  # noqa: S301 - our own


def test_the_widest_trie() -> None:
    driven = Driven()
    texts = [f"{i}#" for i in range(20_000)]
    for _ in range(2):
        for text in texts:
            assert driven.encode(text) == driven.ids(text)
    driven.trie.check()
    assert driven.trie.usage()[0] == 20_000
    driven.trie.clear()
    assert driven.trie.usage()[:4] == (0, 0, 0, 0)
    driven.trie.check()


@pytest.mark.parametrize("bits", [0, 1])
def test_segments_whose_hashes_are_equal(bits: int) -> None:
    """As if the secret keys were known: slow, and right."""
    driven = Driven(60_000, hash_bits=bits)
    texts = [
        "".join(f"{i % n}{'x' * (i % 3)}#" for i in range(60)) for n in range(1, 40)
    ]
    for _ in range(2):
        for text in texts:
            assert driven.encode(text) == driven.ids(text)
            driven.trie.check()
    assert driven.trie.usage()[5] > 0


def test_what_is_asked_for_outlives_a_flood() -> None:
    driven = Driven(100_000)
    asked = [f"asked {i}#" for i in range(20)]
    for _ in range(5):
        for text in asked:
            driven.encode(text)
    for i in range(20_000):
        driven.encode(f"flood {i}#")
        if i % 100 == 0:
            driven.encode(asked[i // 100 % 20])
    hits = [not isinstance(driven.walker.lookup(t, False), Plan) for t in asked]
    assert sum(hits) == 20
    driven.trie.check()


LONG = "<" * 200 + ">"
TRAPS = {
    "the first character of every token": "<" * 3000,
    "a token but for its end": "<|end|" * 500,
    "tokens that begin alike": "<<<<<<<<>" * 300,
    "a long token but for its end": "<" * 199 + "x" + "<" * 199,
    "a token everywhere": "</s>" * 700,
    "a token within a token": "<|<|end|>end|>" * 200,
}


def trapped() -> Tokenizer:
    nested = [special("<" * n) for n in (2, 3, 5, 8)]
    return toy(
        special("<|end|>"), special("<s>"), special("</s>"), *nested, special(LONG)
    )


@pytest.mark.parametrize("trap", TRAPS)
def test_texts_that_nearly_match(trap: str) -> None:
    cached, raw = CachedTokenizer(trapped()), trapped()
    text = TRAPS[trap]
    for variant in (text, text + "<s>", text, "</s>" + text, text[:-1], text + "|>"):
        assert_same(cached, raw, variant)
    cached._trie.check()


# -- a neighbour's prompts

PROMPTS = st.lists(
    st.tuples(
        st.sampled_from(["encode", "count", "batch", "clear"]),
        st.text("ab<s>", max_size=12).map(lambda text: f"<s>{text}</s>{text}"),
    ),
    max_size=12,
)


def play(cached: CachedTokenizer, call: str, text: str) -> Any:
    if call == "clear":
        return cached.clear_cache()
    if call == "batch":
        return cached.encode_batch([text, text + "a"])
    return getattr(cached, call)(text)


@given(mine=PROMPTS, theirs=PROMPTS, order=st.randoms(use_true_random=False))
def test_nothing_told_of_a_namespace_follows_from_another(
    mine: Any, theirs: Any, order: Any
) -> None:
    """Two runs that differ in another tenant's traffic only look the same to this one.

    Room is enough for all: what eviction and the gate let through is in SECURITY.md.
    """
    raw = toy(special("<s>"), special("</s>"))

    def run(others: Any) -> list[Any]:
        store = SharedTokenizerCache(2**24)
        told: list[Any] = []
        cached, stranger = (
            CachedTokenizer.with_cache(
                raw,
                None,
                store,
                name,
                on_hit=lambda seen=seen: seen.append("hit"),
                on_miss=lambda seen=seen: seen.append("miss"),
                on_tokens=seen.append,
            )
            for name, seen in ((b"mine", told), (b"theirs", []))
        )
        steps = [(cached, step) for step in mine]
        for step in others:
            steps.insert(order.randint(0, len(steps)), (stranger, step))
        for of, (call, text) in steps:
            answer = play(of, call, text)
            if of is cached:
                told += [answer, cached.cache_stats(), store.stats(b"mine")]
        store.trie.check()
        told.append(cached.explain())
        return told

    assert run(theirs) == run([])
