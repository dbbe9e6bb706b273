"""Decide which added tokens are boundaries, and say why the others are not.

A boundary is a place where a text may be cut: what stands left of it cannot change how
the rest is tokenized, as long as the rest is encoded behind the boundary token itself.
An added token can be one if nothing but its own text decides whether it is matched.

Nothing here knows a tokenizer library. A backend reads its tokenizer, passes the added
tokens to `judge`, measures with `find_affixes`, and `probe_token` tries a token at its
first sight.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from tokcache.failures import is_failure

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

T = TypeVar("T")

MAX_ID = 0xFFFF_FFFF
FLAGS = ("special", "normalized", "single_word", "lstrip", "rstrip")

# Unicode's White_Space, which is what tokenizers strips; str.isspace() has U+001C to
# U+001F as well.
WHITE_SPACE = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

NOT_LISTED = "it is not in special_tokens"
NORMALIZED = (
    "it is looked for in the normalized text, where its neighbours can change it"
)

# How much an explanation shows: lines of refused tokens, tokens named in a line,
# characters of a token.
MAX_REASONS, MAX_NAMES, MAX_NAME = 12, 6, 40

# What stands left and right of a token at its first trial: letters, digits, white
# space, letters beyond ASCII, punctuation. None is another special token.
CONTEXTS: tuple[tuple[str | None, str | None], ...] = (
    ("", ""),
    ("a", "b"),
    (" ", " "),
    ("\n", "\n\n"),
    ("1", "2"),
    ("é", "中"),
    ("a ", " b"),
    (".", ","),
    ("a", "\n"),
    (None, None),
    (None, "a"),
    (" ", None),
)


class ScannerView(Protocol):
    """Name what `probe_token` needs of a scanner."""

    def boundaries(self, text: str, start: int = 0, /) -> list[tuple[int, int]]:
        """Return the end and the token index of every boundary."""


@dataclass(frozen=True, slots=True)
class AddedTokenView:
    """Hold an added token as its tokenizer lists it."""

    content: str
    id: int
    special: bool = False
    normalized: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False

    @property
    def phase(self) -> int:
        """1 if it is looked for in the raw text, 2 if after normalization."""
        return 2 if self.normalized else 1

    @property
    def flags(self) -> str:
        """The names of the flags that are set, or "plain"."""
        return ",".join(name for name in FLAGS if getattr(self, name)) or "plain"


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    """Say what was decided of an added token: eligible if no reason is against it."""

    content: str
    id: int
    phase: int
    reason: str | None
    flags: str

    @property
    def is_eligible(self) -> bool:
        """Whether it may be a boundary."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Hold what a backend found out about its tokenizer.

    ``tokens`` are those that a scanner must know, in its order; ``unscanned`` are never
    boundaries and do not take part in its match. ``before`` and ``after`` are the ids
    that ``add_special_tokens=True`` puts around a text; without them that flag passes
    through, for ``affix_reason``.
    """

    enabled: bool
    reason: str | None
    tokens: tuple[TokenVerdict, ...] = ()
    unscanned: tuple[TokenVerdict, ...] = ()
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    affix_reason: str | None = None


def check_list(special_tokens: Sequence[str] | None) -> None:
    """Raise ``TypeError`` unless a caller's list is a list or tuple of strings."""
    if special_tokens is None:
        return
    if not isinstance(special_tokens, (list, tuple)):
        kind = type(special_tokens).__name__
        msg = f"special_tokens must be a list or tuple of str, got {kind}"
        raise TypeError(msg)
    for token in special_tokens:
        if not isinstance(token, str):
            msg = f"special_tokens must hold str, got {token!r}"
            raise TypeError(msg)


def judge(
    added: Sequence[AddedTokenView],
    *,
    normalizes: bool,
    unknown_contents: Collection[str] = (),
    unknown_ids: Collection[int] = (),
    listed: Sequence[str] | None = None,
) -> tuple[tuple[TokenVerdict, ...], tuple[TokenVerdict, ...]]:
    """Judge every added token; return those for the scanner, and the others.

    With ``normalizes`` (the tokenizer has a normalizer that does something) tokens of
    phase 2 are among the others. Only ``listed`` tokens can be eligible, if a list is
    given.

    Near linear in the length of all contents together.

    Raises ``ValueError`` for a listed string that is no added token.
    """
    _check_known(added, listed)
    reasons = _own_reasons(added, unknown_contents, unknown_ids)
    first = [token for token in added if token.phase == 1]
    second = [token for token in added if token.phase == 2]  # noqa: PLR2004
    for group in (first, second):
        in_question = [token for token in group if token.content not in reasons]
        _add(reasons, _outgrown(in_question, group))
    if normalizes:
        _add(reasons, {token.content: NORMALIZED for token in second})
    else:
        _add(reasons, _taken_first(first, second))
    if listed is not None:
        chosen = frozenset(listed)
        for token in added:
            if token.content not in chosen:
                reasons[token.content] = NOT_LISTED

    scanned: dict[str, TokenVerdict] = {}
    unscanned: list[TokenVerdict] = []
    for token in added:
        content = token.content
        reason = reasons.get(content)
        verdict = TokenVerdict(content, token.id, token.phase, reason, token.flags)
        if (
            (normalizes and token.normalized)
            or not content
            or not 0 <= token.id <= MAX_ID
            or content in scanned
        ):
            unscanned.append(verdict)
        else:
            scanned[content] = verdict
    return tuple(scanned.values()), tuple(unscanned)


def _check_known(added: Sequence[AddedTokenView], listed: Sequence[str] | None) -> None:
    known = {token.content for token in added}
    missing = [token for token in listed or () if token not in known]
    if missing:
        names = ", ".join(map(repr, missing[:5])) + (", ..." if missing[5:] else "")
        msg = f"special_tokens has what is no added token of the tokenizer: {names}"
        raise ValueError(msg)


def _add(reasons: dict[str, str], more: Mapping[str, str]) -> None:
    """Add reasons; the first one that a token got stays."""
    for content, reason in more.items():
        reasons.setdefault(content, reason)


def _own_reasons(
    added: Sequence[AddedTokenView],
    unknown_contents: Collection[str],
    unknown_ids: Collection[int],
) -> dict[str, str]:
    """Find what speaks against tokens without a look at the others' texts."""
    contents = Counter(token.content for token in added)
    ids = Counter(token.id for token in added)
    reasons = {}
    for token in added:
        reason = None
        if not token.content:
            reason = "it is empty"
        elif not 0 <= token.id <= MAX_ID:
            reason = f"its id {token.id} does not fit 32 bits"
        elif contents[token.content] > 1:
            reason = "it is listed twice"
        elif ids[token.id] > 1:
            reason = f"another added token has its id {token.id}"
        elif token.content in unknown_contents or token.id in unknown_ids:
            reason = "it is the model's unknown token, whose id stands for any text"
        elif WHITE_SPACE.issuperset(token.content):
            reason = "it is white space alone"
        elif token.single_word:
            reason = "it is single_word: the text after it decides whether it matches"
        if reason is not None:
            reasons[token.content] = reason
    return reasons


class Contents:
    """Find the tokens that occur in a text or begin at its end."""

    def __init__(self, tokens: Iterable[AddedTokenView]) -> None:
        """Sort the texts."""
        self._sorted = sorted({token.content for token in tokens} - {""})
        self._known = frozenset(self._sorted)
        # Which lengths can begin so: it spares most places of a text a look.
        self._lengths: dict[str, set[int]] = {}
        for content in self._sorted:
            self._lengths.setdefault(content[:2], set()).add(len(content))

    def places(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the content of all that occur in a text."""
        for start in range(len(text)):
            for key in dict.fromkeys((text[start], text[start : start + 2])):
                for length in self._lengths.get(key, ()):
                    end = start + length
                    if end <= len(text) and text[start:end] in self._known:
                        yield start, end, text[start:end]

    def past_the_end(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield where a content begins that goes on past a text's end, and which."""
        for start in range(len(text)):
            rest = text[start:]
            # The contents that go on from it stand right behind it.
            for at in range(bisect_right(self._sorted, rest), len(self._sorted)):
                if not self._sorted[at].startswith(rest):
                    break
                yield start, self._sorted[at]


def _outgrown(
    inner: Sequence[AddedTokenView], outer: Sequence[AddedTokenView]
) -> dict[str, str]:
    """Find the inner tokens that an outer one contains with text after them."""
    reasons: dict[str, str] = {}
    contents = Contents(inner)
    for token in outer:
        for _, end, content in contents.places(token.content):
            if end < len(token.content) and content not in reasons:
                reasons[content] = (
                    f"the longer token {token.content!r} goes on after it"
                )
    return reasons


def _taken_first(
    first: Sequence[AddedTokenView], second: Sequence[AddedTokenView]
) -> dict[str, str]:
    """Find the tokens of phase 2 whose text phase 1 can take, or leave, in part.

    Phase 1 goes first, whatever stands left of the token.
    """
    for token in first:
        for flag in ("single_word", "lstrip", "rstrip"):
            if getattr(token, flag):
                reason = f"{token.content!r}, looked for before it, is {flag}"
                return {each.content: reason for each in second}
    reasons = _outgrown(second, first)
    contents = Contents(first)
    for token in second:
        text = token.content
        if inside := next(contents.places(text), None):
            reasons.setdefault(text, f"{inside[2]!r}, looked for before it, is in it")
        elif past := next(contents.past_the_end(text), None):
            reasons.setdefault(text, f"{past[1]!r}, looked for before it, begins in it")
    return reasons


def attempt(call: Callable[[], T]) -> T | str:
    """Return what a tokenizer returns, or the text of the error that it raised."""
    try:
        return call()
    except BaseException as error:
        if not is_failure(error):
            raise
        return f"{error}"


def find_affixes(
    encode: Callable[[str, bool], list[int]], probes: Iterable[str]
) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
    """Measure the ids that ``add_special_tokens=True`` puts before and after a text.

    Returns both, or why they are not fixed: ``encode(p, True)`` must be
    ``before + encode(p, False) + after`` for every probe, and in one way only. Probes
    that the tokenizer cannot encode at all are left out.
    """
    ways: set[tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    tried = set()
    for probe in probes:
        bare = attempt(functools.partial(encode, probe, False))  # noqa: FBT003
        if isinstance(bare, str):  # a model without an unknown token, say
            continue
        whole = attempt(functools.partial(encode, probe, True))  # noqa: FBT003
        if isinstance(whole, str):
            return f"encoding with it fails: {whole}"
        room = len(whole) - len(bare)
        found = {
            (tuple(whole[:n]), tuple(whole[n + len(bare) :]))
            for n in range(room + 1)
            if whole[n : n + len(bare)] == bare
        }
        ways = found if ways is None else ways & found
        if not ways:
            return "the post-processor does not put fixed ids around the text"
        tried.add(tuple(bare))
    if ways is None or len(tried) < 2:  # noqa: PLR2004 (one text shows no rule)
        return "no text was found to measure the post-processor with"
    if len(ways) > 1:
        return "the post-processor's ids cannot be told from the text's"
    return ways.pop()


def probe_token(  # noqa: PLR0913, PLR0917 (all of it is one question)
    encode: Callable[[str], list[int]],
    scanner: ScannerView,
    index: int,
    content: str,
    token_id: int,
    other: str | None,
) -> str | None:
    """Try a token as a boundary in a few contexts; return what went wrong, or None.

    In each the text encoded whole must be its left part, cut behind the token, and its
    right part encoded behind the token. A context counts only where the scanner sees
    the boundary in all three texts (a longer token may take it), and where the
    tokenizer can encode them. ``other`` is another special token to stand beside it.
    """

    def is_boundary(text: str, end: int) -> bool:
        return (end, index) in scanner.boundaries(text)

    is_tried = False
    for left, right in CONTEXTS:
        head = (other if left is None else left) or ""
        rest = (other if right is None else right) or ""
        end = len(head) + len(content)
        if not (
            is_boundary(head + content, end)
            and is_boundary(content + rest, len(content))
            and is_boundary(head + content + rest, end)
        ):
            continue
        texts = (head + content, content + rest, head + content + rest)
        results = [attempt(functools.partial(encode, text)) for text in texts]
        ids = [each for each in results if not isinstance(each, str)]
        if len(ids) < len(texts):  # a model without an unknown token, say
            continue
        before, behind, whole = ids
        is_tried = True
        where = f"between {head!r} and {rest!r}"
        if before[-1:] != [token_id] or behind[:1] != [token_id]:
            return f"{where} it does not yield its id {token_id}"
        if whole != before + behind[1:]:
            return f"{where} the text does not split at it"
    return None if is_tried else "it could be tried in no context"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Say what a cache does with its tokenizer, and why; ``str()`` is for people.

    ``reason`` says why the whole cache is off, ``add_special_tokens`` why that flag
    passes through, ``bypass`` what makes calls pass through at this moment; None where
    nothing does.
    """

    enabled: bool
    reason: str | None
    boundary_tokens: tuple[str, ...] = ()
    refused_tokens: Mapping[str, str] = field(default_factory=dict)
    add_special_tokens: str | None = None
    bypass: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a few aligned lines; tokens that share a reason share a line."""
        rows = [("cache", "on" if self.enabled else f"off: {self.reason}")]
        if self.enabled:
            rows.append(("boundary tokens", _count_and_name(self.boundary_tokens)))
        by_reason: dict[str, list[str]] = {}
        for content, reason in self.refused_tokens.items():
            by_reason.setdefault(reason, []).append(content)
        title = "refused tokens"
        for reason, contents in list(by_reason.items())[:MAX_REASONS]:
            rows.append((title, f"{_count_and_name(contents)}: {reason}"))
            title = ""
        left_out = sum(map(len, list(by_reason.values())[MAX_REASONS:]))
        if left_out:
            rows.append((title, f"and {left_out:,} more, for other reasons"))
        if self.enabled:
            through = self.add_special_tokens
            cached = "cached" if through is None else f"passes through: {through}"
            rows.append(("add_special_tokens", cached))
        if self.bypass is not None:
            rows.append(("at this moment", f"calls pass through: {self.bypass}"))
        rows += (("note" if i == 0 else "", note) for i, note in enumerate(self.notes))
        width = max(len(title) for title, _ in rows)
        return "\n".join(f"{title:<{width}}  {text}" for title, text in rows)


def _count_and_name(contents: Sequence[str]) -> str:
    names = " ".join(_shown(content) for content in contents[:MAX_NAMES])
    if len(contents) <= 1:
        return names or "none"
    more = " ..." if len(contents) > MAX_NAMES else ""
    return f"{len(contents):,} ({names}{more})"


def _shown(content: str) -> str:
    """Return a content as it is if that is readable, else as a literal."""
    if len(content) > 4 and len(set(content)) == 1:  # noqa: PLR2004 (a run)
        return f"{content[0]!r}*{len(content)}"
    if len(content) > MAX_NAME:
        content = content[: MAX_NAME - 1] + "…"
    is_plain = content.isprintable() and not any(map(str.isspace, content))
    return content if content and is_plain else repr(content)
