"""CachedEncoding: what ``tokenizers`` returns for a text, made only as far as asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokcache._ids import TokenIds


@dataclass(frozen=True, slots=True)
class Around:
    """Hold what a tokenizer puts before and after the ids of a single text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    types: tuple[tuple[int, ...], int, tuple[int, ...]] = ((), 0, ())
    """The type ids before, of each of the text's own ids, and after."""

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True)
class Pads:
    """Say how many pads stand on which side, and what they are."""

    n: int = 0
    left: bool = False
    pad_id: int = 0
    type_id: int = 0

    def put(self, values: list[int], pad: int) -> list[int]:
        """Return the values with their pads."""
        if not self.n:
            return values
        pads = [pad] * self.n
        return pads + values if self.left else values + pads


class CachedEncoding:
    """Look like a ``tokenizers.Encoding`` of a single text whose ids are known.

    Ids and masks are answered at once. Everything else is asked of the tokenizer when
    it is first needed, under the settings of the call; from then on the ``Encoding``
    that it returned answers for all. A pickle or copy is that ``Encoding``.
    """

    __slots__ = ("_around", "_encoding", "_make", "_own", "_pads")

    def __init__(
        self, own: TokenIds, around: Around, pads: Pads, make: Callable[[int], Encoding]
    ) -> None:
        self._own = own
        self._around = around
        self._pads = pads
        self._make = make
        self._encoding: Encoding | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type[Encoding]:  # type: ignore[override]
        """The class that callers ask for."""
        return Encoding

    def _whole(self) -> Encoding:
        if self._encoding is None:
            self._encoding = self._make(len(self))
        return self._encoding

    def _answer(
        self, name: str, parts: tuple[Sequence[int], list[int], Sequence[int]], pad: int
    ) -> list[int]:
        if self._encoding is not None:
            return getattr(self._encoding, name)  # type: ignore[no-any-return]
        before, own, after = parts
        values = [*before, *own, *after] if self._around else own
        return self._pads.put(values, pad)

    @property
    def ids(self) -> list[int]:
        """Return the ids."""
        around = self._around
        parts = (around.before, self._own.tolist(), around.after)
        return self._answer("ids", parts, self._pads.pad_id)

    @property
    def type_ids(self) -> list[int]:
        """Return the type of each id."""
        before, own, after = self._around.types
        parts = (before, [own] * len(self._own), after)
        return self._answer("type_ids", parts, self._pads.type_id)

    @property
    def attention_mask(self) -> list[int]:
        """Return 0 for each pad and 1 for everything else."""
        n = len(self._own) + len(self._around)
        return self._answer("attention_mask", ((), [1] * n, ()), 0)

    @property
    def special_tokens_mask(self) -> list[int]:
        """Return 0 for each of the text's own ids and 1 for what was put around."""
        around = self._around
        parts = (
            [1] * len(around.before),
            [0] * len(self._own),
            [1] * len(around.after),
        )
        return self._answer("special_tokens_mask", parts, 1)

    @property
    def n_sequences(self) -> int:
        """Return 1: a pair has no such encoding."""
        return 1

    def __len__(self) -> int:
        if self._encoding is not None:
            return len(self._encoding)
        return len(self._own) + len(self._around) + self._pads.n

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._whole(), name)

    def __repr__(self) -> str:
        return repr(self._whole())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._whole().__reduce_ex__(protocol)
