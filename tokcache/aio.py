"""Encode on an event loop without holding it up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tokcache._ids import TokenIds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizers import Encoding

    from tokcache._plan import Plan
    from tokcache.cached import CachedTokenizer

# Characters from which on a thread is worth its price: handing over takes some 50 µs,
# in which a tokenizer gets through about a hundred.
MIN_CHARS = 512


async def encode(
    cached: CachedTokenizer,
    text: str,
    add_special_tokens: bool | None,  # noqa: FBT001 - as in CachedTokenizer.encode
    options: Mapping[str, Any],
) -> TokenIds | Encoding:
    """Return what ``cached.encode`` does: at once what is cached, else from a thread.

    Verifying, and what is not the ids of one text, is left to a thread as a whole.
    """
    # One package: these are the steps of `CachedTokenizer.encode` and `Flow._encode`.
    # ruff: noqa: SLF001
    if options:
        # Not every tokenizer has the flag, so it is given only if it was.
        return await asyncio.to_thread(
            cached.encode, text, add_special_tokens=add_special_tokens, **options
        )
    if add_special_tokens is not True and add_special_tokens is not False:
        add_special_tokens = cached._adds(add_special_tokens)
    state = cached._state
    if (
        cached._checks_text
        or cached._verify
        or cached._goes_aside(state, text, add_special_tokens)
    ):
        if len(text) < MIN_CHARS:
            return cached.encode(text, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(
            cached.encode, text, add_special_tokens=add_special_tokens
        )
    found = state.walker.lookup(text, add_special_tokens)
    if isinstance(found, TokenIds):
        return cached._watched(state, text, add_special_tokens, found)
    if _is_short(found, text):
        return cached._complete(state, found, text, add_special_tokens)
    return await asyncio.to_thread(
        cached._complete, state, found, text, add_special_tokens
    )


def _is_short(plan: Plan, text: str) -> bool:
    """Tell whether so little is missing that it is encoded sooner than handed over."""
    if len(text) < MIN_CHARS:
        return True
    if not plan.has_boundary:
        return False
    left = MIN_CHARS
    for i in range(plan.n_runs):
        left -= len(plan.run_text(i))
        if left < 0:
            return False
    return True
