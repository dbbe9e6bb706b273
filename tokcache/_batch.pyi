from collections.abc import Iterable
from typing import final

from tokcache._ids import JoinedIds, TokenIds
from tokcache._plan import Plan
from tokcache._walker import Walker

@final
class Batch:
    n_chars: int
    untried: set[int]
    wholes: dict[str, TokenIds | None]
    def __new__(cls, walker: Walker, n_texts: int) -> Batch: ...
    def add(self, texts: list[str], start: int, max_chars: int, /) -> int: ...
    def add_whole(self, text: str, /) -> None: ...
    def run_texts(self) -> list[str]: ...
    def texts_apart(self) -> list[str]: ...
    def feed(self, all_ids: Iterable[Iterable[int]], /) -> None: ...
    def complete(
        self,
        texts: list[str],
        found: list[TokenIds] | JoinedIds,
        stop: int,
        special: bool,
        /,
    ) -> Plan | None: ...
    def serve(self, plan: Plan, i: int, /) -> bool: ...
