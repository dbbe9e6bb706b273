"""What users give to a wrapper, checked and in the form that the rest expects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokcache._ids import TokenIds


def given(
    pair: Any,
    is_pretokenized: bool,  # noqa: FBT001 - the inner signature
    add_special_tokens: bool | None,  # noqa: FBT001 - the inner signature
) -> dict[str, Any]:
    """Return the arguments that are not what they are by default.

    Not every library has them all.
    """
    given = {
        "pair": pair,
        "is_pretokenized": is_pretokenized or None,
        "add_special_tokens": add_special_tokens,
    }
    return {name: value for name, value in given.items() if value is not None}


def texts_of(given: Any) -> list[Any]:
    """Return the texts of a batch, or raise TypeError for what is no list of them."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        message = f"input must be a list of str, got {type(given).__name__}"
        raise TypeError(message)
    return list(given)


def exact_str(value: object, name: str) -> str:
    """Return ``value`` as a str proper, or raise TypeError naming the argument."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    message = f"{name} must be a str, got {type(value).__name__}"
    raise TypeError(message)


def exact_texts(texts: list[Any]) -> list[str]:
    """Return texts as str proper, or raise TypeError naming the first that is none."""
    if set(map(type, texts)) <= {str}:
        return texts
    return [exact_str(text, f"input[{i}]") for i, text in enumerate(texts)]


def plain_ids(ids: Iterable[int]) -> Any:
    """Return ids in a type that every tokenizer takes."""
    return ids.tolist() if isinstance(ids, TokenIds) else ids
