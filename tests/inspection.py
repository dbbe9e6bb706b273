"""Read what a backend found out about a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokcache.backends.tokenizers import TokenizersBackend

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tokcache.eligibility import Eligibility

IS_UNKNOWN = "it is the model's unknown token, whose id stands for any text"


def inspected(tokenizer: Tokenizer, **options: Any) -> Eligibility:
    """Inspect a tokenizer with no list, unless one is given."""
    options = {"special_tokens": None, **options}
    return TokenizersBackend(tokenizer).inspect(**options)


def reasons(found: Eligibility) -> dict[str, str | None]:
    """Return the reasons by content."""
    return {each.content: each.reason for each in (*found.tokens, *found.unscanned)}


def eligible(found: Eligibility) -> list[str]:
    """Return the boundary tokens."""
    return [each.content for each in found.tokens if each.is_eligible]
