"""One small module for each tokenizer library, all with one face: `base.Backend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokcache.backends.tokenizers import TokenizersBackend

if TYPE_CHECKING:
    from tokcache.backends.base import Backend


def backend_for(inner: Any, *, max_chars: int | None = None) -> Backend:  # noqa: ARG001
    """Return the backend for a tokenizer; ``TypeError`` if its library is not known."""
    if isinstance(inner, Tokenizer):
        return TokenizersBackend(inner)
    kind = type(inner)
    msg = (
        "inner must be a tokenizers.Tokenizer, "
        f"got {kind.__module__}.{kind.__qualname__}"
    )
    raise TypeError(msg)


__all__ = ["backend_for"]
