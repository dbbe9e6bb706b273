"""Draw cases: a tokenizer, the options of its cache, and what is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.fuzz.random_tokenizer import chance, pick, random_text, random_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fuzz.random_tokenizer import Fragments


@dataclass(frozen=True, slots=True)
class Step:
    """Encode, count or batch some texts; clear; or switch a state of the tokenizer."""

    kind: str  # encode, count, batch, clear, add; truncation, padding, plain, lower
    texts: tuple[str, ...] = ()  # for add: a token and the names of its flags
    flag: bool = False  # add_special_tokens; for a state: on or off


@dataclass(frozen=True, slots=True)
class Case:
    """All that a failure depends on."""

    tokenizer: str
    options: dict[str, Any]
    steps: tuple[Step, ...]


def draw_options(rng: Random, tokens: Sequence[str]) -> dict[str, Any]:
    """Draw the options of a cached tokenizer; a third have hardly any room."""
    options: dict[str, Any] = {}
    if chance(rng, 0.25):
        options["special_tokens"] = [token for token in tokens if chance(rng, 0.7)]
    if chance(rng, 0.3):
        sizes = (0, 40, 120, 400, 2000, 8000, 20_000)
        options["max_memory_bytes"] = rng.choice(sizes)
    if chance(rng, 0.2):
        sizes = (0, 1500, 3000, 6000, 20_000, 100_000, 300_000)
        options["max_resident_bytes"] = rng.choice(sizes)
    if chance(rng, 0.2):
        options["extend_on_hit"] = False
    if chance(rng, 0.2):
        options["cache_tails"] = False
    return options


def _steps(rng: Random, fragments: Fragments, *, normalizes: bool) -> Iterator[Step]:
    """Draw what is done with a cached tokenizer, in order."""
    special = pick(rng, (2, 0.5), (1, 0.05), (1, 0.95))
    switches, adds = chance(rng, 0.05), chance(rng, 0.05)
    lowered = lowered_forms(fragments, normalizes=normalizes)
    texts: list[str] = []
    for _ in range(rng.randint(5, 60)):
        kind = pick(rng, (80, "encode"), (12, "count"), (5, "batch"), (1.5, "clear"))
        drawn = []
        for _ in range({"batch": rng.randint(0, 4), "clear": 0}.get(kind, 1)):
            text = random_text(rng, fragments, texts)
            texts.append(text)
            drawn.append(text)
        yield Step(kind, tuple(drawn), chance(rng, special))
        if switches and chance(rng, 0.2):
            state = rng.choice(("truncation", "padding", "plain"))
            yield Step(state, flag=chance(rng, 0.3))
        if adds and chance(rng, 0.15):
            yield change_of_tokens(rng, fragments, lowered)


def lowered_forms(fragments: Fragments, *, normalizes: bool) -> set[str] | None:
    """Return what must not be added in another case; None: nothing normalized."""
    forms = {token.lower() for token in fragments.tokens}
    is_plain = not normalizes and len(forms) == len(fragments.tokens)
    return forms if is_plain else None


def change_of_tokens(
    rng: Random, fragments: Fragments, lowered: set[str] | None
) -> Step:
    """Draw a token to add, mostly one that is there, or a change of the normalizer.

    A token that is looked for in the normalized text must not be normalized to what
    another one is, nor to nothing (the library's encode would never return).
    """
    if lowered is not None and chance(rng, 0.2):
        return Step("lower", flag=chance(rng, 0.5))
    content = rng.choice(fragments.tokens * 2 + fragments.pieces)
    flags = [name for name in ("lstrip", "rstrip", "single_word") if chance(rng, 0.15)]
    flags += ["special"] * chance(rng, 0.7)
    if lowered is not None and (
        content in fragments.tokens or content.lower() not in lowered
    ):
        flags += ["normalized"] * chance(rng, 0.5)
        lowered.add(content.lower())
    return Step("add", (content, " ".join(flags)))


def random_case(seed: int, number: int) -> Case:
    """Draw a case; the same seed and number give the same one."""
    rng = Random(f"{seed}/{number}")
    tokenizer, fragments = random_tokenizer(rng)
    options = draw_options(rng, fragments.tokens)
    steps = _steps(rng, fragments, normalizes=tokenizer.normalizer is not None)
    return Case(tokenizer.to_str(), options, tuple(steps))
