"""Call any object with ``encode`` and ``decode``, given a list of its special tokens.

How such a tokenizer matches its tokens is not known. The list is the caller's word that
each string on it is taken as one token wherever it stands. Behind that word stand the
trials at construction (see `tokcache.backends.probing`) and the self-checks of every
encode. Texts longer than what was tried pass through: some encoders slice long texts at
fixed places.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from tokcache.backends.base import Backend
from tokcache.backends.overlap import overlapping
from tokcache.backends.probing import MAX_CHARS, alone, examine
from tokcache.eligibility import (
    AddedTokenView,
    Eligibility,
    TokenVerdict,
    attempt,
    check_list,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAG = "add_special_tokens"


class GenericBackend(Backend):
    """Give any object with ``encode`` and ``decode`` to the cache.

    If its ``encode`` has an ``add_special_tokens`` parameter, that is used; else it is
    called with the text alone. Ids may come as a list, a tuple, an array or in an
    ``ids`` attribute.
    """

    name = "generic"
    # Whether tokens are known to be taken leftmost-longest where they overlap.
    rule_is_known = False

    def __init__(self, inner: Any, max_chars: int | None = None) -> None:
        """Look at the signature of ``encode``; nothing is called yet."""
        self.inner = inner
        self.max_chars = MAX_CHARS if max_chars is None else max_chars
        flag = _flag_of(inner)
        self._has_flag = flag is not None
        self.adds_special_tokens = flag is not None and flag.default is True
        self._tells_default = flag is None or isinstance(flag.default, bool)

    def inspect(
        self,
        special_tokens: Sequence[str] | None,
        *,
        trust_custom: bool = False,  # noqa: ARG002 (nothing is read that it is about)
    ) -> Eligibility:
        """Find out which listed tokens are boundaries; see `Backend.inspect`.

        Raises ``TypeError`` without a list. Encodes texts of up to 65,536 characters.
        """
        check_list(special_tokens)
        if special_tokens is None:
            raise TypeError(self._list_needed())
        if not self._tells_default:
            self.adds_special_tokens = self._measure_default()
        listed = list(dict.fromkeys(special_tokens))
        off = None if listed else "special_tokens is empty"
        if off is None and not self.rule_is_known:
            off = _overlap_reason(listed)
        if off is not None:
            return Eligibility(enabled=False, reason=off)
        known = []
        unscanned = []
        for content in listed:
            found = alone(self._encode, content) if content else "it is empty"
            if isinstance(found, str):
                unscanned.append(TokenVerdict(content, -1, 1, found, "listed"))
            else:
                known.append(AddedTokenView(content, found))
        tokens, others = judge(known, normalizes=False)
        return examine(self._encode, tokens, (*others, *unscanned), self.max_chars)

    def encode_run(self, text: str) -> Sequence[int]:
        """Return the ids of a part of a text, nothing put before or after them."""
        return self._encode(text, False)  # noqa: FBT003

    def encode_whole(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: FBT001
        """Return the ids of a whole text, exactly the tokenizer's own."""
        return self._encode(text, add_special_tokens)

    def encode_segment(self, text: str, allow_special: bool) -> Sequence[int]:  # noqa: FBT001
        """Return the ids of a part of a segment list.

        Raises ``NotImplementedError`` for a part without special tokens if the
        tokenizer has no ``encode_ordinary``.
        """
        if allow_special:
            return self.encode_run(text)
        ordinary = getattr(self.inner, "encode_ordinary", None)
        if ordinary is None:
            return super().encode_segment(text, allow_special)
        return _plain(ordinary(text))

    def _encode(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: FBT001
        if self._has_flag:
            return _plain(
                self.inner.encode(text, add_special_tokens=add_special_tokens)
            )
        return _plain(self.inner.encode(text))

    def _measure_default(self) -> bool:
        """Tell whether special tokens are added by a call that does not say."""
        text = "Hello world"
        unsaid = attempt(lambda: list(_plain(self.inner.encode(text))))
        return unsaid == attempt(lambda: list(self._encode(text, True)))  # noqa: FBT003

    def _list_needed(self) -> str:
        kind = type(self.inner)
        return (
            f"{kind.__module__}.{kind.__qualname__} does not tell its special tokens, "
            "so give special_tokens=[...], those it takes as one token wherever they "
            "stand; with an empty list the cache is off"
        )


def _flag_of(inner: Any) -> inspect.Parameter | None:
    """Return the ``add_special_tokens`` parameter of ``encode``, if it has one."""
    try:
        return inspect.signature(inner.encode).parameters.get(FLAG)
    except (TypeError, ValueError):  # compiled without a signature
        return None


def _overlap_reason(listed: Sequence[str]) -> str | None:
    """Return why no token of a list can be a boundary, or None."""
    overlaps = overlapping(listed, itself=True)
    if not overlaps:
        return None
    one, other = next(iter(overlaps.items()))
    what = "itself" if one == other else repr(other)
    return (
        f"special_tokens can overlap ({one!r} and {what}), and by which rule this "
        "tokenizer takes one of them is not known"
    )


def _plain(result: Any) -> Sequence[int]:
    """Return the ids as a list or tuple, whatever they came in."""
    ids = getattr(result, "ids", result)
    if isinstance(ids, (list, tuple)):
        return ids
    tolist = getattr(ids, "tolist", None)
    return list(ids) if tolist is None else tolist()
