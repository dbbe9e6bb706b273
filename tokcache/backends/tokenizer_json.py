"""Read the added tokens of a ``tokenizer.json`` for libraries that hide them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokcache.eligibility import FLAGS, AddedTokenView, judge

if TYPE_CHECKING:
    import os


def special_tokens_of(source: str | os.PathLike[str] | Mapping[str, Any]) -> list[str]:
    """Return the added tokens of a ``tokenizer.json`` that can be boundaries.

    ``source`` is the file's path, its text or what was parsed from it. The list is for
    ``special_tokens`` of a cache over a tokenizer made from the same file by a library
    that does not tell its added tokens. Whether one can be a boundary is judged for
    libraries that look for all added tokens at once as well as for those that look for
    the normalized ones later. Near linear in the size of the file.

    Raises ``OSError`` for a file that cannot be read and ``ValueError`` for what is no
    JSON.

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
    added = [
        AddedTokenView(
            token["content"],
            token["id"],
            **{flag: bool(token.get(flag)) for flag in FLAGS},
        )
        for token in state.get("added_tokens") or ()
    ]
    at_once = [replace(token, normalized=False) for token in added]
    model = state.get("model") or {}
    name, unknown = model.get("unk_token"), model.get("unk_id")
    eligible: list[list[str]] = []
    for tokens, normalizes in (
        (added, _normalizes(state.get("normalizer"))),
        (at_once, False),
    ):
        judged, _ = judge(
            tokens,
            normalizes=normalizes,
            unknown_contents=() if name is None else (name,),
            unknown_ids=() if unknown is None else (unknown,),
        )
        eligible.append([token.content for token in judged if token.is_eligible])
    in_both = frozenset(eligible[0]) & frozenset(eligible[1])
    return [content for content in eligible[0] if content in in_both]


def _normalizes(normalizer: Mapping[str, Any] | None) -> bool:
    """Tell whether a normalizer does anything: none does nothing, nor an empty list."""
    if not normalizer:
        return False
    if normalizer.get("type") == "Sequence":
        return any(map(_normalizes, normalizer["normalizers"]))
    return True
