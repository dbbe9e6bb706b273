"""Check how seldom, and with how little, the inner tokenizer is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tokcache import CachedTokenizer
from tokcache._plan import BRIDGE_CHARS
from tokcache._trie import LONGEST_SHORT_TAIL

from . import data
from .checks import InnerCalls, assert_same, raw_ids
from .toys import special, toy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Tokenizer

GENERATION = "<im>bot\n<think>\n"


def build() -> Tokenizer:
    """Make a tokenizer with chat markers."""
    return toy(special("<s>"), special("<im>"), special("<e>"), template="<s> $A")


def ready() -> CachedTokenizer:
    """Wrap one whose tokens were all seen, so that no first sight makes calls."""
    cached = CachedTokenizer(build())
    for text in ("<s>q<im>q<e>q", "q<e>q<s>q<im>q"):
        assert_same(cached, build(), text)
    cached.clear_cache()
    return cached


def longest_anchor(cached: CachedTokenizer) -> int:
    """Return the length of the longest boundary token."""
    return max(map(len, cached.explain().boundary_tokens))


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize(
    "tail",
    [
        "",
        "x",
        "é" * LONGEST_SHORT_TAIL,
        "x" * LONGEST_SHORT_TAIL,
        "😀" * LONGEST_SHORT_TAIL,
    ],
)
def test_an_exact_repeat_with_a_short_tail(
    tail: str,
    add_special_tokens: bool,
) -> None:
    """From the second time on there is no inner call."""
    cached = ready()
    calls = InnerCalls(cached)
    text = f"hello<im>foo<e>{tail}"
    want = raw_ids(build(), text, special=add_special_tokens)
    for turn in range(4):
        got = cached.encode(text, add_special_tokens=add_special_tokens)
        assert got.ids == want
        assert bool(calls.take()) is (turn == 0)


@pytest.mark.parametrize(
    "tail", ["x" * (LONGEST_SHORT_TAIL + 1), "hello " * 1000, "é😀" * 99]
)
def test_an_exact_repeat_with_a_long_tail(tail: str) -> None:
    """A long tail is stored at its second sighting: no inner call from the third on."""
    cached = ready()
    calls = InnerCalls(cached)
    text = f"hello<im>foo<e>{tail}"
    want = raw_ids(build(), text)
    for turn in range(5):
        assert cached.encode(text, add_special_tokens=False).ids == want
        sent = calls.take()
        if turn == 0:
            assert sent == [text]
        elif turn == 1:
            assert sent == [f"<e>{tail}"]
        else:
            assert sent == []


def test_a_repeat_that_is_only_counted() -> None:
    """Counting makes no inner call either."""
    cached = ready()
    text = "hello<im>foo<e>x"
    cached.encode(text)
    calls = InnerCalls(cached)
    assert cached.count(text) == len(raw_ids(build(), text, special=True))
    assert calls.take() == []


def test_a_fixed_generation_prompt_under_new_paths() -> None:
    """What follows a prompt's own text is known under every other prompt."""
    cached = ready()
    assert_same(cached, build(), f"<im>user\nhello<e>{GENERATION}")
    calls = InnerCalls(cached)
    for i in range(20):
        new = f"<im>user\nquestion {'x' * BRIDGE_CHARS} {i}<e>"
        assert_same(cached, build(), new + GENERATION)
        sent = calls.take()
        assert len(sent) == 1
        assert "bot" not in sent[0]
        assert len(sent[0]) <= len(new)
    # The same behind a path that is all known: nothing is left to encode.
    assert_same(cached, build(), "<im>user\nhello<e><im>user\nhello<e>" + GENERATION)
    assert calls.take() == []


def test_known_segments_in_another_order() -> None:
    """A segment's ids do not depend on its path, only on its anchor and text."""
    cached = ready()
    parts = [f"turn {i} {'hello ' * 10}<e>" for i in range(6)]
    assert_same(cached, build(), "<e>" + "".join(parts))
    calls = InnerCalls(cached)
    assert_same(cached, build(), "<e>" + "".join(reversed(parts)))
    assert_same(cached, build(), "<e>" + "".join(parts[::2] * 3))
    assert calls.take() == []


def test_a_new_part_between_known_parts() -> None:
    """One inner encode, of the new part behind its anchor."""
    cached = ready()
    known = [f"<im>user\nhello {'foo ' * 20}{i}<e>" for i in range(4)]
    assert_same(cached, build(), "".join(known))
    calls = InnerCalls(cached)
    new = "<im>user\nsomething else<e>"
    assert_same(cached, build(), "".join([*known[:2], new, *known[2:]]))
    sent = calls.take()
    assert len(sent) == 1
    assert len(sent[0]) <= len("<e>") + len(new)


def growing(turns: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each prompt of a growing conversation with its new part."""
    text = ""
    for turn in turns:
        text += turn
        yield text, turn


def test_each_turn_of_a_growing_conversation_encodes_its_own_text() -> None:
    """A hit that stores nothing makes every turn encode all after the first."""
    cached = ready()
    calls = InnerCalls(cached)
    tail_before = 0
    turns = [f"<im>user\nhello {'foo ' * (i % 7)}{i}<e>\n" for i in range(50)]
    for text, new in growing(turns):
        assert cached.encode(text, add_special_tokens=False).ids == (
            raw_ids(build(), text)
        )
        sent = sum(map(len, calls.take()))
        assert sent <= len(new) + longest_anchor(cached) + tail_before
        tail_before = len(text) - text.rindex("<e>") - len("<e>")
    assert cached.cache_stats().self_check_failures == 0


@pytest.mark.parametrize(
    "family",
    [
        name
        for name in data.families()
        if name
        in {"qwen3", "deepseek_v4", "phi3_mini", "mistral_v3_metaspace", "gpt_oss"}
        or name.startswith("trained_")
    ],
)
def test_each_turn_with_a_real_tokenizer(family: str) -> None:
    """The same with real chat formats, and a generation prompt that is replaced."""
    inner = data.load_family(family)
    cached = CachedTokenizer(inner)
    boundaries = cached.explain().boundary_tokens
    file = data.conversation_files()[-2 if len(data.conversation_files()) > 1 else -1]
    for messages in data.conversations(file, 3):
        prompts = [data.render(family, messages[: n + 1]) for n in range(len(messages))]
        # First sights make calls of their own: over with before the count begins.
        scout = CachedTokenizer(data.load_family(family))
        scout.encode(prompts[-1])
        cached.encode(prompts[-1])
        cached.clear_cache()
        calls = InnerCalls(cached)
        before = ""
        for prompt in prompts:
            got = cached.encode(prompt, add_special_tokens=False)
            assert got.ids == raw_ids(inner, prompt)
            sent = sum(map(len, calls.take()))
            common = next(
                (
                    i
                    for i, (a, b) in enumerate(zip(before, prompt, strict=False))
                    if a != b
                ),
                min(len(before), len(prompt)),
            )
            # The walk stops at the last boundary of the common part.
            cut = max(
                (
                    at + len(token)
                    for token in boundaries
                    if (at := prompt.rfind(token, 0, common)) >= 0
                ),
                default=0,
            )
            assert sent <= len(prompt) - cut + longest_anchor(cached)
            before = prompt
        for prompt in prompts * 2:
            cached.encode(prompt)
        calls.take()
        for prompt in prompts:
            cached.encode(prompt)
            cached.encode(prompt, add_special_tokens=False)
        assert calls.take() == []
