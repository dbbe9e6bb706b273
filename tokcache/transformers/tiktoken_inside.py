"""Tokenizers of ``transformers`` that are written around a ``tiktoken.Encoding``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tokcache.cached import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class CachedTiktoken(CachedTokenizer):
    """Answer with lists, as a ``tiktoken.Encoding`` does; what calls it may join them.

    ``encode_ordinary`` and all else is the encoding's own.
    """

    def encode(self, text: str, **options: Any) -> list[int]:  # type: ignore[override]
        """Return the ids of a text."""
        return _plain(super().encode(text, **options))

    def encode_batch(self, text: Sequence[str], **options: Any) -> list[list[int]]:  # type: ignore[override]
        """Return the ids of each text."""
        return [_plain(ids) for ids in super().encode_batch(text, **options)]


def accelerate_inside(tokenizer: object, settings: Mapping[str, Any]) -> bool:
    """Put a cache in front of each encoding that a tokenizer has as an attribute."""
    fields = vars(tokenizer)
    found = {
        name: CachedTiktoken(value, **settings)
        for name, value in fields.items()
        if _is_encoding(value)
    }
    fields.update(found)
    return bool(found)


def unaccelerate_inside(tokenizer: object) -> None:
    """Undo `accelerate_inside`."""
    fields = vars(tokenizer)
    fields.update(
        {n: v.inner for n, v in fields.items() if isinstance(v, CachedTiktoken)}
    )


def caches_inside(tokenizer: object) -> Iterator[CachedTiktoken]:
    """Yield the caches that `accelerate_inside` made."""
    for value in vars(tokenizer).values():
        if isinstance(value, CachedTiktoken):
            yield value


def _is_encoding(value: object) -> bool:
    # An encoding cannot be there without its library.
    library = sys.modules.get("tiktoken")
    return library is not None and type(value) is library.Encoding


def _plain(ids: Any) -> list[int]:
    return ids if isinstance(ids, list) else list(ids)
