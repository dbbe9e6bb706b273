"""One small module for each tokenizer library, all with one face: `base.Backend`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokcache.backends.generic import GenericBackend
from tokcache.backends.tokenizers import TokenizersBackend

if TYPE_CHECKING:
    from tokcache.backends.base import Backend

# library -> its tokenizer class, our backend's class
LIBRARIES = {
    "tiktoken": ("Encoding", "TiktokenBackend"),
    "fastokens": ("Tokenizer", "FastokensBackend"),
    "gigatoken": ("Tokenizer", "GigatokenBackend"),
}


def backend_for(inner: Any, *, max_chars: int | None = None) -> Backend:
    """Return the backend for a tokenizer; imports no library that is not in use.

    Texts of more than ``max_chars`` characters pass through; None leaves the bound to
    the backend. Raises ``TypeError`` for what has no ``encode`` and ``decode``.
    """
    backend = _backend(inner)
    if max_chars is not None:
        backend.max_chars = max_chars
    return backend


def _backend(inner: Any) -> Backend:
    if isinstance(inner, Tokenizer):
        return TokenizersBackend(inner)
    kind = type(inner)
    for library, (class_name, backend_name) in LIBRARIES.items():
        # An object of a library cannot be there without the library.
        known = getattr(sys.modules.get(library), class_name, None)
        # A subclass that encodes in its own way is an unknown object.
        if known is not None and getattr(kind, "encode", None) is known.encode:
            module = import_module(f"tokcache.backends.{library}")
            backend: Backend = getattr(module, backend_name)(inner)
            return backend
    if callable(getattr(inner, "encode", None)) and hasattr(inner, "decode"):
        return GenericBackend(inner)
    msg = (
        "inner must be a tokenizer with encode and decode, "
        f"got {kind.__module__}.{kind.__qualname__}"
    )
    raise TypeError(msg)


__all__ = ["backend_for"]
