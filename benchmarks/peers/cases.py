"""What each peer is asked: one prompt in one state of its cache."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import prompts
from tests import data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Case:
    """Name a question, and make the texts of its next ``n`` calls."""

    name: str
    about: str
    texts: Callable[[int], Sequence[str]]
    most_calls: int = 256


def _repeated(text: str) -> Callable[[int], Sequence[str]]:
    return lambda n: [text] * n


def _copied(text: str) -> Callable[[int], Sequence[str]]:
    """Make equal texts in new objects: no hash, no UTF-8 is kept in them yet."""
    return lambda n: [text[:-1] + text[-1] for _ in range(n)]


def _next_turns() -> Callable[[int], Sequence[str]]:
    """Make prompts that go on from the chat prompt, each in its own way."""
    form = data.chat_format(prompts.family())
    before, after = form.around["user"]
    start = prompts.chat()
    message = next(prompts.messages())
    turns = itertools.count()
    return lambda n: [
        f"{start}{before}{i} {message}{after}{form.generation}"
        for i in itertools.islice(turns, n)
    ]


def _unseen() -> Callable[[int], Sequence[str]]:
    """Make chat prompts of the same words, every segment of which is new."""
    text = prompts.chat()
    ends = [end for end, _ in prompts.scanner(prompts.family()).boundaries(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *ends])]
    turns = itertools.count()
    return lambda n: [
        "".join(f"{i} {piece}" for piece in pieces) for i in itertools.islice(turns, n)
    ]


def cases() -> list[Case]:
    """Return all of them."""
    chat = prompts.chat()
    chinese = prompts.chat(script="chinese")
    emoji = prompts.chat(script="emoji")
    size = f"{len(chat.encode()) / 1e3:.0f} kB, {prompts.SEGMENTS} segments"
    return [
        Case("chat", f"{size}, all seen before", _repeated(chat)),
        Case("chat, new str", "the same in a new str each time", _copied(chat), 32),
        Case("next turn", "the same and one new message", _next_turns(), 8),
        Case("unseen", "the same size, every segment new", _unseen(), 1),
        Case("Chinese", f"{len(chinese.encode()) / 1e3:.0f} kB", _repeated(chinese)),
        Case("emoji", f"{len(emoji.encode()) / 1e3:.0f} kB", _repeated(emoji)),
        Case("short", "200 characters, 3 segments", _repeated(prompts.short())),
    ]
