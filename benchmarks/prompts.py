"""Prompts to measure with: real text, real tokenizers, the same in every run."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokcache._scan import Scanner

SEGMENTS = 200
MESSAGE_BYTES = (270, 560)  # at least and at most: 200 segments are then some 62 kB
SHORT_CHARACTERS = 200
EMOJI = ("😀", "👩‍👩‍👧‍👦", "🇨🇭", "👍🏽", "🔥", "❤️")
WORDS_AN_EMOJI = 8


def family() -> str:
    """Name the tokenizer that is measured: DeepSeek-V4 where it can be had."""
    known = data.families()
    return "deepseek_v4" if "deepseek_v4" in known else known[0]


def ascii_family() -> str:
    """Name a tokenizer with ASCII markers, so that ASCII text makes an ASCII prompt."""
    return "qwen3" if "qwen3" in data.families() else family()


def _source(prefix: str) -> str:
    files = data.conversation_files()
    return next((file for file in files if file.startswith(prefix)), files[-1])


def _joined(source: str, bytes_a_character: int = 1) -> Iterator[str]:
    """Yield real messages, endlessly, short ones together with their neighbours."""
    least, most = (size // bytes_a_character for size in MESSAGE_BYTES)
    text = ""
    for talk in itertools.cycle(data.conversations(_source(source))):
        for message in talk:
            text += message["content"]
            if len(text) >= least:
                yield text[:most]
                text = ""


def _english() -> Iterator[str]:
    """Yield messages in ASCII, from the source of the longest talks."""
    for text in _joined("tau_"):
        yield text.encode("ascii", "ignore").decode()


def _chinese() -> Iterator[str]:
    """Yield messages in Chinese, of as many bytes as the English ones."""
    return _joined("kdconv_zh", 3)


def _with_emoji() -> Iterator[str]:
    """Yield the English messages with an emoji after every few words."""
    emoji = itertools.cycle(EMOJI)
    for text in _english():
        words = text.split(" ")
        for i in range(0, len(words), WORDS_AN_EMOJI):
            words[i] += next(emoji)
        yield " ".join(words)


SCRIPTS = {"english": _english, "chinese": _chinese, "emoji": _with_emoji}


def messages(script: str = "english") -> Iterator[str]:
    """Yield the contents of messages in a script, the same ones in every run."""
    return SCRIPTS[script]()


@functools.cache
def scanner(of: str) -> Scanner:
    """Return the scanner that finds the boundaries of a family."""
    return CachedTokenizer(data.load_family(of))._state.walker.scanner


@functools.cache
def chat(
    segments: int = SEGMENTS, script: str = "english", of: str | None = None
) -> str:
    """Return a chat prompt of so many segments, without a tail; 62 kB by default.

    It is written for the family ``of``, by default the one that is measured.
    """
    of = of or family()
    form = data.chat_format(of)
    parts = [form.bos]
    for i, text in zip(range(segments), messages(script), strict=False):
        before, after = form.around[("user", "assistant")[i % 2]]
        parts += (before, text, after)
    text = "".join(parts)
    boundaries = scanner(of).boundaries(text)
    return text[: boundaries[min(segments, len(boundaries)) - 1][0]]


@functools.cache
def short(of: str | None = None) -> str:
    """Return a prompt of 200 characters: two boundaries, and a tail as a third part."""
    form = data.chat_format(of or family())
    before, after = form.around["user"]
    frame = len(form.bos) + len(before) + len(after) + len(form.generation)
    text = " ".join(itertools.islice(messages(), 20))
    return (
        form.bos + before + text[: SHORT_CHARACTERS - frame] + after + form.generation
    )


def bytes_a_character(text: str) -> int:
    """Return how many bytes CPython takes for each character of a text."""
    widest = max(map(ord, text), default=0)
    return 1 if widest < 0x100 else 2 if widest < 0x10000 else 4
