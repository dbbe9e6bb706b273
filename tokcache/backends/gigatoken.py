"""Call a ``gigatoken.Tokenizer`` (0.10.0).

gigatoken always looks for all its added tokens in the raw text, leftmost-longest, but
it does not tell them. A caller gives a list, which `tokcache.special_tokens_of` reads
from the ``tokenizer.json`` that the tokenizer was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokcache.backends.generic import GenericBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gigatoken


class GigatokenBackend(GenericBackend):
    """Give a ``gigatoken.Tokenizer`` to the cache."""

    name = "gigatoken"
    rule_is_known = True
    inner: gigatoken.Tokenizer

    def __init__(self, inner: Any, max_chars: int | None = None) -> None:
        """Read nothing yet. Texts of all lengths are cached unless bounded."""
        super().__init__(inner)
        self.max_chars = max_chars

    def encode_segment(self, text: str, allow_special: bool) -> Sequence[int]:  # noqa: FBT001
        """Return the ids of a trusted part of a segment list.

        Raises ``NotImplementedError`` for the others: gigatoken always looks for its
        added tokens.
        """
        if allow_special:
            return self.encode_run(text)
        raise NotImplementedError("gigatoken looks for its added tokens in every text")

    def encode_bare_batch(self, texts: list[str]) -> Sequence[Sequence[int]]:
        """Return the ids of each text; gigatoken uses all cores for it."""
        return self.inner.encode_batch_list(texts)

    def encode_whole_batch(
        self,
        texts: list[str],
        add_special_tokens: bool,  # noqa: ARG002, FBT001 - as in encode_whole
    ) -> Sequence[Sequence[int]]:
        """Return the ids of each text; it knows no tokens to add."""
        return self.encode_bare_batch(texts)

    def _encode(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: ARG002, FBT001
        ids: Sequence[int] = self.inner.encode(text)  # type: ignore[assignment]
        return ids

    def _list_needed(self) -> str:
        return (
            "gigatoken does not tell its added tokens: give special_tokens=[...], or "
            "special_tokens=special_tokens_of(the tokenizer.json it was made from)"
        )
