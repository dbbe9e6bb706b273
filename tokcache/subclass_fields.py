"""What a subclass keeps in its objects, to be copied with them."""

from __future__ import annotations

from contextlib import suppress
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def fields_of(
    made: object, own: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields that are not the class's own, and what is in ``__slots__``.

    In the form in which ``copy`` and ``pickle`` take them from ``__reduce__``.
    """
    fields = {name: value for name, value in vars(made).items() if name not in own}
    return fields, dict(_slots(made))


def _slots(made: object) -> Iterator[tuple[str, Any]]:
    for kind in type(made).__mro__:
        if "__slots__" not in vars(kind):
            continue
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # it was never set
                    yield name, slot.__get__(made)
