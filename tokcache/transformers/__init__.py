"""Serve the fast tokenizers of ``transformers`` from a cache, in place.

>>> from tokcache.transformers import accelerate  # doctest: +SKIP
>>> accelerate(tokenizer)  # doctest: +SKIP
>>> tokenizer.apply_chat_template(messages)  # doctest: +SKIP

The object stays what it is, and so does its ``backend_tokenizer``: only how that
encodes batches of single texts is another, which is where all the ways of calling a
fast tokenizer meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from tokcache.transformers.encoding import CachedEncoding
from tokcache.transformers.hook import Hook, hook_of
from tokcache.transformers.tiktoken_inside import (
    accelerate_inside,
    caches_inside,
    unaccelerate_inside,
)

if TYPE_CHECKING:
    from tokcache.cached import CachedTokenizer

__all__ = ["CachedEncoding", "accelerate", "cached_tokenizer", "unaccelerate"]

AnyTokenizer = TypeVar("AnyTokenizer", bound=PreTrainedTokenizerBase)

# Where a tokenizer keeps its hook, so that copies and pickles of it have one too.
_FIELD = "_tokcache_hook"


def accelerate(tokenizer: AnyTokenizer, **settings: Any) -> AnyTokenizer:
    """Let a fast tokenizer answer from a cache; return the object itself.

    Every call has the results that it has without, whatever its options. The ids and
    masks of single texts, also truncated and padded, come from the cache; pairs,
    pre-tokenized input and ``split_special_tokens`` are encoded as ever; offsets, words
    and overflowing tokens are computed when they are first asked for.

    ``settings`` are those of `tokcache.CachedTokenizer`. Copies, deep copies and
    pickles are accelerated too, each deep copy with a cache of its own; what
    ``save_pretrained`` writes knows nothing of it. A tokenizer that is accelerated
    already gets a new cache.

    Tokens that are added and components that are set, on the tokenizer or on its
    backend, are noticed by the next call. Not noticed is another model in the backend:
    accelerate again after ``backend_tokenizer.model = ...``.

    In a tokenizer that is written in Python around a ``tiktoken.Encoding``, such as
    Kimi's and those of older Qwens, the attribute that is the encoding gets a cache in
    front; a copy that makes an encoding of its own has none. Refused are the tokenizers
    of mistral-common: they put their markers in as ids, so their texts have no
    boundaries.

    Raises ``TypeError`` if the tokenizer is neither, and as `CachedTokenizer` does.
    """
    unaccelerate(tokenizer)
    backend = _backend(tokenizer)
    if backend is not None:
        tokenizer.__dict__[_FIELD] = Hook(backend, settings)
    elif not accelerate_inside(tokenizer, settings):
        raise _not_fast(tokenizer)
    return tokenizer


def unaccelerate(tokenizer: AnyTokenizer) -> AnyTokenizer:
    """Undo `accelerate`, also for those that share the backend; return the object."""
    backend = _backend(tokenizer)
    hook = None if backend is None else hook_of(backend)
    if hook is not None:
        hook.detach()
    tokenizer.__dict__.pop(_FIELD, None)
    unaccelerate_inside(tokenizer)
    return tokenizer


def cached_tokenizer(tokenizer: PreTrainedTokenizerBase) -> CachedTokenizer:
    """Return the cache of an accelerated tokenizer: its statistics and reasons.

    Raises ``ValueError`` if the tokenizer is not accelerated.
    """
    backend = _backend(tokenizer)
    hook = None if backend is None else hook_of(backend)
    if hook is not None:
        return hook.cached
    for cached in caches_inside(tokenizer):
        return cached
    raise ValueError("the tokenizer is not accelerated")


def _backend(tokenizer: object) -> Tokenizer | None:
    """Return the backend of a fast tokenizer, None of another one."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise _not_fast(tokenizer)
    backend = vars(tokenizer).get("_tokenizer")
    return backend if type(backend) is Tokenizer else None


def _not_fast(tokenizer: object) -> TypeError:
    kind = type(tokenizer)
    return TypeError(
        "tokenizer must be a fast tokenizer of transformers, or one around a "
        f"tiktoken.Encoding, got {kind.__module__}.{kind.__qualname__}"
    )
