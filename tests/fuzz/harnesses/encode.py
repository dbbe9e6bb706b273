"""Encode with a random tokenizer and its cache: the same ids, whatever went before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tests.fuzz.cases import draw_case
from tests.fuzz.draws import Draws
from tests.fuzz.shrinking import reproduction
from tests.fuzz.side_by_side import attempt, run_case
from tests.fuzz.totals import Totals
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from tests.fuzz.cases import Case

MAX_BATCH = 12  # texts of a case that are encoded once more, together


def _batched(case: Case) -> str | None:
    """Encode the texts of a case in one cold batch and in a warm one, and in a loop."""
    texts = [text for step in case.steps for text in step.texts][-MAX_BATCH:]
    loop, batch = (
        CachedTokenizer(Tokenizer.from_str(case.tokenizer), **case.options)
        for _ in range(2)
    )
    for temperature in ("cold", "warm"):
        wanted = attempt(lambda: [loop.encode(text).ids for text in texts])
        got: Any = attempt(lambda: [ids.ids for ids in batch.encode_batch(texts)])
        if isinstance(wanted, type) or isinstance(got, type):
            # A loop ends at the first text that fails, a batch goes on behind it.
            failed = wanted if isinstance(wanted, type) else got
            both = isinstance(wanted, type) and isinstance(got, type)
            return None if both else f"only one of loop and batch raised {failed}"
        if got != wanted:
            return f"{temperature} batch: wanted {wanted}, got {got}"
        if batch.cache_stats() != loop.cache_stats():
            return f"{temperature} batch: {batch.cache_stats()}, {loop.cache_stats()}"
        batch._trie.check()
    return None


def run(data: bytes) -> None:
    """Run a case; fail with a program that shows what is wrong."""
    draws = Draws(data)
    case = draw_case(draws, Random(draws.getrandbits(16)))
    wrong = run_case(case, Totals()) or _batched(case)
    assert wrong is None, reproduction(case, wrong)
