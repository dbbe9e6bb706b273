"""Read and call a ``tokenizers.Tokenizer`` (0.20.3 and newer)."""

from __future__ import annotations

import hashlib
import json
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, models

from tokcache.backends._added_tokens import (
    confirm,
    exact_copy,
    listed_tokens,
    with_added,
)
from tokcache.backends.base import Backend
from tokcache.backends.probing import UNLIKELY
from tokcache.backends.shape import Shape
from tokcache.eligibility import (
    AddedTokenView,
    Eligibility,
    TokenVerdict,
    attempt,
    check_list,
    find_affixes,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Characters from which on encode_batch_fast is used: a fifth faster than encode, and
# without the GIL. Below, handing the text to another thread costs more than it saves.
LARGE = 4096

# Of one encoding after another, each list being freed before the next is made.
IDS = operator.attrgetter("ids")

# How many added tokens are read before every insert, and for more of them, how many
# characters must have been encoded for each.
FEW_TOKENS = 32
CHARS_A_TOKEN = 16

# The parameter that makes a model draw lots. None and 0 turn it off.
RANDOMNESS = {models.BPE: "dropout", models.Unigram: "alpha"}

NONE_LEFT = "none of the added tokens can be a boundary"

# Whether two added tokens are equal only if their flags are; not so in old versions.
_COMPARES_FLAGS = AddedToken("a", special=True) != AddedToken("a", special=False)


_NOT_MADE: Any = object()


class _Copies:
    """Hold copies of a tokenizer as it was when it was read, each made when needed.

    When the tokenizer is read again, they are replaced all together: what another
    thread was still making then is kept by nobody.
    """

    bare: Tokenizer | None = _NOT_MADE
    """Without live state; None if it was found that it cannot be had."""
    whole: Tokenizer | None = None
    plain: Tokenizer | None = None
    """One for which special tokens are text."""


class TokenizersBackend(Backend):
    """Give a ``tokenizers.Tokenizer`` to the cache."""

    name = "tokenizers"

    def __init__(self, inner: Tokenizer) -> None:
        """Read nothing yet but the kind of the model."""
        self.inner = inner
        self._read_live(inner)

    def _read_live(self, inner: Tokenizer) -> None:
        """Note what `is_stale` compares with, and forget copies of the tokenizer."""
        self._randomness = RANDOMNESS.get(type(inner.model))
        self._n_around = inner.num_special_tokens_to_add(False)  # noqa: FBT003
        self._added = _listed(inner)
        self._vocab_size = inner.get_vocab_size()
        self._unchecked = 0
        self._copies = _Copies()

    def inspect(
        self, special_tokens: Sequence[str] | None, *, trust_custom: bool = False
    ) -> Eligibility:
        """Find out which added tokens are boundaries; see `Backend.inspect`.

        Costs some 10 µs for each added token. The vocabulary is read before tokenizers
        0.23 only: 16 to 300 ms for real tokenizers.
        """
        check_list(special_tokens)
        inner = self.inner
        self._read_live(inner)
        added = listed_tokens(inner)
        names, ids = (frozenset[str](), frozenset[int]())
        off = self._off_reason(special_tokens, added, trust_custom=trust_custom)
        if off is None:
            names, ids = _unknown(inner)
        normalizes = _normalizes(inner)
        tokens, unscanned = judge(
            added,
            normalizes=normalizes,
            unknown_contents=names,
            unknown_ids=ids,
            listed=special_tokens or None,
        )
        if off is None:
            off, tokens = confirm(inner, added, tokens, normalizes=normalizes)
        if off is None:
            return self._measure(tokens, unscanned)
        return Eligibility(
            enabled=False, reason=off, tokens=tokens, unscanned=unscanned
        )

    def bypass_reason(self) -> str | None:
        """Return which live setting keeps calls from the straight way (0.3 µs)."""
        inner = self.inner
        if inner.truncation is not None:
            return "truncation is on"
        if inner.padding is not None:
            return "padding is on"
        if inner.encode_special_tokens:
            return "encode_special_tokens is on"
        name = self._randomness
        if name is not None and getattr(inner.model, name, None):
            return f"the model's {name} is on"
        if inner.num_special_tokens_to_add(False) != self._n_around:  # noqa: FBT003
            return "the post-processor has changed"
        return None

    def is_stale(self, n_chars: int) -> bool:
        """Compare the post-processor's count, and the added tokens if ids are at stake.

        Reading a few added tokens costs as much as an inner call, so they are read each
        time. Many are only counted (0.01 µs each, not 0.2) until so much was encoded
        that reading them adds no more than a twentieth to it.
        """
        inner = self.inner
        if inner.num_special_tokens_to_add(False) != self._n_around:  # noqa: FBT003
            return True
        if not n_chars:
            return False
        self._unchecked += n_chars
        n_added = len(self._added)
        if n_added > FEW_TOKENS and self._unchecked < CHARS_A_TOKEN * n_added:
            return bool(inner.get_vocab_size() != self._vocab_size)
        self._unchecked = 0
        return bool(_listed(inner) != self._added)

    def shape(self, add_special_tokens: bool) -> Shape | None:  # noqa: FBT001
        """Return what truncation and padding make of ids, where they cannot fail."""
        inner = self.inner
        name = self._randomness
        if (
            inner.encode_special_tokens
            or (name is not None and getattr(inner.model, name, None))
            or self._bare_tokenizer() is None
        ):
            return None
        truncation, shape = inner.truncation, self.padding()
        if truncation is not None:
            around = self._n_around if add_special_tokens else 0
            room = truncation["max_length"] - around
            if truncation["strategy"] == "only_second" or room <= truncation["stride"]:
                return None
            shape = replace(
                shape,
                max_ids=room,
                cuts_left=truncation["direction"].lower() == "left",
            )
        return shape

    def padding(self) -> Shape:
        """Return what padding alone makes of ids."""
        return Shape.of_padding(self.inner.padding)

    def encode_run(self, text: str) -> list[int]:
        """Return the ids of a part of a text, nothing put before or after them."""
        return _ids(self.inner, text, add_special_tokens=False)

    def encode_bare(self, text: str) -> list[int]:
        """Return the ids of a part of a text as without truncation and padding."""
        bare = self._bare_tokenizer()
        return _ids(
            self.inner if bare is None else bare, text, add_special_tokens=False
        )

    def encode_whole(self, text: str, add_special_tokens: bool) -> list[int]:  # noqa: FBT001
        """Return the ids of a whole text, exactly the tokenizer's own."""
        return _ids(self.inner, text, add_special_tokens=add_special_tokens)

    def encode_bare_batch(self, texts: list[str]) -> Iterable[list[int]]:
        """Return what `encode_bare` would for each, in parallel."""
        bare = self._bare_tokenizer()
        inner = self.inner if bare is None else bare
        return map(IDS, inner.encode_batch_fast(texts, False, False))  # noqa: FBT003

    def encode_whole_batch(
        self,
        texts: list[str],
        add_special_tokens: bool,  # noqa: FBT001 - as in encode_whole
    ) -> Iterable[list[int]]:
        """Return the ids of whole texts, which the tokenizer encodes in parallel."""
        try:
            found = self.inner.encode_batch_fast(texts, False, add_special_tokens)  # noqa: FBT003
        except Exception:  # noqa: BLE001 - it comes again in encode_batch's own words
            found = self.inner.encode_batch(texts, False, add_special_tokens)  # noqa: FBT003
        return map(IDS, found)

    def encode_segment(self, text: str, allow_special: bool) -> list[int]:  # noqa: FBT001
        """Return the ids of a part; in an untrusted one special tokens are text."""
        if allow_special:
            bare = self._bare_tokenizer()
            if bare is None:
                copies = self._copies
                bare = copies.whole = copies.whole or _whole_copy(self.inner)
            return _ids(bare, text, add_special_tokens=False)
        copies = self._copies
        if copies.plain is None:
            plain = _rebuilt(self.inner) or _whole_copy(self.inner)
            plain.encode_special_tokens = True
            copies.plain = plain
        return _ids(copies.plain, text, add_special_tokens=False)

    def fingerprint(self) -> bytes:
        """Return a hash of the tokenizer's JSON and of what that leaves out."""
        inner = self.inner
        copy = _without_live_state(inner)
        try:
            text = (_whole_copy(inner) if copy is None else copy).to_str()
        except Exception as error:  # noqa: BLE001 - the library raises a bare one
            msg = f"a part of the tokenizer is made in Python: {error}"
            raise ValueError(msg) from None
        model = inner.model
        left_out = [getattr(model, name, None) for name in ("alpha", "nbest_size")]
        return hashlib.sha256(f"{left_out}{text}".encode()).digest()

    def live_settings(self) -> tuple[object, ...]:
        """Return the settings that are looked at in every call."""
        inner = self.inner
        return inner.encode_special_tokens, inner.truncation, inner.padding

    def _bare_tokenizer(self) -> Tokenizer | None:
        """Return a tokenizer without live state; None if it cannot be had cheaply."""
        inner: Tokenizer = self.inner
        if not _has_live_state(inner):
            return inner
        copies = self._copies
        if copies.bare is _NOT_MADE:
            copies.bare = exact_copy(inner, normalizes=_normalizes(inner))
        return copies.bare

    # ------------------------------------------------------------- what inspect does

    def _off_reason(
        self,
        special_tokens: Sequence[str] | None,
        added: Sequence[AddedTokenView],
        *,
        trust_custom: bool,
    ) -> str | None:
        """Return why no token at all can be a boundary, or None."""
        if special_tokens is not None and not special_tokens:
            return "special_tokens is empty"
        name = self._randomness
        if name is not None and getattr(self.inner.model, name, None):
            return f"the model's {name} is on: one text can get different ids"
        if not trust_custom:
            for part in ("normalizer", "pre_tokenizer", "post_processor"):
                if _state(getattr(self.inner, part)) is None:
                    return f"the {part} is made in Python (see trust_custom)"
        if not added:
            return "the tokenizer has no added tokens"
        return None

    def _measure(
        self,
        tokens: tuple[TokenVerdict, ...],
        unscanned: tuple[TokenVerdict, ...],
    ) -> Eligibility:
        """Try the tokens on the tokenizer itself, and measure what goes around."""
        affixes: tuple[tuple[int, ...], tuple[int, ...]] | str
        measured = _without_live_state(self.inner)
        if measured is None:
            affixes = "truncation or padding was on when it was to be measured"
        else:
            tokens = _try_alone(measured, tokens)
            affixes = _measure_affixes(measured, tokens)
        is_any_left = any(token.is_eligible for token in tokens)
        before, after, affix_reason = (
            (None, None, affixes) if isinstance(affixes, str) else (*affixes, None)
        )
        return Eligibility(
            enabled=is_any_left,
            reason=None if is_any_left else NONE_LEFT,
            tokens=tokens,
            unscanned=unscanned,
            before=before,
            after=after,
            affix_reason=affix_reason,
        )


def _ids(inner: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    # A text that is no str (or has a lone surrogate) goes where raw users send it.
    if len(text) < LARGE:
        ids: list[int] = inner.encode(text, None, False, add_special_tokens).ids  # noqa: FBT003
        return ids
    [encoding] = inner.encode_batch_fast([text], False, add_special_tokens)  # noqa: FBT003
    return encoding.ids


# ------------------------------------------------------------------- reading the parts


def _listed(inner: Tokenizer) -> Any:
    """Return the added tokens in a form whose comparison is quick and sees flags."""
    listed = inner.get_added_tokens_decoder()
    return listed if _COMPARES_FLAGS else listed_tokens(inner)


def _state(component: Any) -> Any:
    """Return a component's settings, or None if a part of it is made in Python."""
    if component is None:
        return {}
    try:
        return json.loads(component.__getstate__())
    except Exception:  # noqa: BLE001 (the library raises a bare Exception)
        return None


def _normalizes(inner: Tokenizer) -> bool:
    """Tell whether there is a normalizer that does anything."""

    def is_effective(state: dict[str, Any]) -> bool:
        if state.get("type") == "Sequence":
            return any(map(is_effective, state["normalizers"]))
        return True

    if inner.normalizer is None:
        return False
    state = _state(inner.normalizer)
    return state is None or is_effective(state)


def _unknown(inner: Tokenizer) -> tuple[frozenset[str], frozenset[int]]:
    """Return the contents and the ids that stand for what the model does not know."""
    model = inner.model
    name = getattr(model, "unk_token", None)
    if name is not None:
        ids = (model.token_to_id(name), inner.token_to_id(name))
        return frozenset([name]), frozenset(i for i in ids if i is not None)
    if isinstance(model, models.Unigram):
        unknown = _unigram_unknown(model)
        return frozenset(), frozenset() if unknown is None else frozenset([unknown])
    return frozenset(), frozenset()


def _unigram_unknown(model: models.Unigram) -> int | None:
    """Find a Unigram model's unknown id, which it does not tell but in its state."""
    for text in UNLIKELY:
        if model.token_to_id(text) is None:
            ids = attempt(lambda: [each.id for each in model.tokenize(text)])  # noqa: B023
            if isinstance(ids, str):  # it has no unknown id, and says so
                return None
            if len(ids) == 1:
                return ids[0]
            break
    # With byte fallback the character came out as bytes. The state has the whole
    # vocabulary in it, but such models are rare.
    unknown: int | None = json.loads(model.__getstate__()).get("unk_id")
    return unknown


# ------------------------------------------------------------------- trying the tokens


def _has_live_state(inner: Tokenizer) -> bool:
    return bool(
        inner.truncation is not None
        or inner.padding is not None
        or inner.encode_special_tokens
    )


def _without_live_state(inner: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer that encodes as this one does without truncation and such."""
    return _rebuilt(inner) if _has_live_state(inner) else inner


def _whole_copy(inner: Tokenizer) -> Tokenizer:
    """Return a copy that shares nothing, without truncation and padding."""
    copy = Tokenizer.from_str(inner.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _rebuilt(inner: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer with the same parts and added tokens, and no live state.

    It shares the model and the other parts, so it is cheap. None if it cannot be built:
    ids of added tokens that were taken out of order cannot be given again.
    """
    added = listed_tokens(inner)
    copy = with_added(inner, added)
    return copy if listed_tokens(copy) == added else None


def _try_alone(
    inner: Tokenizer, tokens: tuple[TokenVerdict, ...]
) -> tuple[TokenVerdict, ...]:
    """Refuse tokens that do not yield exactly their own id.

    One token of each class of flags is enough here, the others are tried at their first
    sight; in a class whose first fails, the next ones are tried.
    """
    judged = []
    passed = set()
    for token in tokens:
        if token.is_eligible and (token.phase, token.flags) not in passed:
            reason = _alone_reason(inner, token)
            if reason is None:
                passed.add((token.phase, token.flags))
            token = replace(token, reason=reason)  # noqa: PLW2901
        judged.append(token)
    return tuple(judged)


def _alone_reason(inner: Tokenizer, token: TokenVerdict) -> str | None:
    ids = attempt(lambda: _ids(inner, token.content, add_special_tokens=False))
    if isinstance(ids, str):
        return f"it cannot be encoded alone: {ids}"
    if ids == [token.id]:
        return None
    return f"encoded alone it gives the ids {ids[:8]}, not its own id {token.id}"


def _measure_affixes(
    inner: Tokenizer, tokens: tuple[TokenVerdict, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
    probes = ["a", "Hello world", "1\n2", " é中 ", "\n"]
    for token in [token for token in tokens if token.is_eligible][:3]:
        content = token.content
        probes += (content, f"a{content} b", f"{content}{content}\n1")

    def encode(text: str, add_special_tokens: bool) -> list[int]:  # noqa: FBT001
        return _ids(inner, text, add_special_tokens=add_special_tokens)

    return find_affixes(encode, probes)
