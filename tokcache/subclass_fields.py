"""What a subclass keeps in its objects, to be copied with them."""

from __future__ import annotations

from contextlib import suppress
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a `CachedTokenizer` sets itself. Stated, since to read an object's ``__dict__``
# makes each later look at one of its attributes slower, and so every hit.
OWN_FIELDS = frozenset(
    {
        "_backend",
        "_budgets",
        "_cache_tails",
        "_change",
        "_checks_text",
        "_counters",
        "_extend_on_hit",
        "_inner",
        "_install",
        "_is_watched",
        "_max_chars",
        "_max_chars_given",
        "_membership",
        "_n_changing",
        "_observers",
        "_random",
        "_special_tokens",
        "_state",
        "_states",
        "_trie",
        "_trust_custom",
        "_verify",
    }
)


def fields_of(made: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields that are a subclass's own, and what is in ``__slots__``.

    In the form in which ``copy`` and ``pickle`` take them from ``__reduce__``.
    """
    fields = {
        name: value for name, value in vars(made).items() if name not in OWN_FIELDS
    }
    return fields, dict(_slots(made))


def _slots(made: object) -> Iterator[tuple[str, Any]]:
    for kind in type(made).__mro__:
        if "__slots__" not in vars(kind):
            continue
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # it was never set
                    yield name, slot.__get__(made)
