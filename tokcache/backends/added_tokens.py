"""Make sure that a ``tokenizers.Tokenizer`` matches its added tokens as it lists them.

From 0.23 on it does, but for tokens that normalize to nothing. Before, the list says
less than is true:

- a special token that is added again with other flags is still looked for in the phase
  of its first ones, another one in both phases;
- a token that lost its id to another one is still matched, and gives that id;
- tokens of phase 2 keep the form that the normalizer gave them when the last token was
  added.

So there the tokenizer is compared with one made anew of the same parts and the listed
tokens. Within a phase the leftmost-longest match goes first, and phase 1 goes before
phase 2: which matches a text has depends on nothing but which of two overlapping ones
goes first. If that is seen to be the same for every two tokens that can overlap, it is
the same in every text. Tokens for which it cannot be seen are no boundaries.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, models, normalizers

from tokcache.backends.conflicts import (
    Groups,
    Match,
    Pair,
    conflicts,
    every_assignment,
)
from tokcache.backends.copies import listed_tokens, with_added
from tokcache.eligibility import (
    AddedTokenView,
    Contents,
    TokenVerdict,
    attempt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokcache.backends.conflicts import Place

# How many overlaps of tokens are listed, how many of one group of tokens are looked
# into (some 50 µs each), and with how many tokens in a text (2 to their number steps).
MAX_PAIRS, MAX_GROUP_PAIRS, MAX_IN_TEXT = 200_000, 400, 6
JOINED = 256  # tokens that are compared in one text

SEPARATORS = "abcdefghijklmnopqrstuvwxyz0123456789éßжяあ中一"

HIDDEN = "tokens that are not listed may be matched: {!r} and {!r} share an id"
CHANGED = "added tokens are not matched as they are listed, as in {!r}"
NOT_AGAIN = "its added tokens cannot be checked: added anew they get other ids"
NOT_SHOWN = "its added tokens cannot be checked: {}"
OVERLAPS = "which one of it and an added token that overlaps it is taken cannot be told"
UNKNOWN_PHASE = "whether it is looked for in the normalized text cannot be told"


def confirm(
    inner: Tokenizer,
    added: Sequence[AddedTokenView],
    tokens: tuple[TokenVerdict, ...],
    *,
    normalizes: bool,
) -> tuple[str | None, tuple[TokenVerdict, ...]]:
    """Return why the cache must be off, or None, and what remains of the verdicts.

    Tokens for which nothing shows how they are matched become refused.
    """
    reason = _form_reason(inner, added)
    if reason is not None or lists_are_true():
        return reason, tokens
    reason = hidden_reason(inner, added)
    if reason is not None:
        return reason, tokens
    if inner.encode_special_tokens:
        return NOT_SHOWN.format("encode_special_tokens is on"), tokens
    anew = attempt(lambda: _anew(inner, added))
    if isinstance(anew, str) or listed_tokens(anew) != list(added):
        return NOT_AGAIN, tokens
    comparison = _Comparison(inner, anew, added, normalizes=normalizes)
    try:
        doubts = comparison.doubts(
            {token.content for token in tokens if token.is_eligible}
        )
    except _DifferenceError as difference:
        return str(difference), tokens
    return None, tuple(
        replace(token, reason=doubts.get(token.content)) if token.is_eligible else token
        for token in tokens
    )


def exact_copy(inner: Tokenizer, *, normalizes: bool) -> Tokenizer | None:
    """Return a tokenizer that matches just as this one does, without live state.

    None if it cannot be built, or if it does not show that it does so.
    """
    added = listed_tokens(inner)
    copy = attempt(lambda: with_added(inner, added))
    if isinstance(copy, str) or listed_tokens(copy) != added:
        return None
    if lists_are_true():
        return copy
    if (
        normalizes
        or inner.encode_special_tokens
        or any(token.single_word for token in added)
        or hidden_reason(inner, added) is not None
    ):
        return None
    comparison = _Comparison(inner, _anew(inner, added), added, normalizes=normalizes)
    try:
        doubts = comparison.doubts({token.content for token in added})
    except _DifferenceError:
        return None
    return None if doubts else copy


def _form_reason(inner: Tokenizer, added: Sequence[AddedTokenView]) -> str | None:
    """Return which token's normal form nothing can be relied on for, if any.

    One that is looked for as an empty text can make any encode panic or never return,
    so none is tried. Of two with one form, either may be matched: that is settled by
    the order of a hash table, so even a copy of the tokenizer can have other ids.
    """
    normalizer = inner.normalizer
    if normalizer is None:
        return None
    tokens: dict[str, str] = {}
    for token in added:
        if token.normalized:
            content = token.content
            form = attempt(lambda: (normalizer.normalize_str(content),))  # noqa: B023
            if isinstance(form, str):
                continue
            if not form[0]:
                return f"the added token {content!r} normalizes to nothing"
            other = tokens.setdefault(form[0], content)
            if other != content:
                return (
                    f"the added tokens {other!r} and {content!r} normalize to the same "
                    "text, and which of them is matched is left to chance"
                )
    return None


# ------------------------------------------------------- tokenizers older than 0.23


@functools.cache
def lists_are_true() -> bool:
    """Tell whether this version matches added tokens as it lists them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_special_tokens([AddedToken("<A>", normalized=True)])
    tokenizer.add_special_tokens([AddedToken("a>b", normalized=False)])
    tokenizer.normalizer = normalizers.Sequence([])
    is_renewed = tokenizer.encode("<A>").ids == [0]
    tokenizer.add_special_tokens([AddedToken("<a>", normalized=True)])
    tokenizer.add_special_tokens([AddedToken("<a>", normalized=False)])
    return is_renewed and tokenizer.encode("<a>b").tokens[:1] == ["<a>"]


def hidden_reason(inner: Tokenizer, added: Sequence[AddedTokenView]) -> str | None:
    """Return which tokens may be matched and not listed, for another has their id.

    All that was ever added is in the vocabulary. To read it takes a microsecond for
    each of its tokens.
    """
    contents = {token.id: token.content for token in added}
    for content, token_id in inner.get_vocab(with_added_tokens=True).items():
        listed = contents.get(token_id, content)
        if listed != content:
            return HIDDEN.format(content, listed)
    for token in added:
        if inner.token_to_id(token.content) != token.id:
            return CHANGED.format(token.content)
    return None


def _anew(inner: Tokenizer, added: Sequence[AddedTokenView]) -> Tokenizer:
    """Return a tokenizer to compare with: what truncation cuts off shows as well."""
    anew = with_added(inner, added)
    truncation: Any = inner.truncation
    if truncation is not None:
        anew.enable_truncation(**truncation)
    return anew


class _DifferenceError(Exception):
    """Say in which text added tokens are matched otherwise than listed."""


class _Comparison:
    """Compare a tokenizer with one that is what the list says."""

    def __init__(
        self,
        inner: Tokenizer,
        anew: Tokenizer,
        added: Sequence[AddedTokenView],
        *,
        normalizes: bool,
    ) -> None:
        self._inner = inner
        self._anew = anew
        self._added = added
        self._normalizes = normalizes
        self._tokens = {token.content: token for token in added}
        self._listed = {token.content: token.phase for token in added}
        self._contents = Contents(added)

    def doubts(self, wanted: set[str]) -> dict[str, str]:
        """Find those of the wanted tokens for which nothing shows how they are matched.

        Raises ``_DifferenceError`` if one shows to be matched in another way.
        """
        separator = self._separator()
        self._compare_alone(separator)
        found = dict.fromkeys(self._overlapping(wanted, separator), OVERLAPS)
        if self._normalizes:
            for token in self._added:
                if (
                    token.content in wanted
                    and token.content not in found
                    and not self._shows_phase(token, separator)
                ):
                    found[token.content] = UNKNOWN_PHASE
        return found

    def _separator(self) -> str:
        """Find a character that stands in no token, to part them in a text."""
        used = set().union(*(token.content for token in self._added))
        for char in SEPARATORS:
            if char not in used and _seen(self._anew, char) is not None:
                return char
        raise _DifferenceError(NOT_SHOWN.format("no text was found to do it in"))

    def _agrees(self, text: str) -> bool:
        """Compare a text; false if it cannot be encoded."""
        expected = _seen(self._anew, text)
        if _seen(self._inner, text) != expected:
            raise _DifferenceError(CHANGED.format(text[:40]))
        return expected is not None

    def _compare_alone(self, separator: str) -> None:
        """Compare every token by itself, many in one text."""
        contents = [token.content for token in self._added]
        for at in range(0, len(contents), JOINED):
            for between in (separator, " "):
                text = between.join(["", *contents[at : at + JOINED], ""])
                # What stands behind a piece that no model knows would not be seen.
                if not self._agrees(text):
                    for content in contents[at : at + JOINED]:
                        self._agrees(content)

    def _overlapping(self, wanted: set[str], separator: str) -> set[str]:
        """Return the tokens whose overlaps with others do not show who goes first."""
        groups = Groups()
        for number, pair in enumerate(conflicts(self._added, self._contents)):
            if number == MAX_PAIRS:
                return wanted
            groups.join(pair.left[2], pair.right[2])
        pairs: dict[str, list[Pair]] = {groups.of(each): [] for each in wanted}
        for pair in conflicts(self._added, self._contents):
            if (group := groups.of(pair.left[2])) in pairs:
                pairs[group].append(pair)
        # A match that its flag refuses keeps others away in its own phase alone.
        doubtful = {groups.of(t.content) for t in self._added if t.single_word}
        for group, members in pairs.items():
            if members and group not in doubtful and not self._show(members, separator):
                doubtful.add(group)
        return {
            content
            for content in wanted
            if groups.of(content) in doubtful and pairs[groups.of(content)]
        }

    def _show(self, pairs: Sequence[Pair], separator: str) -> bool:
        """Tell whether texts show which of each two goes first.

        They do if in whatever phases the tokens of a text might be to give what is
        seen, the same one of the two goes first.
        """
        if len(pairs) > MAX_GROUP_PAIRS:
            return False
        seen = [
            match
            for text in dict.fromkeys(pair.text for pair in pairs)
            for match in (self._match(text), self._match(separator + text + separator))
            if self._agrees(match.text)
        ]
        for pair in pairs:
            names = self._match(pair.text).names
            told = [match for match in seen if match.names <= names]
            contest = self._match(pair.text, pair.left, pair.right)
            if len(names) > MAX_IN_TEXT or any(
                all(
                    match.may_be(phases, self._listed, normalizes=self._normalizes)
                    for match in told
                )
                and contest.taken(phases) != contest.taken(self._listed)
                for phases in every_assignment(sorted(names))
            ):
                return False
        return True

    def _match(self, text: str, *places: Place) -> Match:
        """Return a text with these places, or with all where tokens stand."""
        found = places or tuple(self._contents.places(text))
        return Match(text, found, self._tokens)

    def _shows_phase(self, token: AddedTokenView, separator: str) -> bool:
        """Find a text, with no other token in it, in which phase 2 would differ."""
        content = token.content
        phases = attempt(
            lambda: [
                with_added(self._inner, [replace(token, normalized=flag)])
                for flag in (False, True)
            ]
        )
        if isinstance(phases, str):
            return False
        raw, normalized = phases
        ids = {each.id for each in self._added if each is not token}
        for text in _changed_texts(content, separator):
            if any(place[2] != content for place in self._contents.places(text)):
                continue
            seen = _seen(raw, text)
            if seen is None or seen == _seen(normalized, text):
                continue
            expected = _seen(self._anew, text)
            if expected is None or any(
                token_id in ids for part in expected for token_id, _, _ in part
            ):
                continue
            if self._agrees(text):
                return True
        return False


def _seen(tokenizer: Tokenizer, text: str) -> Any:
    """Return all that tells how a text was cut, or None if it cannot be encoded."""

    def encode() -> list[tuple[tuple[Any, ...], ...]]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return [
            tuple(
                (token_id, span, word)
                for token_id, span, word, is_text in zip(
                    part.ids,
                    part.offsets,
                    part.word_ids,
                    part.attention_mask,
                    strict=True,
                )
                if is_text  # and no padding
            )
            for part in (encoding, *encoding.overflowing)
        ]

    seen = attempt(encode)
    return None if isinstance(seen, str) else seen


def _changed_texts(content: str, separator: str) -> Iterator[str]:
    """List texts that a normalizer may change around a token, or into one."""
    yield f"{separator}{content}{separator}"
    yield f"{separator} {content} {separator}"
    yield from (content.lower(), content.upper(), content.swapcase())
    yield "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in content)
    for mark in "\u0338\u0301\u0308\u0327":
        yield f"{separator}{content}{mark}{separator}"
    yield content.replace(" ", "▁")
    yield content + content
