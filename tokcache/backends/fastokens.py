"""Read and call a ``fastokens.Tokenizer`` (0.3.5).

fastokens lists its added tokens with their flags. It looks for them as ``tokenizers``
does, first for those of the raw text and then for the normalized ones, or for all at
once: that depends on the normalizer, which it does not tell, and even on the text. So
tokens are judged for both ways, none may overlap one of the other phase, and those that
are looked for in the normalized text are boundaries only if the caller lists them,
which vouches that there is no normalizer.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokcache.backends.generic import GenericBackend
from tokcache.backends.overlap import overlapping
from tokcache.backends.probing import examine
from tokcache.backends.shape import Shape
from tokcache.eligibility import (
    NORMALIZED,
    AddedTokenView,
    Eligibility,
    check_list,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import fastokens

# Characters from which on ids are taken as a buffer: no int object for each of them.
# Below, the batch call costs more than it saves.
LARGE = 4096

VOUCH = (
    f"{NORMALIZED}, unless there is no normalizer, which fastokens does not tell: "
    "special_tokens vouches for it (see special_tokens_of)"
)


class FastokensBackend(GenericBackend):
    """Give a ``fastokens.Tokenizer`` to the cache."""

    name = "fastokens"
    inner: fastokens.Tokenizer

    def __init__(self, inner: Any, max_chars: int | None = None) -> None:
        """Read nothing yet. Texts of all lengths are cached unless bounded."""
        super().__init__(inner)
        self.max_chars = max_chars
        self._size = self._counts()

    def inspect(
        self, special_tokens: Sequence[str] | None, *, trust_custom: bool = False
    ) -> Eligibility:
        """Find out which added tokens are boundaries; see `Backend.inspect`."""
        del trust_custom  # nothing of a fastokens tokenizer is made in Python
        check_list(special_tokens)
        self._size = self._counts()
        added = [AddedTokenView(**token) for token in self.inner.added_tokens()]
        if special_tokens is not None and not special_tokens:
            return Eligibility(enabled=False, reason="special_tokens is empty")
        mixed = _mixed(added)
        listed = frozenset(special_tokens or ())
        vouched = any(token.normalized for token in added if token.content in listed)
        if vouched:  # then all of them are looked for in the raw text
            added = [replace(token, normalized=False) for token in added]
        tokens, unscanned = judge(added, normalizes=not vouched, listed=special_tokens)
        tokens = tuple(
            replace(token, reason=token.reason or mixed.get(token.content))
            for token in tokens
        )
        unscanned = tuple(
            replace(token, reason=VOUCH) if token.reason == NORMALIZED else token
            for token in unscanned
        )
        if not any(token.is_eligible for token in tokens):
            return Eligibility(
                enabled=False,
                reason="none of the added tokens can be a boundary",
                tokens=tokens,
                unscanned=unscanned,
            )
        if self.bypass_reason() is not None:
            return Eligibility(
                enabled=True,
                reason=None,
                tokens=tokens,
                unscanned=unscanned,
                affix_reason="truncation or padding was on when it was to be measured",
            )
        return examine(self._encode, tokens, unscanned, self.max_chars)

    def bypass_reason(self) -> str | None:
        """Return which live setting makes calls pass through now, or None."""
        if self.inner.truncation is not None:
            return "truncation is on"
        if self.inner.padding is not None:
            return "padding is on"
        return None

    def is_stale(self, n_chars: int) -> bool:  # noqa: ARG002
        """Compare the sizes of the vocabulary and of what goes around a text.

        Flags of a token that was added again do not show.
        """
        return self._counts() != self._size

    def live_settings(self) -> tuple[object, ...]:
        """Return the settings that are looked at in every call."""
        return self.inner.truncation, self.inner.padding

    def padding(self) -> Shape:
        """Return what padding alone makes of ids."""
        return Shape.of_padding(self.inner.padding)

    def encode_bare_batch(self, texts: list[str]) -> Iterable[Sequence[int]]:
        """Return the ids of each text; fastokens uses all cores for it."""
        if self.bypass_reason() is not None:
            return super().encode_bare_batch(texts)
        buffer, offsets = self.inner.encode_batch_flat(texts)
        ids = memoryview(buffer).cast("I")
        ends = memoryview(offsets).cast("Q").tolist()
        return [ids[start:end] for start, end in pairwise(ends)]

    def encode_whole_batch(
        self,
        texts: list[str],
        add_special_tokens: bool,  # noqa: FBT001 - as in encode_whole
    ) -> Sequence[Sequence[int]]:
        """Return the ids of each text; fastokens uses all cores for it."""
        return [e.ids for e in self.inner.encode_batch(texts, add_special_tokens)]

    def _counts(self) -> tuple[int, int]:
        return (
            self.inner.vocab_size,
            self.inner.num_special_tokens_to_add(False),  # noqa: FBT003
        )

    def _encode(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: FBT001
        if len(text) < LARGE or self.bypass_reason() is not None:
            ids: Sequence[int] = self.inner.encode(text, add_special_tokens).ids
            return ids
        buffer, _ = self.inner.encode_batch_flat([text], add_special_tokens)
        return memoryview(buffer).cast("I")


def _mixed(added: Sequence[AddedTokenView]) -> dict[str, str]:
    """Find the tokens that the order of the phases can decide about.

    They overlap a token of the other phase, or one that does.
    """
    first = [token.content for token in added if not token.normalized]
    second = [token.content for token in added if token.normalized]
    mixed = overlapping(first, second) | overlapping(second, first)
    rest = {*first, *second} - mixed.keys()
    while more := overlapping(rest, mixed):
        mixed |= more
        rest -= more.keys()
    return {
        content: f"it can overlap {other!r}, and either of them may be looked for first"
        for content, other in mixed.items()
    }
