"""Run prompts through a raw and a cached tokenizer, time both, compare every id.

What makes the times comparable:

- The two sides have a tokenizer each, loaded from the same file. ``tokenizers`` keeps
  a cache of words inside a tokenizer; with a shared one, whichever side goes second
  would find the words of the first.
- Which side goes first alternates from turn to turn and from conversation to
  conversation, for the processor's caches.
- A call is timed until it returns what it returns (``Encoding``, ``TokenIds``). Making
  lists of the ids and comparing them is not timed, on either side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from tokcache.chat import ChatError, turns
from tokcache.cli.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokcache.chat import Renderer
    from tokcache.cli.inputs import Conversation

__all__ = [
    "Difference",
    "Measurement",
    "Sample",
    "count_prompts",
    "measure",
    "prompts",
]


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold the two times of one prompt, in nanoseconds."""

    turn: int
    n_tokens: int
    raw_ns: int
    cached_ns: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the cached tokenizer's ids first differ from the raw one's."""

    where: str
    turn: int
    position: int
    raw: int | None
    cached: int | None

    def __str__(self) -> str:
        """Return one line for the user."""
        raw = "no id" if self.raw is None else self.raw
        cached = "no id" if self.cached is None else self.cached
        return (
            f"{self.where}: turn {self.turn}: ids differ at position {self.position}: "
            f"{raw} from the tokenizer, {cached} from the cache"
        )


@dataclass(slots=True)
class Measurement:
    """Hold what a replay found."""

    samples: list[Sample] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def count_prompts(conversations: Sequence[Conversation]) -> int:
    """Return how many prompts the conversations have."""
    return sum(
        1 if each.messages is None else sum(1 for _ in turns(each.messages))
        for each in conversations
    )


def measure(  # noqa: PLR0913 - all of them are the user's choices
    raw: Any,
    cached: Any,
    conversations: Sequence[Conversation],
    renderer: Renderer | None,
    *,
    add_special_tokens: bool,
    advance: Callable[[], None] = lambda: None,
) -> Measurement:
    """Encode every prompt with both tokenizers; ``advance`` is called after each.

    The renderer may be None where no conversation has messages.
    """
    # A tokenizer's first call builds what later calls use.
    for tokenizer in (raw, cached.inner):
        tokenizer.encode("first call", add_special_tokens=add_special_tokens)
    found = Measurement()
    for number, conversation in enumerate(conversations):
        for turn, prompt in enumerate(prompts(conversation, renderer), 1):
            sides = [raw, cached]
            flip = (number + turn) % 2
            if flip:
                sides.reverse()
            results = [
                _timed(side, prompt, add_special_tokens=add_special_tokens)
                for side in sides
            ]
            if flip:
                results.reverse()
            (raw_ns, raw_ids), (cached_ns, cached_ids) = results
            found.samples.append(Sample(turn, len(raw_ids), raw_ns, cached_ns))
            if raw_ids != cached_ids:
                found.differences.append(
                    _first_difference(conversation.where, turn, raw_ids, cached_ids)
                )
            advance()
    return found


def prompts(conversation: Conversation, renderer: Renderer | None) -> Iterator[str]:
    """Yield the prompts of a conversation, turn by turn.

    Raises :class:`UserError` with the line for one that cannot be rendered.
    """
    if conversation.messages is None or renderer is None:
        yield _checked(conversation.text or "", conversation.where)
        return
    for number, turn in enumerate(turns(conversation.messages), 1):
        where = f"{conversation.where}: turn {number}"
        try:
            prompt = renderer.render(
                turn.messages,
                tools=conversation.tools,
                add_generation_prompt=turn.add_generation_prompt,
            )
        except ChatError as problem:
            error = f"{where}: {problem}"
            raise UserError(error) from problem
        yield _checked(prompt, where)


def _checked(prompt: str, where: str) -> str:
    """Return the prompt; half of a surrogate pair, which JSON can hold, is an error."""
    try:
        prompt.encode()
    except UnicodeEncodeError as problem:
        error = f"{where}: the text has half of a surrogate pair: no tokenizer takes it"
        raise UserError(error) from problem
    return prompt


def _timed(
    tokenizer: Any, prompt: str, *, add_special_tokens: bool
) -> tuple[int, list[int]]:
    start = perf_counter_ns()
    result = tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
    elapsed = perf_counter_ns() - start
    return elapsed, result.ids


def _first_difference(
    where: str, turn: int, raw: Sequence[int], cached: Sequence[int]
) -> Difference:
    shorter = min(len(raw), len(cached))
    position = next((i for i in range(shorter) if raw[i] != cached[i]), shorter)
    return Difference(
        where,
        turn,
        position,
        raw[position] if position < len(raw) else None,
        cached[position] if position < len(cached) else None,
    )
