"""Call a ``gigatoken.Tokenizer`` (0.10.0).

gigatoken always looks for all its added tokens in the raw text, leftmost-longest, but
it does not tell them. A caller gives a list, which `special_tokens_of` reads from the
``tokenizer.json`` that the tokenizer was made from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokcache.backends.generic import GenericBackend
from tokcache.eligibility import FLAGS, AddedTokenView, judge

if TYPE_CHECKING:
    import os
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

    def encode_whole_batch(
        self,
        texts: list[str],
        add_special_tokens: bool,  # noqa: ARG002, FBT001 - as in encode_whole
    ) -> Sequence[Sequence[int]]:
        """Return the ids of each text; gigatoken uses all cores for it."""
        return self.inner.encode_batch_list(texts)

    def _encode(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: ARG002, FBT001
        ids: Sequence[int] = self.inner.encode(text)  # type: ignore[assignment]
        return ids

    def _list_needed(self) -> str:
        return (
            "gigatoken does not tell its added tokens: give special_tokens=[...], or "
            "special_tokens=special_tokens_of(the tokenizer.json it was made from)"
        )


def special_tokens_of(source: str | os.PathLike[str] | Mapping[str, Any]) -> list[str]:
    """Return the added tokens of a ``tokenizer.json`` that can be boundaries.

    ``source`` is the file's path, its text or what was parsed from it. The list is for
    ``special_tokens`` of a cache over a tokenizer made from the same file by a library
    that does not tell its added tokens. Whether one can be a boundary is judged for
    libraries that look for all added tokens at once as well as for those that look for
    the normalized ones later.

    >>> special_tokens_of({"added_tokens": [{"id": 5, "content": "<s>"}]})
    ['<s>']
    """
    state: Mapping[str, Any]
    if isinstance(source, Mapping):
        state = source
    elif isinstance(source, str) and source.lstrip().startswith("{"):
        state = json.loads(source)
    else:
        state = json.loads(Path(source).read_text("utf-8"))
    model = state.get("model") or {}
    tokens, _ = judge(
        [
            AddedTokenView(
                token["content"],
                token["id"],
                **{flag: bool(token.get(flag)) for flag in FLAGS},
            )
            for token in state.get("added_tokens") or ()
        ],
        normalizes=_normalizes(state.get("normalizer")),
        unknown_contents=[name] if (name := model.get("unk_token")) else (),
        unknown_ids=[unknown] if (unknown := model.get("unk_id")) is not None else (),
        phases_are_sure=False,
    )
    return [token.content for token in tokens if token.is_eligible]


def _normalizes(normalizer: Mapping[str, Any] | None) -> bool:
    """Tell whether a normalizer does anything: none does nothing, nor an empty list."""
    if not normalizer:
        return False
    if normalizer.get("type") == "Sequence":
        return any(map(_normalizes, normalizer["normalizers"]))
    return True
