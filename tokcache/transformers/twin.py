"""Twin: a tokenizer with the same parts as another, without its live settings."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokcache.backends.added_tokens import hidden_reason, lists_are_true
from tokcache.backends.conflicts import conflicts
from tokcache.backends.copies import bare_copy, listed_tokens
from tokcache.backends.tokenizers import TokenizersBackend
from tokcache.eligibility import Contents
from tokcache.locks import Lock
from tokcache.transformers.encoding import Around

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokenizers import Encoding

    from tokcache.eligibility import Eligibility

# Texts to see what is put around a text.
_PROBES = ("a", "Hello world", "1\n2")
# How many overlaps of added tokens are looked into where that is needed.
MAX_PAIRS = 2000


class Twin:
    """Have the ids of a tokenizer as it was at one moment, without truncation and such.

    The twin shares the model and the other parts, so it costs some 10 µs for each added
    token; only where added tokens took their ids out of order is it a whole copy. Who
    sets a part of the tokenizer, sets it there alone.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.live = TokenizersBackend(tokenizer)
        self.bare = bare_copy(tokenizer)
        self.around: dict[bool, Around | None] = {False: None, True: None}
        self._content = _content(tokenizer)
        self._tokenizer = tokenizer
        self._shaped: Tokenizer | None = None
        self._lock = Lock()

    def is_like(self, tokenizer: Tokenizer) -> bool:
        """Tell whether the tokenizer has the parts that it had (some 5 µs)."""
        return _content(tokenizer) == self._content

    def measure(self, eligibility: Eligibility) -> None:
        """Find out what is put around a text, and whether the twin is one."""
        if not eligibility.enabled or not self._agrees():
            return
        self.around[False] = self._measured(Around(), special=False)
        if eligibility.before is not None and eligibility.after is not None:
            self.around[True] = self._measured(
                Around(eligibility.before, eligibility.after), special=True
            )

    def encode(
        self,
        text: str,
        special: bool,  # noqa: FBT001 - bound by position
        truncation: Mapping[str, Any] | None,
        padding: Mapping[str, Any] | None,
        length: int,
    ) -> Encoding:
        """Encode a text under settings, padded to a length if there is padding."""
        with self._lock:
            if self._shaped is None:
                self._shaped = bare_copy(self.bare)
            _set_truncation(self._shaped, truncation)
            [encoding] = self._shaped.encode_batch([text], False, special)  # noqa: FBT003
        if padding is not None:
            encoding.pad(
                length,
                direction=padding["direction"],
                pad_id=padding["pad_id"],
                pad_type_id=padding["pad_type_id"],
                pad_token=padding["pad_token"],
            )
        return encoding

    def _measured(self, around: Around, *, special: bool) -> Around | None:
        """Add the type ids; None if there is no rule for them or for the masks."""
        n_before, n_after = len(around.before), len(around.after)
        found = set()
        for probe in _PROBES:
            encoding = self.bare.encode(probe, add_special_tokens=special)
            end = len(encoding) - n_after
            n_own = end - n_before
            types, mask = encoding.type_ids, encoding.special_tokens_mask
            own = set(types[n_before:end])
            if mask != [1] * n_before + [0] * n_own + [1] * n_after or len(own) != 1:
                return None
            found.add((tuple(types[:n_before]), own.pop(), tuple(types[end:])))
        if len(found) != 1:
            return None
        return Around(around.before, around.after, found.pop())

    def _agrees(self) -> bool:
        """Compare with the tokenizer what versions before 0.23 may not match alike.

        There a tokenizer may match an added token as it was when it was first added,
        and its twin as it is listed.
        """
        if lists_are_true():
            return True
        live = self._tokenizer
        if hidden_reason(live, listed_tokens(live)) is not None:
            return False
        same = bare_copy(self.bare)
        _set_truncation(same, live.truncation)
        if live.padding is not None:
            same.enable_padding(**live.padding)
        same.encode_special_tokens = live.encode_special_tokens
        texts = list(_contexts(live))
        return [e.ids for e in Tokenizer.encode_batch(live, texts)] == [
            e.ids for e in same.encode_batch(texts)
        ]


def _contexts(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield texts in which it shows when and in which form a token is looked for."""
    added = listed_tokens(tokenizer)
    for token in added:
        content = token.content
        yield from (content, content.lower(), content.upper())
        yield from (f"a {content} b", f"a{content}b", f"1\n{content}\n2")
        # A normalizer that composes characters composes the token's last one.
        yield from (f"{content}\u0338", f"{content}\u0301", f" {content}\u200d")
    pairs = conflicts(added, Contents(added))
    for pair in itertools.islice(pairs, MAX_PAIRS):
        yield from (pair.text, f"{pair.text}\u0338")


def _set_truncation(tokenizer: Tokenizer, truncation: Mapping[str, Any] | None) -> None:
    if truncation is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(**truncation)


def _content(tokenizer: Tokenizer) -> tuple[object, ...]:
    """Return what shows a change of the parts that anybody may set."""
    return (
        _state_of(tokenizer.normalizer),
        _state_of(tokenizer.pre_tokenizer),
        _state_of(tokenizer.post_processor),
    )


def _state_of(part: Any) -> object:
    if part is None:
        return None
    try:
        return part.__getstate__()
    except Exception:  # noqa: BLE001 - the library raises a bare one for Python parts
        return type(part)
