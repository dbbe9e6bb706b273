"""Try whether the texts of a tokenizer with unknown rules split behind its tokens.

Nothing tried proves a rule. What is tried is what was seen to go wrong: encoders that
take another path for long texts, for short ones or for those without a special token,
that slice long texts at fixed places, that answer by chance, and those whose tokens
need certain neighbours.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokcache._scan import Scanner
from tokcache.eligibility import (
    Eligibility,
    attempt,
    find_affixes,
    probe_token,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokcache.eligibility import TokenVerdict

    Encode = Callable[[str, bool], Sequence[int]]

# Characters of the texts tried, and how many of each. The long ones are few: a
# tokenizer written in Python takes half a second for one.
TEXTS = {16: 24, 256: 12, 4096: 6, 65_536: 3}
MAX_CHARS = max(TEXTS)

# Texts of up to so many characters are encoded twice, to see what is left to chance.
MAX_TWICE = 4096

# At construction that many tokens are tried alone; the others at their first sight.
MAX_TOKENS = 64

# What texts are made of. Contractions in both cases, with the two letters beyond ASCII
# that fold to ASCII ones; long words, numbers, code; white space of all sorts; scripts
# with and without spaces, and marks that combine with what stands before them.
PLAIN = (
    *("hello", " the", " user's", " DON'T", " it'S", " I'LL", " we'Ve", "'s", " foo"),
    *(
        " misunderstanding",
        " internationalization",
        " characteristically",
        "withoutspace",
    ),
    *(" 3.14159", " 1234567", ".", ", ", ": ", "\n", "\n\n", "  ", "\t", " foo_bar(x)"),
    *(' {"a": [1, 2]}', " https://a.b/c?d", " </div>", " <", " |", " [x]", "]:\n"),
)
MIXED = (
    *PLAIN,
    *(" naïve", "e\u0301", " Übergrößenträger", " it'\u017f", " \u212a", "½", "\r\n"),
    *(
        " 你好世界",
        "東京",
        "。",
        " привет",
        " مرحبا",
        " नमस्ते",
        "한국어",
        " \u1100\u1161",
    ),
    *("😀", "👩\u200d🚀", "\u00a0", "\u3000", "\u2003", "\u2028", "\u200b", "\ufeff"),
    *("\u0301", "\u3099", "\u0335"),
)

# Characters that no vocabulary is likely to have, to see a model's unknown id.
UNLIKELY = ("\U000f5e1c", "\U00105e1c", "\ue5c1")


def examine(
    encode: Encode,
    tokens: Sequence[TokenVerdict],
    unscanned: Sequence[TokenVerdict],
    max_chars: int | None,
) -> Eligibility:
    """Try tokens on their tokenizer; return which are boundaries, if any can be.

    ``encode`` is called with a text and with ``add_special_tokens``. Texts are tried up
    to 65,536 characters, or ``max_chars`` if that is less.
    """

    def plain(text: str, add_special_tokens: bool) -> list[int]:  # noqa: FBT001
        return list(encode(text, add_special_tokens))

    def bare(text: str) -> list[int]:
        return plain(text, False)  # noqa: FBT003

    tokens = _without_unknown(bare, tokens)
    tokens = _tried(bare, tokens)
    chosen = [token for token in tokens if token.is_eligible]
    if not chosen:
        return Eligibility(
            enabled=False,
            reason="none of the special tokens can be a boundary",
            tokens=tuple(tokens),
            unscanned=tuple(unscanned),
        )
    contents = [token.content for token in chosen[:MAX_TOKENS]]
    reason = _split_reason(bare, _scanner(tokens), contents, max_chars)
    affixes = find_affixes(plain, _affix_probes(chosen[0].content))
    before, after, affix_reason = (
        (None, None, affixes) if isinstance(affixes, str) else (*affixes, None)
    )
    return Eligibility(
        enabled=reason is None,
        reason=reason,
        tokens=tuple(tokens),
        unscanned=tuple(unscanned),
        before=before,
        after=after,
        affix_reason=affix_reason,
    )


def alone(encode: Encode, content: str) -> int | str:
    """Return the one id that a token has alone, or why it has not."""
    ids = attempt(lambda: list(encode(content, False)))  # noqa: FBT003
    if isinstance(ids, str):
        return f"it cannot be encoded alone: {ids}"
    if len(ids) == 1:
        return int(ids[0])
    return f"encoded alone it gives {len(ids)} ids and not one"


def _scanner(tokens: Sequence[TokenVerdict]) -> Scanner:
    return Scanner((t.content, t.id, t.phase, t.is_eligible) for t in tokens)


def _affix_probes(content: str) -> list[str]:
    return [
        "a",
        "Hello world",
        "1\n2",
        content,
        f"a{content} b",
        f"{content}{content}1",
    ]


def _without_unknown(
    encode: Callable[[str], list[int]], tokens: Sequence[TokenVerdict]
) -> list[TokenVerdict]:
    """Refuse a token whose id stands for what the model does not know."""
    unknown: set[int] = set()
    for text in UNLIKELY:
        ids = attempt(functools.partial(encode, text))
        unknown.update(() if isinstance(ids, str) else ids)
    reason = "its id stands for what the model does not know"
    return [
        replace(token, reason=reason)
        if token.is_eligible and token.id in unknown
        else token
        for token in tokens
    ]


def _tried(
    encode: Callable[[str], list[int]], tokens: Sequence[TokenVerdict]
) -> list[TokenVerdict]:
    """Refuse tokens that are no boundaries between a few neighbours."""
    scanner = _scanner(tokens)
    eligible = [(i, token) for i, token in enumerate(tokens) if token.is_eligible]
    result = list(tokens)
    for i, token in eligible[:MAX_TOKENS]:
        other = next((each.content for _, each in eligible if each is not token), None)
        reason = probe_token(encode, scanner, i, token.content, token.id, other)
        if reason is None:
            scanner.trust(i)
        else:
            scanner.refuse(i)
            result[i] = replace(token, reason=reason)
    return result


# ---------------------------------------------------------------- texts of all lengths


def _split_reason(
    encode: Callable[[str], list[int]],
    scanner: Scanner,
    contents: Sequence[str],
    max_chars: int | None,
) -> str | None:
    """Return why the tokenizer's texts do not split behind its tokens, or None."""
    limit = MAX_CHARS if max_chars is None else min(max_chars, MAX_CHARS)
    shortest = min(map(len, contents))
    for size, number in TEXTS.items():
        length = min(size, limit)
        trial = _Trial(encode, scanner, contents, length)
        kinds = (trial.one_cut, trial.many_cuts, trial.presence)
        failures = []
        for i in range(number if length >= 2 * shortest else 0):
            rng = random.Random(length + i)  # noqa: S311 (the same texts every time)
            try:
                reason = kinds[i % len(kinds)](rng, MIXED if i % 2 else PLAIN)
            except _CannotTryError as error:
                failures.append(f"{error}")
                continue
            if reason is not None:
                return f"a text of {length:,} characters {reason}"
        if failures and len(failures) == number:
            return f"no text of {length:,} characters can be encoded: {failures[0]}"
        if length == limit:
            break
    return None


class _CannotTryError(Exception):
    """Say that the tokenizer raised for a text: it has no unknown token, perhaps."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Try texts of one length; each method returns what went wrong, or None."""

    encode: Callable[[str], list[int]]
    scanner: Scanner
    contents: Sequence[str]
    length: int

    def one_cut(self, rng: random.Random, pieces: Sequence[str]) -> str | None:
        """Put a token into the middle third of a text."""
        content = self._choose(rng)
        text = _filler(rng, pieces, self.length - len(content))
        at = rng.randint(len(text) // 3, 2 * len(text) // 3)
        return self._compare(text[:at] + content + text[at:])

    def many_cuts(self, rng: random.Random, pieces: Sequence[str]) -> str | None:
        """Put tokens anywhere, at the ends of the text and side by side as well."""
        chosen = [self._choose(rng) for _ in range(8)]
        while len("".join(chosen)) > self.length:
            chosen.pop()
        text = _filler(rng, pieces, self.length - len("".join(chosen)))
        places = [0, len(text), *(rng.randint(0, len(text)) for _ in range(5))]
        # From the last place to the first, so that no place moves.
        for content, place in zip(
            chosen, sorted([0, *places], reverse=True), strict=False
        ):
            text = text[:place] + content + text[place:]
        return self._compare(text)

    def presence(self, rng: random.Random, pieces: Sequence[str]) -> str | None:
        """Compare a text that has no token with the same text before a token."""
        content = self._choose(rng)
        # White space at its end could belong to the token, as with lstrip.
        text = _filler(rng, pieces, self.length - len(content) - 1) + "x"
        found = [end for end, _ in self.scanner.boundaries(text + content)]
        if found != [len(text) + len(content)]:
            return None
        if self._ids(text + content)[:-1] != self._ids(text):
            return f"has other ids before {content!r} than without it"
        return None

    def _choose(self, rng: random.Random) -> str:
        return rng.choice(
            [each for each in self.contents if 2 * len(each) <= self.length]
        )

    def _ids(self, text: str) -> list[int]:
        ids = attempt(functools.partial(self.encode, text))
        if isinstance(ids, str):
            raise _CannotTryError(ids)
        return ids

    def _compare(self, text: str) -> str | None:
        """Compare a text with its segments, each encoded behind its anchor."""
        whole = self._ids(text)
        joined: list[int] = []
        anchor, start = "", 0
        for end, index in self.scanner.boundaries(text):
            joined += self._ids(anchor + text[start:end])[len(anchor[:1]) :]
            anchor, start = self.scanner.contents[index], end
        joined += self._ids(anchor + text[start:])[len(anchor[:1]) :]
        if len(text) <= MAX_TWICE and self._ids(text) != whole:
            return "gets other ids when it is encoded again"
        return None if joined == whole else "does not split behind its special tokens"


def _filler(rng: random.Random, pieces: Sequence[str], length: int) -> str:
    """Make a text of exactly that many characters."""
    return "".join(rng.choices(pieces, k=length + 1))[:length]
