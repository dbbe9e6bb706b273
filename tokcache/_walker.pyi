from collections.abc import Iterable, Sequence
from typing import Final, final

from tokcache._ids import TokenIds
from tokcache._scan import Scanner
from tokcache._trie import Trie

BRIDGE_CHARS: Final[int]

@final
class Walker:
    trie: Trie
    scanner: Scanner
    has_affixes: bool
    def __new__(
        cls,
        trie: Trie,
        root: int | None,
        scanner: Scanner,
        before: Sequence[int] | None = (),
        after: Sequence[int] | None = (),
        *,
        extend_on_hit: bool = True,
        cache_tails: bool = True,
    ) -> Walker: ...
    def lookup(self, text: str, special: bool, /) -> TokenIds | Plan: ...
    def count(self, text: str, special: bool, /) -> int | Plan: ...
    def count_pass_through(self) -> None: ...
    def count_self_check_failure(self) -> None: ...
    def clear(self) -> None: ...
    def counters(self) -> tuple[int, int, int, int, int, int]: ...

@final
class Plan:
    walker: Walker
    n_runs: int
    has_boundary: bool
    hit: bool
    cached_tokens: int
    uncached_tokens: int
    untried: list[int]
    def run_text(self, i: int, /) -> str: ...
    def segment_texts(self, i: int, /) -> list[str]: ...
    def boundary_tokens(self) -> list[str]: ...
    def feed(self, i: int, ids: Iterable[int], /) -> int: ...
    def feed_segments(self, i: int, all_ids: Iterable[Iterable[int]], /) -> int: ...
    def finish(self) -> TokenIds: ...
    def finish_whole(self, ids: Iterable[int], /) -> TokenIds: ...
