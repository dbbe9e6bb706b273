"""Scan any text for any tokens: the compiled scanner, its model, and `re`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.draws import Draws
from tests.scans import KINDS, Tokens, assert_same
from tokcache._scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_TEXT = 400
MAX_TOKENS = 30
# Most are of one kind of str; the last has a surrogate and the ends of each kind.
ALPHABETS = (*KINDS, "".join(KINDS), "bdfhjl`<", "\0\x7f\x80\xff\u0100\ud800\uffff")
LENGTHS = (1, 2, 2, 3, 4, 5, 6, 9)  # a place is judged by five characters


def _alphabet(draws: Draws) -> str:
    """Draw the characters of tokens and text, now and then any there are."""
    some = draws.choice(ALPHABETS)
    others = range(draws.choice((0, 0, 1, 4)))
    return some + "".join(chr(draws.randrange(0x110000)) for _ in others)


def _string(draws: Draws, alphabet: str, n: int) -> str:
    return "".join(draws.choice(alphabet) for _ in range(n))


def _tokens(draws: Draws, alphabet: str) -> Tokens:
    """Draw tokens, some of which nest in, overlap or resemble others."""
    rows: dict[str, tuple[str, int, int, bool]] = {}
    for _ in range(draws.randint(0, MAX_TOKENS)):
        content = _string(draws, alphabet, draws.choice(LENGTHS))
        if rows and draws.randrange(3) == 0:
            known = draws.choice(list(rows))
            cut = draws.randint(0, len(known))
            content = draws.choice((known[:cut] + content, content + known[cut:]))
        phase = draws.choice((1, 1, 2))
        rows[content] = (content, len(rows), phase, draws.randrange(4) > 0)
    return list(rows.values())


def _text(draws: Draws, alphabet: str, contents: Sequence[str]) -> str:
    """Draw a text of tokens, parts of them, and runs that fill blocks of 32 places."""
    parts: list[str] = []
    size = 0
    while draws and size < MAX_TEXT:
        kind = draws.randrange(8)
        part = _string(draws, alphabet, 1)
        if kind < 5 and contents:
            part = draws.choice(contents)
            if kind == 3:
                part = part[: draws.randint(0, len(part))]
            elif kind == 4:
                part = part[draws.randint(0, len(part)) :]
        elif kind == 6:
            part *= draws.randrange(80)
        elif kind == 7:
            part = chr(draws.randrange(0x110000))
        parts.append(part)
        size += len(part)
    return "".join(parts)


def run(data: bytes) -> None:
    """Compare all matches, from any start, and what follows each match."""
    draws = Draws(data)
    alphabet = _alphabet(draws)
    tokens = _tokens(draws, alphabet)
    contents = [content for content, _, _, _ in tokens]
    start = draws.randrange(256)
    text = _text(draws, alphabet, contents)
    matches = assert_same(tokens, text)
    assert_same(tokens, text, start % (len(text) + 1))
    scanner = Scanner(tokens)
    for i, (_, end, token) in enumerate(matches[:8]):
        if tokens[token][2] == 1:  # a chain begins anew behind it
            assert scanner.matches(text, end) == matches[i + 1 :]
