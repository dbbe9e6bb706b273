"""List the tokenizers of all libraries that the cache is compared with."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fastokens
import gigatoken

from tokcache import special_tokens_of

from . import data
from .encodings import encodings, small_encoding

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Engine:
    """Say how one tokenizer is made, and how it is called.

    ``family`` is the one whose chat format its prompts have. ``options`` go with every
    encode. Without ``has_flag`` it knows no ``add_special_tokens``. ``per_file`` says
    how many conversations of each source are tried.
    """

    name: str
    family: str
    load: Callable[[], Any]
    added_tokens: Callable[[], list[str]]
    special_tokens: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    has_flag: bool = True
    per_file: int = 3

    def ids(self, inner: Any, text: str, *, special: bool) -> list[int]:
        """Encode with the tokenizer itself."""
        flag = {"add_special_tokens": special} if self.has_flag else {}
        found = inner.encode(text, **flag, **self.options)
        return list(getattr(found, "ids", found))


def of_tokenizers(family: str, name: str | None = None) -> Engine:
    """Describe a family's ``tokenizers.Tokenizer``."""

    def added_tokens() -> list[str]:
        """Take a few added tokens of every class of flags."""
        tokenizer = data.load_family(family)
        classes: dict[tuple[bool, ...], list[str]] = {}
        for token in tokenizer.get_added_tokens_decoder().values():
            flags = (
                token.special,
                token.normalized,
                token.lstrip,
                token.rstrip,
                token.single_word,
            )
            classes.setdefault(flags, []).append(token.content)
        return [content for members in classes.values() for content in members[:12]]

    return Engine(
        name or family,
        family,
        lambda: data.load_family(family),
        added_tokens,
        per_file=8,
    )


def _of_tiktoken(family: str, load: Callable[[], Any]) -> Engine:
    return Engine(
        f"{family} (tiktoken)",
        family,
        load,
        lambda: sorted(load().special_tokens_set)[:24],
        options={"allowed_special": "all"},
        has_flag=False,
    )


def _with_a_chat_format() -> Any:
    return small_encoding("<|im_start|>", "<|im_end|>", "<tool_call>", "<|endoftext|>")


def _loads(load: Callable[[str], Any], family: str) -> bool:
    try:
        load(data.family_text(family))
    except (ValueError, RuntimeError):  # it does not know the model or another part
        return False
    return True


@functools.cache
def names() -> tuple[str, ...]:
    """List the engines at hand without making any."""
    return tuple(
        f"{family}{library}"
        for library in ("", " (tiktoken)", " (fastokens)", " (gigatoken)")
        for family in (
            (encodings() or {"trained_byte_level": _with_a_chat_format})
            if "tiktoken" in library
            else data.families()
        )
    )


def engine(name: str) -> Engine | None:
    """Describe an engine; None if the library cannot load the family."""
    family, _, library = name.partition(" ")
    if not library:
        return of_tokenizers(family)
    if library == "(tiktoken)":
        return _of_tiktoken(family, encodings().get(family, _with_a_chat_format))
    is_fast = library == "(fastokens)"
    load: Callable[[str], Any] = (
        fastokens.Tokenizer.from_json_str if is_fast else gigatoken.Tokenizer.from_json
    )
    if not _loads(load, family):
        return None
    return Engine(
        name,
        family,
        lambda: load(data.family_text(family)),
        of_tokenizers(family).added_tokens,
        special_tokens_of(data.family_text(family)),
        has_flag=is_fast,
    )
