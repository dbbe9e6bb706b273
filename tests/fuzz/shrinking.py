"""Make a failing case small, and write it as a program."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.fuzz.side_by_side import attempt, run_case
from tests.fuzz.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.cases import Case

SHRINK_SECONDS = 20


def _without(items: Any) -> Iterator[Any]:
    """List the sequence with parts left out, large parts first."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2


def _replaced(case: Case, old: str, new: str) -> Case:
    """Change all texts alike: what prefixes share must stay shared."""
    steps = [
        replace(step, texts=tuple(text.replace(old, new) for text in step.texts))
        for step in case.steps
    ]
    return replace(case, steps=tuple(steps))


def _simpler(case: Case) -> Iterator[Case]:
    """List simpler cases, the most promising first."""
    for steps in _without(case.steps):
        yield replace(case, steps=steps)
    for name in case.options:
        rest = {key: value for key, value in case.options.items() if key != name}
        yield replace(case, options=rest)
    parts = json.loads(case.tokenizer)
    for tokens in _without(parts["added_tokens"]):  # the rest is numbered anew
        yield replace(case, tokenizer=json.dumps({**parts, "added_tokens": tokens}))
    for name in ("normalizer", "pre_tokenizer", "post_processor"):
        if parts[name] is not None:
            yield replace(case, tokenizer=json.dumps({**parts, name: None}))
    texts = dict.fromkeys(text for step in case.steps for text in step.texts)
    longest = max(texts, key=len, default="")
    for size in (64, 16, 4, 2, 1):
        starts = range(len(longest) + 1 - size)
        for part in dict.fromkeys(longest[at : at + size] for at in starts):
            yield _replaced(case, part, "")
    for text in texts:
        for less in _without(text):
            yield _replaced(case, text, less)


def _kind(wrong: object) -> str | None:
    """Return what kind of failure a description is of, without its data."""
    if not isinstance(wrong, str):
        return None
    return " ".join(
        re.findall("wanted|got|class|statistics|[a-z]+_bytes|raised", wrong)
    )


def shrink(case: Case) -> Case:
    """Leave out of a failing case what the failure does not need."""
    kind = _kind(run_case(case, Totals()))
    deadline = time.monotonic() + SHRINK_SECONDS
    progress = True
    while progress:
        progress = False
        for simpler in _simpler(case):
            if time.monotonic() > deadline:
                return case
            # A tokenizer that cannot even be read is no simpler case.
            wrong = attempt(partial(run_case, simpler, Totals()))
            if simpler != case and _kind(wrong) == kind:
                case, progress = simpler, True
                break
    return case


def reproduction(case: Case, wrong: str) -> str:
    """Write a failing case as a program of its own."""
    lines = [
        f"# {wrong}",
        "from tests.fuzz.cases import Case, Step",
        "from tests.fuzz.side_by_side import run_case",
        "from tests.fuzz.totals import Totals",
        f"TOKENIZER = {case.tokenizer!r}",
        f"OPTIONS = {case.options!r}",
        "STEPS = (",
        *(f"    {step!r}," for step in case.steps),
        ")",
        "print(run_case(Case(TOKENIZER, OPTIONS, STEPS), Totals()))",
    ]
    return "\n".join(lines)
