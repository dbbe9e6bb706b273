"""What truncation and padding make of the ids of one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Shape:
    """Cut ids to a length and pad them, as the settings of a tokenizer say.

    The ids that go around a text are put there between the two.
    """

    max_ids: int | None = None
    """How many of the text's own ids may stay; None for all."""
    cuts_left: bool = False
    """Whether the first ids go instead of the last."""
    pads: bool = False
    pad_length: int | None = None
    """What to pad to; None: the longest of the texts of one call."""
    pad_multiple: int = 0
    """Round the padded length up to a multiple of this, if it is not 0."""
    pad_id: int = 0
    pads_left: bool = False

    @classmethod
    def of_padding(cls, padding: Mapping[str, Any] | None) -> Shape:
        """Return what the ``padding`` of a tokenizer alone makes of ids."""
        if padding is None:
            return cls()
        return cls(
            pads=True,
            pad_length=padding["length"],
            pad_multiple=padding["pad_to_multiple_of"] or 0,
            pad_id=padding["pad_id"],
            pads_left=padding["direction"].lower() == "left",
        )

    def kept(self, n_ids: int) -> slice:
        """Return which of a text's own ids stay."""
        if self.max_ids is None or n_ids <= self.max_ids:
            return slice(0, n_ids)
        if self.cuts_left:
            return slice(n_ids - self.max_ids, n_ids)
        return slice(0, self.max_ids)

    def padded(self, ids: list[int], longest: int | None = None) -> list[int]:
        """Return ids, padded; ``longest`` is the most that a text of the call has."""
        if not self.pads:
            return ids
        pads = [self.pad_id] * (self.padded_length(len(ids), longest) - len(ids))
        return pads + ids if self.pads_left else ids + pads

    def padded_length(self, n_ids: int, longest: int | None = None) -> int:
        """Return how many ids there are with pads; as many as before if none fit."""
        length = self.pad_length
        if length is None:
            length = n_ids if longest is None else longest
        if self.pad_multiple:
            length += -length % self.pad_multiple
        return max(length, n_ids)
