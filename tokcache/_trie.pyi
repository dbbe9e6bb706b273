from typing import Final, final

NODE_BYTES: Final[int]
SEGMENT_HEADER: Final[int]
SIGHTING_BYTES: Final[int]
LONGEST_SHORT_TAIL: Final[int]

@final
class Trie:
    def __new__(
        cls,
        max_memory_bytes: int,
        max_resident_bytes: int,
        *,
        hash_seed: int | None = None,
        hash_bits: int = 64,
    ) -> Trie: ...
    def open_root(self) -> int: ...
    def close_root(self, root: int) -> None: ...
    def clear(self, root: int | None = None) -> None: ...
    def usage(
        self, root: int | None = None
    ) -> tuple[int, int, int, int, int, int, int]: ...
    def leaves(self) -> list[tuple[int, tuple[str, ...]]]: ...
    def check(self) -> None: ...
