"""Check what the command line says to a mistake; make a tokenizer for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from .toys import special

if TYPE_CHECKING:
    from _pytest.capture import CaptureFixture


def told(code: int, capsys: CaptureFixture[str]) -> str:
    """Return the one line on stderr; nothing was printed, and the code says so."""
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("tokcache: ")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("tokcache: ").removesuffix("\n")


def complain(code: int, capsys: CaptureFixture[str], *parts: str) -> None:
    """Check that one line on stderr says it, and nothing was printed."""
    line = told(code, capsys)
    for part in parts:
        assert part in line


def byte_tokenizer(*specials: str) -> Tokenizer:
    """Make a tokenizer of bytes that knows some special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(map(special, specials)))
    return tokenizer
