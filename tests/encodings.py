"""Make tiktoken encodings: a small one by hand, and those that real models use."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from typing import TYPE_CHECKING

import tiktoken

from . import data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# How cl100k and Qwen split a text, with one digit at a time.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = (b"he", b"hel", b"hell", b"hello", b" hello", b"fo", b"foo", b"\n\n", b"<|")
FIRST_SPECIAL = 1000
KIMI = data.DATA / "tokenizers" / "kimi_k2_tiktoken"
AB = ("<|a|>", "<|b|>")

Ranks = dict[bytes, int]


def small_ranks() -> Ranks:
    """Return the ranks of all bytes and of a few words."""
    return {bytes([byte]): byte for byte in range(256)} | {
        word: 256 + i for i, word in enumerate(WORDS)
    }


def small_encoding(
    *contents: str, ids: Mapping[str, int] | None = None
) -> tiktoken.Encoding:
    """Make an encoding with special tokens; ``<|a|>`` and ``<|b|>`` unless given."""
    numbered = {each: FIRST_SPECIAL + i for i, each in enumerate(contents or AB)}
    return tiktoken.Encoding(
        "small",
        pat_str=PATTERN,
        mergeable_ranks=small_ranks(),
        special_tokens=dict(ids or numbered),
    )


def _read(packed: Path) -> bytes:
    return gzip.decompress(packed.read_bytes())


def _kimi() -> tiktoken.Encoding:
    lines = _read(KIMI / "tiktoken.model.gz").split(b"\n")
    pairs = [line.split() for line in lines if line]
    config = json.loads(_read(KIMI / "tokenizer_config.json.gz"))
    return tiktoken.Encoding(
        "kimi_k2",
        pat_str=PATTERN,
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in pairs},
        special_tokens={
            token["content"]: int(token_id)
            for token_id, token in config["added_tokens_decoder"].items()
        },
    )


def _qwen() -> tiktoken.Encoding:
    """Turn Qwen's ``tokenizer.json`` back into the ranks that it was made from."""
    state = json.loads(data.family_text("qwen3"))
    # The byte-level alphabet: a printable byte is itself, the others are moved up.
    printable = (*range(33, 127), *range(161, 173), *range(174, 256))
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }
    return tiktoken.Encoding(
        "qwen3",
        pat_str=PATTERN,
        mergeable_ranks={
            bytes(byte_of[char] for char in token): rank
            for token, rank in state["model"]["vocab"].items()
        },
        special_tokens={
            token["content"]: token["id"] for token in state["added_tokens"]
        },
    )


@functools.cache
def encodings() -> dict[str, Callable[[], tiktoken.Encoding]]:
    """List how to make the encodings of real models that are at hand, by family."""
    found: dict[str, Callable[[], tiktoken.Encoding]] = {}
    if KIMI.is_dir():
        found["kimi_k2_tiktoken"] = _kimi
    if "qwen3" in data.families():
        found["qwen3"] = _qwen
    return found
