"""Read and call a ``tiktoken.Encoding`` (0.14.0).

tiktoken looks for the special tokens of the encoding in the raw text, from left to
right. One that the call does not allow is stepped over by one character, one that it
allows ends the text before it and begins a new one behind it. Which of two tokens is
taken at one place is settled by their order in a hash table, so only a token that can
overlap no other one, allowed or not, is matched wherever it stands: it is a boundary,
and nothing else needs to be scanned for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tokcache._scan import Scanner
from tokcache.backends.base import Backend
from tokcache.backends.overlap import overlapping
from tokcache.eligibility import AddedTokenView, Eligibility, check_list, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import tiktoken

    from tokcache.eligibility import TokenVerdict

    Special = Literal["all"] | frozenset[str]

# Characters from which on ids are taken as a buffer: no int object for each of them,
# a fifteenth faster. Below, making the array costs more than it saves.
LARGE = 4096

# Pairs of options that are remembered; a server uses a handful.
MAX_OPTIONS = 64

OPTIONS = frozenset({"allowed_special", "disallowed_special"})
NONE_ALLOWED = (
    "the call allows no special token (see allowed_special), so nothing ends a segment"
)


class TiktokenBackend(Backend):
    """Give a ``tiktoken.Encoding`` to the cache, for one pair of options.

    ``with_options`` gives the one for another pair. Calls that allow the same special
    tokens share their mode, whatever they disallow: that is a check, not a result.
    """

    name = "tiktoken"
    inner: tiktoken.Encoding

    def __init__(
        self,
        inner: tiktoken.Encoding,
        allowed: Special = frozenset(),
        disallowed: Special | tuple[str, ...] = "all",
        *,
        base: TiktokenBackend | None = None,
    ) -> None:
        """Prepare the check for disallowed tokens, and the encoding of runs."""
        self.inner = inner
        self._base = base or self
        self._specials: _Specials = (
            _Specials.read(inner) if base is None else base._specials  # noqa: SLF001 (its own)
        )
        self._allowed_option: Special = allowed
        self._disallowed_option = disallowed
        every = frozenset(self._specials.ids)
        self._allowed = every if allowed == "all" else allowed & every
        self.mode = self._allowed or None
        sought = every - self._allowed if disallowed == "all" else frozenset(disallowed)
        # An empty string is in every text; tiktoken itself is to say so.
        self._is_forbidden = "" in sought
        self._forbidden = _scanner(sought - {""})
        # The allowed tokens that a run is looked through for, and all others.
        self._sought = _scanner(self._allowed & self._specials.sure)
        self._not_sought = self._allowed - self._specials.sure
        self._has_numpy = importlib.util.find_spec("numpy") is not None

    def inspect(
        self,
        special_tokens: Sequence[str] | None,
        *,
        trust_custom: bool = False,  # noqa: ARG002 (nothing here is made in Python)
    ) -> Eligibility:
        """Find out which special tokens are boundaries; see `Backend.inspect`."""
        check_list(special_tokens)
        specials = self._specials
        judged, unscanned = judge(
            [
                AddedTokenView(content, token_id, special=True)
                for content, token_id in specials.ids.items()
            ],
            normalizes=False,
            listed=special_tokens or None,
        )
        tokens: list[TokenVerdict] = []
        refused = list(unscanned)
        for token in judged:
            reason = token.reason
            if token.content not in self._allowed:
                reason = "it is not among the call's allowed special tokens"
            reason = specials.reasons.get(token.content, reason)
            # No token that is refused can touch one that is not, so none is scanned.
            (tokens if reason is None else refused).append(
                replace(token, reason=reason)
            )
        off = None
        if special_tokens is not None and not special_tokens:
            off = "special_tokens is empty"
        elif not self._allowed:
            off = NONE_ALLOWED
        elif not tokens:
            off = "none of the allowed special tokens can be a boundary"
        return Eligibility(
            enabled=off is None,
            reason=off,
            tokens=tuple(tokens),
            unscanned=tuple(refused),
            before=(),
            after=(),
        )

    def with_options(
        self,
        options: Mapping[str, Any],
        *,
        is_batch: bool = False,  # noqa: ARG002
    ) -> TiktokenBackend | None:
        """Return the backend for a call's ``allowed_special``, ``disallowed_special``.

        None for what tiktoken itself refuses, or takes in a way of its own.
        """
        try:
            return self._base._known(tuple(options.items()))  # noqa: SLF001 (its own)
        except TypeError:  # a set or a list has no hash
            return self._base._resolved(options)  # noqa: SLF001 (its own)

    def check_text(self, text: str) -> None:
        """Raise tiktoken's ``ValueError`` if a disallowed token is in a text (GB/s)."""
        if self._is_forbidden or self._forbidden.matches(text):
            self.inner.encode(
                text,
                allowed_special=self._allowed_option,
                disallowed_special=self._disallowed_option,
            )

    def encode_run(self, text: str) -> Sequence[int]:
        """Return the ids of a part of a text; what is disallowed was looked for."""
        # tiktoken makes a set of what it is given in each call, 0.1 µs a token: it gets
        # only what the text has.
        contents = self._sought.contents
        found = (contents[index] for _, _, index in self._sought.matches(text))
        return self._encode(text, self._not_sought.union(found))

    def encode_whole(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: ARG002, FBT001
        """Return the ids of a whole text that `check_text` let pass.

        Any backend of the mode may be asked, so what is disallowed is none of its own.
        """
        return self.encode_run(text)

    def encode_bare_batch(self, texts: list[str]) -> Sequence[Sequence[int]]:
        """Return the ids of each text, by tiktoken's own threads."""
        return self.inner.encode_batch(
            texts, allowed_special=self._allowed, disallowed_special=()
        )

    def encode_whole_batch(
        self,
        texts: list[str],
        add_special_tokens: bool,  # noqa: ARG002, FBT001 - as in encode_whole
    ) -> Sequence[Sequence[int]]:
        """Return the ids of each text that `check_text` let pass."""
        return self.encode_bare_batch(texts)

    def encode_segment(self, text: str, allow_special: bool) -> Sequence[int]:  # noqa: FBT001
        """Return the ids of a part of a segment list.

        A trusted part is encoded with the options' special tokens, or with all of them
        where the options allow none; the other parts have no special tokens.
        """
        if allow_special:
            return self._encode(text, self._allowed or "all")
        return self.inner.encode_ordinary(text)

    def fingerprint(self) -> bytes:
        """Return a hash of all that ids depend on, the encoding's name not among it."""
        try:
            pattern = self.inner._pat_str  # noqa: SLF001 (there is no public way)
            ranks = self.inner._mergeable_ranks  # noqa: SLF001
        except AttributeError:
            return super().fingerprint()
        digest = hashlib.sha256(b"tiktoken")
        # Lengths go first, so that no two lists of parts are the same bytes.
        parts = [pattern.encode(), b"%d" % len(ranks)]
        for token, rank in sorted(ranks.items()):
            parts += (token, b"%d" % rank)
        for content, token_id in sorted(self._specials.ids.items()):
            parts += (content.encode(), b"%d" % token_id)
        for part in parts:
            digest.update(b"%d:" % len(part) + part)
        return digest.digest()

    # ------------------------------------------------------------------------ details

    def _encode(self, text: str, allowed: Special) -> Sequence[int]:
        if self._has_numpy and len(text) >= LARGE:
            try:
                return self.inner.encode_to_numpy(  # type: ignore[return-value]
                    text, allowed_special=allowed, disallowed_special=()
                )
            except UnicodeEncodeError:  # surrogates, which only encode() mends
                pass
        return self.inner.encode(text, allowed_special=allowed, disallowed_special=())

    @functools.cached_property
    def _known(self) -> Callable[[tuple[tuple[str, Any], ...]], TiktokenBackend | None]:
        return functools.lru_cache(MAX_OPTIONS)(
            lambda items: self._resolved(dict(items))
        )

    def _resolved(self, options: Mapping[str, Any]) -> TiktokenBackend | None:
        if not options:
            return self
        if not options.keys() <= OPTIONS:
            return None
        allowed = options.get("allowed_special", frozenset())
        disallowed = options.get("disallowed_special", "all")
        if isinstance(allowed, set):  # tiktoken takes no other kind of set
            allowed = frozenset(allowed)
        if isinstance(disallowed, (list, AbstractSet)):
            disallowed = frozenset(disallowed)
        if not (
            _is_special(allowed, frozenset)
            and _is_special(disallowed, frozenset, tuple)
        ):
            return None
        try:
            return self._option(allowed, disallowed)
        except TypeError:  # what is in them has no hash, or is no str
            return None

    @functools.cached_property
    def _option(self) -> Callable[..., TiktokenBackend]:
        return functools.lru_cache(MAX_OPTIONS)(self._with_option)

    def _with_option(
        self, allowed: Special, disallowed: Special | tuple[str, ...]
    ) -> TiktokenBackend:
        for option in (allowed, disallowed):
            if option != "all" and not all(isinstance(each, str) for each in option):
                raise TypeError("a special token is no str")
        if allowed == frozenset() and disallowed == "all":
            return self
        return TiktokenBackend(self.inner, allowed, disallowed, base=self)


@dataclass(frozen=True, slots=True)
class _Specials:
    """Hold the special tokens of an encoding, whatever a call allows.

    ``reasons`` says why a token is no boundary in any mode. Those in ``sure`` are seen
    by tiktoken exactly where a text has them.
    """

    ids: dict[str, int]
    reasons: dict[str, str]
    sure: frozenset[str]

    @classmethod
    def read(cls, inner: tiktoken.Encoding) -> _Specials:
        """Ask the encoding; costs some 30 µs for each token."""
        contents = sorted(inner.special_tokens_set)
        overlaps = overlapping(contents, itself=False)
        ids = {}
        reasons = {}
        for content in contents:
            ids[content], reason = _id_of(inner, content)
            if "" in contents:
                reason = "the encoding has an empty special token"
            elif content in overlaps:
                other = overlaps[content]
                reason = f"it can overlap {other!r}, and either of them can win"
            if reason is not None:
                reasons[content] = reason
        sure = frozenset(contents) - overlaps.keys() - {""}
        # Surrogates become other characters before tiktoken looks for tokens.
        if any(char > "\uffff" or char == "\ufffd" for char in "".join(contents)):
            sure = frozenset()
        return cls(ids, reasons, sure)


def _id_of(inner: tiktoken.Encoding, content: str) -> tuple[int, str | None]:
    """Return a special token's id, and why it does not stand for the token alone."""
    ids = inner.encode(content, allowed_special={content}, disallowed_special=())
    if len(ids) != 1:
        return inner.encode_single_token(content), "it is not matched alone"
    if inner.decode_single_token_bytes(ids[0]) != content.encode():
        return ids[0], f"its id {ids[0]} is that of other text, too"
    return ids[0], None


def _is_special(option: object, *kinds: type) -> bool:
    """Tell whether an option is of a kind that is understood here."""
    return option == "all" if isinstance(option, str) else isinstance(option, kinds)


def _scanner(contents: Collection[str]) -> Scanner:
    return Scanner((content, i, 1, True) for i, content in enumerate(sorted(contents)))
