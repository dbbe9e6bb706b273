"""Switch the cache's rules off one by one, to see that the fuzzer would notice.

Each mutant breaks one rule in process. Two nets hang below most rules, the trial of a
token at its first sight and the self-check on every insert; they catch so much that a
missing rule shows once in some thousand cases only. Where they stand in the way they
are switched off as well, and a control shows that it is the rule that was missed.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.fuzz.cases import random_case
from tests.fuzz.side_by_side import run_case
from tests.fuzz.totals import Totals
from tokcache import eligibility
from tokcache.flow import _Fed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule that is switched off: what is replaced, by its dotted name."""

    name: str
    patches: dict[str, Any]

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Switch the rule off for a while."""
        with contextlib.ExitStack() as stack:
            for name, replacement in self.patches.items():
                stack.enter_context(mock.patch(name, replacement))
            yield

    def first_wrong(self, seed: int, limit: int) -> int | None:
        """Return the number of the first case with a wrong answer, or None."""
        with self():
            for number in range(limit):
                wrong = run_case(random_case(seed, number), Totals())
                if wrong is not None and re.search(r"wanted [\d\[]", wrong):
                    return number
        return None


def _no_reasons(*_: object) -> dict[str, str]:
    return {}


def _reasons_but(clause: str, rule: Callable[..., dict[str, str]]) -> Any:
    """Return the rule without the reasons that have this clause in them."""

    def rest(*args: Any) -> dict[str, str]:
        return {
            content: reason
            for content, reason in rule(*args).items()
            if clause not in reason
        }

    return rest


def _no_trial(*_: object) -> None:
    """Trust every token at first sight."""


def _judge_without_normalizer(*args: Any, **options: Any) -> Any:
    return eligibility.judge(*args, **{**options, "normalizes": False})


def _encode_without_anchor(self: Any, text: str) -> list[int]:
    """Cut behind a leading token, as if nothing behind it looked at it."""
    for token in sorted(
        self.inner.get_added_tokens_decoder().values(), key=lambda t: -len(t.content)
    ):
        if text.startswith(token.content):
            rest = text[len(token.content) :]
            token_id = self.inner.token_to_id(token.content)
            ids = self.inner.encode(rest, add_special_tokens=False).ids
            return [token_id, *ids]
    ids = self.inner.encode(text, add_special_tokens=False).ids
    return list(ids)


def _feed_unchecked(
    _: Any, state: Any, plan: Any, _text: str, _special: bool, encode: Any, *_batch: Any
) -> _Fed:
    """Feed each segment with its ends made what the self-check wants to see."""
    tokens = state.root.eligibility.tokens
    n_chars = 0
    for run in range(plan.n_runs):
        fed = []
        for number, piece in enumerate(plan.segment_texts(run)):
            ids = list(encode(piece))
            n_chars += len(piece)
            found = plan.walker.scanner.boundaries(piece)
            if run or number or plan.hit:  # it has an anchor
                _, anchor = found.pop(0)
                ids[:1] = [tokens[anchor].id]
            if found and found[-1][0] == len(piece):
                ids[-1:] = [tokens[found[-1][1]].id]
            fed.append(ids)
        if plan.feed_segments(run, fed):
            return _Fed(None, 0)
    return _Fed(n_chars, 0)


RULES = "tokcache.eligibility."
BACKEND = "tokcache.backends.tokenizers."
NO_NETS = {
    "tokcache.state.probe_token": _no_trial,
    "tokcache.flow.Flow._feed": _feed_unchecked,
}


def _own_but(clause: str) -> dict[str, Any]:
    """Drop one of the reasons that a token's own text and flags give."""
    return {RULES + "_own_reasons": _reasons_but(clause, eligibility._own_reasons)}


def _taken_first_but(clause: str) -> dict[str, Any]:
    """Drop one of the reasons that phase 1 gives against a token of phase 2."""
    return {RULES + "_taken_first": _reasons_but(clause, eligibility._taken_first)}


CONTROL = Mutant("every rule on, both nets off", NO_NETS)

MUTANTS = (
    Mutant("single_word tokens are eligible", {**NO_NETS, **_own_but("single_word")}),
    Mutant("the unknown token is eligible", {**NO_NETS, **_own_but("unknown token")}),
    Mutant("white space is eligible", {**NO_NETS, **_own_but("white space")}),
    Mutant("longer tokens go on unseen", {RULES + "_outgrown": _no_reasons}),
    Mutant("phase 1 takes nothing", {**NO_NETS, RULES + "_taken_first": _no_reasons}),
    Mutant(
        "rstrip in phase 1 is ignored", {**NO_NETS, **_taken_first_but("is rstrip")}
    ),
    Mutant(
        "lstrip in phase 1 is ignored", {**NO_NETS, **_taken_first_but("is lstrip")}
    ),
    Mutant(
        "a normalizer leaves phase 2 alone",
        {**NO_NETS, BACKEND + "judge": _judge_without_normalizer},
    ),
    Mutant(
        "texts are cut without the anchor",
        {**NO_NETS, BACKEND + "TokenizersBackend.encode_run": _encode_without_anchor},
    ),
    Mutant(
        "live state is not looked at",
        {BACKEND + "TokenizersBackend.bypass_reason": lambda _: None},
    ),
    Mutant(
        "new tokens are not noticed",
        {
            "tokcache.delegation._MUTATORS": frozenset(),
            BACKEND + "TokenizersBackend.is_stale": lambda *_: False,
        },
    ),
)
