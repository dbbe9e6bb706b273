"""Let the bytes of a fuzzer decide what is drawn."""

from __future__ import annotations

from random import Random


class Draws(Random):
    """Draw from given bytes; after their end, from a generator with a fixed seed.

    A draw takes as many bytes as it needs for its range, so that a change of one byte
    changes one draw, and what follows stays as it is. All else is `random.Random`'s.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Tell whether bytes are left."""
        return self._at < len(self._data)

    def getrandbits(self, k: int, /) -> int:
        """Return a number of so many bits."""
        size = (k + 7) // 8
        taken = self._data[self._at : self._at + size]
        self._at += size
        if len(taken) < size:
            return super().getrandbits(k)
        return int.from_bytes(taken, "little") >> 8 * size - k

    def random(self) -> float:
        """Return a number from 0 up to, but not, 1."""
        return self.getrandbits(16) / 0x10000

    def _randbelow(self, n: int) -> int:
        """Return a number below another; Random's own way rejects half of the bytes."""
        return self.getrandbits((n - 1).bit_length() + 7 & ~7) % n if n > 1 else 0
