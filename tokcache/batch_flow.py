"""The flow of many texts: what they lack together, then each in its turn."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tokcache._ids import TokenIds
from tokcache.batch import BatchIds
from tokcache.failures import is_failure
from tokcache.flow import Flow

if TYPE_CHECKING:
    from tokcache.backends.base import Backend
    from tokcache.batch import Found
    from tokcache.state import State

# Stands for the ids of a text that failed.
NO_IDS = TokenIds()


class BatchFlow(Flow):
    """Lead the texts of a batch to their ids, counted as one after another."""

    def _encode_batch(
        self,
        call: Backend,
        texts: list[str],
        special: bool,  # noqa: FBT001 - as in _encode
        found: Found,
    ) -> None:
        """Put the ids of each text into ``found``; what they lack is encoded together.

        A text that fails does not keep the others from being cached; the error of the
        first is raised at the end, with its place as ``index``.
        """
        failed: BaseException | None = None
        while len(found) < len(texts):
            change = self._change  # read before the state that it is compared for
            state = self._state_of(call)
            batch = BatchIds(state, change, self._is_current)
            stop = batch.gather(
                texts,
                len(found),
                special=special,
                is_cached=self._is_cached(state, special),
            )
            if batch.is_stale:
                self._read_again(state)
            while len(found) < stop:
                try:
                    self._encode_next(call, texts, found, stop, special, batch)
                except BaseException as error:  # noqa: PERF203 - the first is raised below
                    if not is_failure(error):
                        raise
                    if failed is None:
                        failed = error
                        with suppress(AttributeError):  # it can have one of its own
                            failed.index = len(found)  # type: ignore[attr-defined]
                    found.append(NO_IDS)
        if failed is not None:
            raise failed

    def _encode_next(  # noqa: PLR0913, PLR0917 - one batch's facts
        self,
        call: Backend,
        texts: list[str],
        found: Found,
        stop: int,
        special: bool,  # noqa: FBT001 - as in _encode
        batch: BatchIds,
    ) -> None:
        """Append to ``found`` the ids of the text that follows, or of some."""
        text = texts[len(found)]
        state = self._state_of(call)
        call.check_text(text)
        if (
            self._is_watched
            or not batch.is_current(state)
            or self._goes_aside(state, text, special)
            or state.backend.is_stale(1)
        ):
            found.append(self._encode(state, text, special, batch))
            return
        if self._checks_text or self._max_chars is not None:
            stop = len(found) + 1
        plan = batch.complete(texts, found, stop, special=special)
        if plan is not None:
            text = texts[len(found)]
            found.append(self._complete(state, plan, text, special, batch))

    def _is_cached(self, state: State, special: bool) -> bool:  # noqa: FBT001
        """Tell whether texts do not just pass through as things are now."""
        if state.root.off is not None or (special and not state.walker.has_affixes):
            return False
        if state.backend.bypass_reason() is None:
            return True
        return state.backend.shape(special) is not None
