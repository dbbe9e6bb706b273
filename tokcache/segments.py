"""Lists of trusted and untrusted parts of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class EncodeSegment(NamedTuple):
    """Give one part of a prompt, and say whether its special tokens are meant.

    ``allow_special`` is true for what a template wrote and false for what a user wrote.
    """

    text: str
    allow_special: bool


def as_segments(
    segments: Iterable[EncodeSegment | tuple[str, bool]],
) -> list[EncodeSegment]:
    """Return the segments, checked; ``TypeError`` names the first that is none."""
    if isinstance(segments, (str, bytes)):
        msg = f"segments must be a list of segments, got {type(segments).__name__}"
        raise TypeError(msg)
    checked = []
    for i, segment in enumerate(segments):
        if not (
            isinstance(segment, tuple)
            and len(segment) == len(EncodeSegment._fields)
            and isinstance(segment[0], str)
            and isinstance(segment[1], bool)
        ):
            msg = f"segments[{i}] must be an EncodeSegment(text, allow_special)"
            raise TypeError(msg)
        checked.append(EncodeSegment(str.__str__(segment[0]), segment[1]))
    return checked
