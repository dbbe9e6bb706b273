"""Encode with a random tokenizer and its cache: the same ids, whatever went before."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tests.fuzz.cases import Case, Step, change_of_tokens, draw_options, lowered_forms
from tests.fuzz.draws import Draws
from tests.fuzz.random_tokenizer import (
    CHARACTERS,
    MARKS,
    SPACES,
    place_to_cut,
    random_tokenizer,
)
from tests.fuzz.shrinking import reproduction
from tests.fuzz.side_by_side import attempt, in_one_batch, run_case
from tests.fuzz.totals import Totals
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.random_tokenizer import Fragments

MAX_STEPS = 30
MAX_CHARS = 400
MAX_BATCH = 8  # texts of a case that are encoded once more, together
KINDS = ("encode",) * 10 + ("count", "count", "batch", "clear", "switch", "add")


class _Texts:
    """Draw texts, a byte for each part, most of them made of earlier ones."""

    def __init__(self, draws: Draws, fragments: Fragments) -> None:
        tokens = fragments.tokens
        halves = [token[: len(token) // 2] for token in tokens]
        rests = [token[len(token) // 2 :] for token in tokens]
        others = (*fragments.pieces, *halves, *rests, *SPACES, *MARKS, *CHARACTERS)
        self.draws = draws
        self.fragments = fragments
        # Half of the parts are tokens, however few there are.
        self.parts = (*tokens * (len(others) // max(1, len(tokens))), *others)
        self.earlier = [""]

    def draw(self) -> str:
        """Draw a part of an earlier text, something new, and maybe the rest of it."""
        draws = self.draws
        one = draws.choice(self.earlier[-8:])
        cut = draws.choice((len(one), place_to_cut(draws, self.fragments, one)))
        new = "".join(draws.choice(self.parts) for _ in range(draws.randrange(12)))
        if draws.randrange(16) == 0:
            new *= draws.randrange(30)
        rest = one[cut:] if draws.randrange(4) == 0 else ""
        if draws.randrange(200) == 0:
            rest += "\ud800"  # a lone surrogate: every tokenizer raises
        self.earlier.append((one[:cut] + new + rest)[:MAX_CHARS])
        return self.earlier[-1]


def _repeats_text(tokenizer: Tokenizer) -> bool:
    """Tell whether a template has the text more than once."""
    last = json.loads(tokenizer.to_str())["post_processor"] or {}
    return any(
        sum("Sequence" in part for part in processor.get("single", ())) > 1
        for processor in last.get("processors", [last])
    )


def _steps(draws: Draws, tokenizer: Tokenizer, fragments: Fragments) -> Iterator[Step]:
    """Draw steps as long as there are bytes."""
    texts = _Texts(draws, fragments)
    lowered = lowered_forms(fragments, normalizes=tokenizer.normalizer is not None)
    # The library joins each part that truncation cuts off with each, once for each time
    # that a template has the text: seconds for some hundred characters.
    states = ("padding", "plain", *(("truncation",) * (not _repeats_text(tokenizer))))
    special = draws.randrange(3)
    for _ in range(MAX_STEPS):
        if not draws:
            break
        kind = draws.choice(KINDS)
        flag = draws.randrange(2) == 1 if special == 2 else special == 1
        if kind == "switch":
            yield Step(draws.choice(states), flag=draws.randrange(4) == 0)
        elif kind == "add":
            yield change_of_tokens(draws, fragments, lowered)
        else:
            n = {"batch": draws.randrange(5), "clear": 0}.get(kind, 1)
            yield Step(kind, tuple(texts.draw() for _ in range(n)), flag)


def _batched(case: Case) -> str | None:
    """Encode the texts of a case in one cold batch and in a warm one, and in a loop."""
    texts = [text for step in case.steps for text in step.texts][-MAX_BATCH:]
    loop, batch = (
        CachedTokenizer(Tokenizer.from_str(case.tokenizer), **case.options)
        for _ in range(2)
    )
    for temperature in ("cold", "warm"):
        wanted = attempt(lambda: [loop.encode(text).ids for text in texts])
        got: Any = attempt(lambda: in_one_batch(batch, texts))
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
    vocabulary = Random(draws.getrandbits(16))
    tokenizer, fragments = random_tokenizer(draws, vocabulary)
    options = draw_options(draws, fragments.tokens)
    steps = tuple(_steps(draws, tokenizer, fragments))
    case = Case(tokenizer.to_str(), options, steps)
    wrong = run_case(case, Totals()) or _batched(case)
    assert wrong is None, reproduction(case, wrong)
