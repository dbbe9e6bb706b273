"""Compare a wrapped tokenizer with the raw one, and watch the inner calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokenizers import Tokenizer


class InnerCalls:
    """Record the texts that a wrapper gives to its inner tokenizer from now on.

    ``before`` is called with the text ahead of each call; it may raise.
    """

    def __init__(
        self,
        cached: CachedTokenizer,
        before: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.texts: list[str] = []
        backend: Any = cached._backend
        run, whole = backend.encode_run, backend.encode_whole

        def encode_run(text: str) -> object:
            self.texts.append(text)
            before(text)
            return run(text)

        def encode_whole(text: str, add_special_tokens: bool) -> object:
            self.texts.append(text)
            before(text)
            return whole(text, add_special_tokens)

        bare_batch, whole_batch = backend.encode_bare_batch, backend.encode_whole_batch

        def encode_bare_batch(texts: list[str]) -> object:
            self.texts += texts
            for text in texts:
                before(text)
            return bare_batch(texts)

        def encode_whole_batch(texts: list[str], add_special_tokens: bool) -> object:
            self.texts += texts
            for text in texts:
                before(text)
            return whole_batch(texts, add_special_tokens)

        backend.encode_run = encode_run
        backend.encode_whole = encode_whole
        backend.encode_bare_batch = encode_bare_batch
        backend.encode_whole_batch = encode_whole_batch

    def take(self) -> list[str]:
        """Return the texts since the last time, and forget them."""
        texts, self.texts[:] = self.texts[:], []
        return texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def raw_ids(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[int]:
    """Encode with the tokenizer itself."""
    return list(tokenizer.encode(text, add_special_tokens=special).ids)


def assert_same(
    cached: CachedTokenizer, raw: Tokenizer, text: str, *, special: bool = False
) -> list[int]:
    """Check one encode and one count against the raw tokenizer; return the ids."""
    expected = raw_ids(raw, text, special=special)
    assert cached.encode(text, add_special_tokens=special).ids == expected
    assert cached.count(text, add_special_tokens=special) == len(expected)
    return expected


def assert_exact(
    build: Callable[[], Tokenizer],
    warm: Sequence[str],
    text: str,
    *,
    stored: bool | None = None,
    hit: bool | None = None,
    **options: Any,
) -> list[int]:
    """Check that a text gets the raw tokenizer's ids, cold, warmed up and repeated.

    With ``stored`` the text must, or must not, end up in the cache; with ``hit`` the
    warm-ups must, or must not, be of use for its first encode. Returns the ids without
    special tokens.
    """
    raw = build()
    for special in (True, False):
        for warm_ups in (warm, ()):
            cached = CachedTokenizer(build(), **options)
            for warm_up in warm_ups:
                encoded = cached.encode(warm_up, add_special_tokens=special)
                assert encoded.ids == raw_ids(raw, warm_up, special=special)
            hits = cached.cache_stats().hits
            expected = raw_ids(raw, text, special=special)
            assert cached.encode(text, add_special_tokens=special).ids == expected
            if warm_ups and hit is not None:
                assert (cached.cache_stats().hits > hits) is hit
            for _ in range(2):  # a long tail is stored at its second sighting
                assert cached.encode(text, add_special_tokens=special).ids == expected
            calls = InnerCalls(cached)
            assert_same(cached, raw, text, special=special)
            assert cached.cache_stats().self_check_failures == 0
            if stored is not None:
                assert (len(calls) == 0) is stored
    return expected
