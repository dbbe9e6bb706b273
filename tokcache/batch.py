"""Many texts at once: what they lack is found first, and encoded in one call."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tokcache._batch import Batch
from tokcache._ids import JoinedIds, TokenIds
from tokcache.failures import is_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokcache._plan import Plan
    from tokcache.state import State

# What the ids of a batch, text by text, are put into.
Found: TypeAlias = "list[TokenIds] | JoinedIds"

# What one inner call is given at most, in characters: it keeps all cores busy, and
# the ids of so many, as Python ints, are some hundred megabytes.
CHUNK_CHARS = 2**23

# As many texts as short runs are joined to at least, for as many cores.
JOINED_TEXTS = 128

# Texts that are taken from what was gathered without a look at the tokenizer, and
# without letting other threads in.
PART_TEXTS = 64


class FlatIds(NamedTuple):
    """Hold the ids of many texts in one buffer: text ``i`` has those between offsets.

    Both are C-contiguous buffers that numpy and Arrow read without a copy: ``ids`` of
    ``uint32``, ``offsets`` of ``int64``, one more than there are texts.
    """

    ids: TokenIds
    offsets: memoryview

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by value, for another process."""
        return _flat, (self.ids, array("q", self.offsets.tobytes()))


def _flat(ids: TokenIds, offsets: array[int]) -> FlatIds:
    return FlatIds(ids, memoryview(offsets).toreadonly())


def flat_ids(found: Iterable[TokenIds]) -> FlatIds:
    """Join the ids of many texts."""
    joined = JoinedIds()
    for ids in found:
        joined.append(ids)
    return FlatIds(*joined.finish())


class BatchIds:
    """Hold ids that were made for a batch and not yet asked for by a text.

    ``change`` is the wrapper's mark of when that was; with another one they are not
    to be trusted. ``is_stale`` tells that there are none, since the tokenizer was found
    not to be the one that was read.
    """

    def __init__(
        self,
        state: State,
        change: object,
        is_current: Callable[[State, object], bool],
    ) -> None:
        self.change = change
        self.is_stale = False
        self._is_current = is_current
        self._state = state
        self._batch = self._empty()
        self._settings_then = self._settings()

    def _empty(self) -> Batch:
        """Make a batch; its runs are joined only where no text is too long."""
        joins = self._state.backend.max_chars is None
        return Batch(self._state.walker, JOINED_TEXTS if joins else sys.maxsize)

    def served(self, plan: Plan, i: int) -> bool:
        """Feed a run of a plan of one text, if all its ids are here."""
        return plan.walker is self._state.walker and self._batch.serve(plan, i)

    def whole(self, text: str) -> TokenIds | None:
        """Return the ids of a text that was encoded as a whole, if they still hold."""
        state = self._state
        ids = self._batch.wholes.get(text)
        if ids is None or not self.is_current(state):
            return None
        is_stale = state.root.off is None and state.backend.is_stale(len(text))
        return None if is_stale else ids

    def is_current(self, state: State) -> bool:
        """Tell whether this is of a state, and nothing has changed since then."""
        return (
            state is self._state
            and self._is_current(state, self.change)
            and self._settings() == self._settings_then
        )

    def _settings(self) -> tuple[object, ...]:
        """Return what the tokenizer has of settings that can change at any time."""
        backend = self._state.backend
        return backend.bypass_reason(), *backend.live_settings()

    def complete(
        self, texts: list[str], found: Found, stop: int, *, special: bool
    ) -> Plan | None:
        """Append to ``found`` the ids of the texts that follow, some of them at once.

        Stops in front of one that lacks what is not here, and returns its plan.
        """
        stop = min(stop, len(found) + PART_TEXTS)
        return self._batch.complete(texts, found, stop, special)

    def gather(
        self, texts: list[str], start: int, *, special: bool, is_cached: bool
    ) -> int:
        """Encode what the texts from ``start`` on lack; return where it stopped.

        That is at the end, or when it was enough for one inner call. What cannot be
        encoded is left out; it fails again when its text's turn comes. With ``special``
        whole texts get the ids around them, and without ``is_cached`` all are whole.
        """
        if is_cached:
            stop = self._plan(texts, start)
        else:
            stop = start
            while stop < len(texts) and self._batch.n_chars < CHUNK_CHARS:
                self._batch.add_whole(texts[stop])
                stop += 1
        if self._batch.untried and not self._state.try_tokens(
            sorted(self._batch.untried), lambda: self.is_current(self._state)
        ):
            # A token that fails its trial is no boundary: cut the texts again.
            self._batch = self._empty()
            stop = self._plan(texts[:stop], start)
        try:
            self._encode(special=special)
        except BaseException as error:
            if not is_failure(error):
                raise
            return stop  # it comes again for the text that it is of
        if is_cached and self._state.backend.is_stale(self._batch.n_chars):
            self._batch = self._empty()
            self.is_stale = True
        return stop

    def _plan(self, texts: list[str], start: int) -> int:
        """Find what the texts from ``start`` on lack; return where it is enough."""
        stop = start
        while stop < len(texts) and self._batch.n_chars < CHUNK_CHARS:
            stop = self._batch.add(texts, stop, CHUNK_CHARS)
        return stop

    def _encode(self, *, special: bool) -> None:
        """Encode all that the batch lacks, and let the texts have it."""
        backend, batch = self._state.backend, self._batch
        runs = batch.run_texts()
        if runs:
            batch.feed(backend.encode_bare_batch(runs))
            if runs := batch.texts_apart():
                batch.feed(backend.encode_bare_batch(runs))
        # Long ones first, so that the cores that share them end together.
        wholes = sorted(batch.wholes, key=len, reverse=True)
        if wholes:
            all_ids = backend.encode_whole_batch(wholes, special)
            batch.wholes.update(zip(wholes, map(TokenIds, all_ids), strict=True))
