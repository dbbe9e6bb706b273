"""Copy a ``tokenizers.Tokenizer`` without its live state, such as truncation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer

from tokcache.eligibility import AddedTokenView

if TYPE_CHECKING:
    from collections.abc import Iterable


def listed_tokens(inner: Tokenizer) -> list[AddedTokenView]:
    """Return the added tokens that a tokenizer lists, by id."""
    return [
        AddedTokenView(
            token.content,
            token_id,
            token.special,
            token.normalized,
            token.single_word,
            token.lstrip,
            token.rstrip,
        )
        for token_id, token in sorted(inner.get_added_tokens_decoder().items())
    ]


def with_added(inner: Tokenizer, added: Iterable[AddedTokenView]) -> Tokenizer:
    """Return a tokenizer of the same parts that has just these added tokens.

    It shares the model and the other parts, so it is cheap. The tokens have their ids
    again if none was taken out of order.
    """
    copy = Tokenizer(inner.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        if getattr(inner, part) is not None:
            setattr(copy, part, getattr(inner, part))
    copy.add_tokens(
        [
            AddedToken(
                token.content,
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
                special=token.special,
            )
            for token in added
        ]
    )
    return copy


def has_live_state(inner: Tokenizer) -> bool:
    """Tell whether a setting is on that changes what comes of a text."""
    return bool(
        inner.truncation is not None
        or inner.padding is not None
        or inner.encode_special_tokens
    )


def without_live_state(inner: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer that encodes as this one does without truncation and such."""
    return rebuilt(inner) if has_live_state(inner) else inner


def whole_copy(inner: Tokenizer) -> Tokenizer:
    """Return a copy that shares nothing, without truncation and padding."""
    copy = Tokenizer.from_str(inner.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def bare_copy(inner: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the same ids and no live state, as cheap as it can be."""
    return rebuilt(inner) or whole_copy(inner)


def rebuilt(inner: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer with the same parts and added tokens, and no live state.

    It shares the model and the other parts, so it is cheap. None if it cannot be built:
    ids of added tokens that were taken out of order cannot be given again.
    """
    added = listed_tokens(inner)
    copy = with_added(inner, added)
    return copy if listed_tokens(copy) == added else None
