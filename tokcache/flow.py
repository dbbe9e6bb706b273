"""The flow of one text: from a lookup to its ids."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tokcache._counters import Counters
from tokcache._ids import TokenIds
from tokcache._plan import Plan
from tokcache._walker import Walker
from tokcache.backends.base import Backend
from tokcache.failures import is_failure
from tokcache.locks import Lock
from tokcache.state import Root, State

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tokcache._trie import Trie
    from tokcache.backends.shape import Shape
    from tokcache.batch import BatchIds
    from tokcache.observers import Observers
    from tokcache.shared import Membership

# Modes (tiktoken: sets of allowed special tokens) that one wrapper remembers at once.
MAX_MODES = 64


class Flow:
    """Lead texts to their ids through the states of one wrapper.

    Knows backends, tries and plans, and nothing of how a tokenizer is called by users:
    that is `tokcache.CachedTokenizer`.
    """

    def __init__(  # noqa: PLR0913 - all by name
        self,
        backend: Backend,
        *,
        special_tokens: Sequence[str] | None,
        trust_custom: bool,
        trie: Trie,
        membership: Membership | None,
        extend_on_hit: bool,
        cache_tails: bool,
        verify: float,
        observers: Observers,
    ) -> None:
        self._backend = backend
        self._special_tokens = special_tokens
        self._trust_custom = trust_custom
        self._trie = trie
        self._membership = membership
        self._extend_on_hit = extend_on_hit
        self._cache_tails = cache_tails
        self._verify = verify
        self._observers = observers
        self._max_chars = backend.max_chars
        self._checks_text = type(backend).check_text is not Backend.check_text
        self._random = random.Random().random  # noqa: S311 - a sample, no secret
        self._counters = Counters()
        self._change = object()
        self._n_changing = 0
        self._install = Lock()
        self._notice_watchers()
        self._read_anew()

    # -- states -----------------------------------------------------------------------

    def invalidate(self) -> None:
        """Read the inner tokenizer again and drop all that is cached.

        In a shared cache that is what its namespace has, for all its wrappers.

        Needed after the inner tokenizer was changed behind the wrapper's back in a way
        that a fully cached prompt cannot show: added tokens, another normalizer, model
        or processor, or one of these parts edited in place
        (``tokenizer.normalizer.prepend = ...``). Methods called and attributes set on
        the wrapper do this by themselves, and an encode that has something to store
        notices changed added tokens.
        """
        with self._changing():
            if self._membership is not None:
                # What was stored since the change is under the name of before.
                self._membership.drop()
            self._read_anew()

    def _read_anew(self) -> None:
        """Read the tokenizer again after a change that nothing was stored since."""
        with self._changing():
            while True:
                change = self._change
                state = self._read(self._backend)
                with self._install:
                    # What another thread changed while this one read is read again.
                    if self._change is change:
                        # An old state, and its root, go with the last encode of it.
                        self._states: dict[Hashable, State] = {
                            self._backend.mode: state
                        }
                        self._state = state
                        return

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Do what changes the tokenizer, or what is known of it.

        No mark that an encode takes before the end of it is that of a moment when
        nothing changed.
        """
        with self._install:
            self._n_changing += 1
            self._change = object()
        try:
            yield
        finally:
            with self._install:
                self._change = object()
                self._n_changing -= 1

    def _is_current(self, state: State, change: object) -> bool:
        """Tell whether a state is that of now, and nothing has changed since a mark."""
        # In this order: a change ends with a new mark, and only then is not counted.
        return (
            not self._n_changing
            and self._change is change
            and self._states.get(state.backend.mode) is state
        )

    def _read(self, backend: Backend) -> State:
        eligibility = backend.inspect(
            self._special_tokens, trust_custom=self._trust_custom
        )
        lease = None
        if self._membership is None or not eligibility.enabled:
            root = Root.of(eligibility)
        else:
            root, lease = self._membership.root(backend, eligibility)
        walker = Walker(
            self._trie,
            root.number,
            root.scanner,
            eligibility.before,
            eligibility.after,
            extend_on_hit=self._extend_on_hit,
            cache_tails=self._cache_tails,
            counters=self._counters,
        )
        return State(backend, root, walker, lease)

    def _state_of(self, backend: Backend) -> State:
        """Return the state for calls of a mode; it is read when it is first needed."""
        state = self._states.get(backend.mode)
        while state is None:
            change = self._change
            read = self._read(backend)
            with self._install:
                state = self._states.get(backend.mode)
                if state is None and self._change is change:
                    state = self._states[backend.mode] = read
                    while len(self._states) > MAX_MODES:
                        # The oldest, but not the default one, which is the first.
                        self._states.pop(list(self._states)[1])
        return state

    def _read_again(self, state: State) -> State:
        """Return the state for the same mode of a tokenizer that changed."""
        self.invalidate()
        return self._state_of(state.backend)

    # -- one text ---------------------------------------------------------------------

    def _encode(
        self,
        state: State,
        text: str,
        special: bool,  # noqa: FBT001 - hot path
        batch: BatchIds | None = None,
    ) -> TokenIds:
        """Return a text's ids; ``batch`` has those of what was encoded before."""
        if self._goes_aside(state, text, special):
            return self._encode_aside(state, text, special, batch)
        found = state.walker.lookup(text, special)
        if not isinstance(found, TokenIds):
            return self._complete(state, found, text, special, batch)
        if self._is_watched:
            return self._watched(state, text, special, found)
        return found

    def _count(self, state: State, text: str, special: bool) -> int:  # noqa: FBT001 - hot path
        if self._verify or self._goes_aside(state, text, special):
            return len(self._encode(state, text, special))
        found = state.walker.count(text, special)
        if isinstance(found, Plan):
            return len(self._complete(state, found, text, special))
        if self._is_watched:
            self._observers.report(hit=True, cached=found, uncached=0)
        return found

    def _goes_aside(self, state: State, text: str, special: bool) -> bool:  # noqa: FBT001
        """Tell whether a call cannot go the straight way through the cache."""
        return (
            state.root.off is not None
            or state.backend.bypass_reason() is not None
            or (special and not state.walker.has_affixes)
            or (self._max_chars is not None and len(text) > self._max_chars)
        )

    def _encode_aside(
        self,
        state: State,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        batch: BatchIds | None = None,
    ) -> TokenIds:
        """Encode where the tokenizer has changed, shapes its ids, or must be asked."""
        if state.backend.is_stale(0):
            state = self._read_again(state)
            if not state.backend.is_stale(0):
                return self._encode(state, text, special)
        elif state.root.off is None and (not special or state.walker.has_affixes):
            shape = state.backend.shape(special)
            if shape is not None:
                ids = self._shaped(state, text, special, shape, batch)
                if ids is not None:
                    return ids
        return self._pass_through(state, text, special, batch)

    def _pass_through(
        self,
        state: State,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        batch: BatchIds | None = None,
    ) -> TokenIds:
        ids = _whole_ids(state.backend, text, special, batch)
        if state.root.eligibility.enabled:
            state.walker.count_pass_through()
        return ids

    def _complete(  # noqa: PLR0911 - each is another outcome
        self,
        state: State,
        plan: Plan,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        batch: BatchIds | None = None,
    ) -> TokenIds:
        """Encode what a plan lacks, check it, and finish the plan."""
        backend = state.backend
        change = self._change if batch is None else batch.change

        def is_as_before() -> bool:
            return backend.bypass_reason() is None and self._is_current(state, change)

        while plan.untried and not state.try_tokens(plan.untried, is_as_before):
            if not is_as_before():
                return self._pass_through(state, text, special)
            # A token that fails its trial is no boundary: cut the text again.
            again = state.walker.lookup(text, special)
            if isinstance(again, TokenIds):
                return self._watched(state, text, special, again)
            plan = again
        if not plan.has_boundary:
            ids = plan.finish_whole(_whole_ids(backend, text, special, batch))
            return self._watched(state, text, special, ids, plan)
        fed = self._feed(state, plan, text, special, backend.encode_run, batch)
        if not is_as_before():
            # Truncation, padding or another mode was switched on meanwhile, or a part
            # was set, and may have been for some of the ids only, or for the failure.
            return self._pass_through(state, text, special)
        n_chars = len(text) if fed.n_chars is None else fed.n_chars
        if backend.is_stale(n_chars):
            state = self._read_again(state)
            if state.backend.is_stale(n_chars):
                return self._pass_through(state, text, special)
            return self._encode(state, text, special)
        state.count_failures(fed.n_failures)
        if fed.n_chars is None:
            whole = backend.encode_whole(text, special)
            state.note_failure(plan.boundary_tokens())
            ids = plan.finish_whole(whole)
            return self._watched(state, text, special, ids, plan)
        return self._watched(state, text, special, plan.finish(), plan)

    def _shaped(
        self,
        state: State,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        shape: Shape,
        batch: BatchIds | None = None,
    ) -> TokenIds | None:
        """Return what truncation and padding leave of a text's ids; None: pass through.

        What is cached are the ids without them.
        """
        backend = state.backend
        change = self._change if batch is None else batch.change

        def is_as_before() -> bool:
            return shape == backend.shape(special) and self._is_current(state, change)

        started = state.walker.clock()
        found = state.walker.match(text)
        plan = found if isinstance(found, Plan) else None
        if plan is not None:
            if not plan.has_boundary or (
                plan.untried and not state.try_tokens(plan.untried, is_as_before)
            ):
                return None
            fed = self._feed(state, plan, text, special, backend.encode_bare, batch)
            if not is_as_before():
                return None
            if backend.is_stale(len(text) if fed.n_chars is None else fed.n_chars):
                self._read_again(state)
                return None
            state.count_failures(fed.n_failures)
            if fed.n_chars is None:
                state.note_failure(plan.boundary_tokens())
                return None
        elif not is_as_before():
            return None
        bare = found.finish() if isinstance(found, Plan) else found
        kept = shape.kept(len(bare))
        own = bare[kept].tolist()
        if special:
            eligibility = state.root.eligibility
            own = [*(eligibility.before or ()), *own, *(eligibility.after or ())]
        ids = TokenIds(shape.padded(own))
        uncached = plan.fresh_within(kept.start, kept.stop) if plan is not None else 0
        cached = len(ids) - uncached
        if plan is None:
            state.walker.count_hit(cached, started)
        else:
            state.walker.correct(
                cached - plan.cached_tokens, uncached - plan.uncached_tokens
            )
        return self._watched(
            state, text, special, ids, plan, usage=(cached, uncached), shape=shape
        )

    def _feed(  # noqa: PLR0913, PLR0917 - one plan's facts
        self,
        state: State,
        plan: Plan,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        encode: Callable[[str], Sequence[int]],
        batch: BatchIds | None = None,
    ) -> _Fed:
        """Encode the runs of a plan.

        What fails, fails as the whole text does: a run can fail before another one, for
        which the whole text is refused.
        """
        try:
            return _feed_runs(plan, encode, batch)
        except BaseException as error:
            if is_failure(error):
                state.backend.encode_whole(text, special)
            raise

    # -- watching ---------------------------------------------------------------------

    def _notice_watchers(self) -> None:
        self._is_watched = bool(self._observers) or self._verify > 0

    def _watched(  # noqa: PLR0913 - one call's facts
        self,
        state: State,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        ids: TokenIds,
        plan: Plan | None = None,
        *,
        usage: tuple[int, int] | None = None,
        shape: Shape | None = None,
    ) -> TokenIds:
        """Verify a hit if its turn has come, and tell the observers."""
        if not self._is_watched:
            return ids
        hit = plan is None or plan.hit
        if usage is None:
            usage = (
                (len(ids), 0)
                if plan is None
                else (plan.cached_tokens, plan.uncached_tokens)
            )
        if hit and self._verify and self._random() < self._verify:
            verified = self._verified(state, text, special, ids, shape)
            if verified is not ids:
                state.walker.correct(-usage[0], len(verified) - usage[1])
                ids, usage = verified, (0, len(verified))
        self._observers.report(hit=hit, cached=usage[0], uncached=usage[1])
        return ids

    def _verified(
        self,
        state: State,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
        ids: TokenIds,
        shape: Shape | None,
    ) -> TokenIds:
        """Return the tokenizer's own ids; if they are others, turn the cache off."""
        backend = state.backend
        change = self._change
        whole = TokenIds(backend.encode_whole(text, special))
        if whole == ids:
            return ids
        if shape is None:
            is_set_alike = backend.bypass_reason() is None
        else:
            is_set_alike = shape == backend.shape(special)
        if is_set_alike and self._is_current(state, change):
            if backend.is_stale(len(text)):
                self.invalidate()
                return whole
            state.walker.count_self_check_failure()
            at = next(
                (i for i, (a, b) in enumerate(zip(ids, whole, strict=False)) if a != b),
                min(len(ids), len(whole)),
            )
            state.turn_off(
                f"a verified hit had other ids than the tokenizer's, from id {at} on "
                f"({len(ids)} ids, the tokenizer {len(whole)})"
            )
        return whole


def _whole_ids(
    backend: Backend,
    text: str,
    special: bool,  # noqa: FBT001 - as in _encode
    batch: BatchIds | None,
) -> TokenIds:
    found = None if batch is None else batch.whole(text)
    return TokenIds(backend.encode_whole(text, special)) if found is None else found


class _Fed(NamedTuple):
    """Say what came of encoding the runs of a plan.

    ``n_chars`` is how many characters were encoded, or None if the ids of a run fail
    both self-checks; one for each run that a batch has served. ``n_failures`` counts
    the runs that failed the first.
    """

    n_chars: int | None
    n_failures: int


def _feed_runs(
    plan: Plan, encode: Callable[[str], Any], batch: BatchIds | None = None
) -> _Fed:
    n_chars = n_failures = 0
    for i in range(plan.n_runs):
        if batch is not None and batch.served(plan, i):
            n_chars += 1  # it was looked at as a whole when it was encoded
            continue
        run = plan.run_text(i)
        n_chars += len(run)
        status = plan.feed(i, encode(run))
        if status == 0:
            continue
        n_failures += 1
        if status == 1:
            each = [encode(text) for text in plan.segment_texts(i)]
            status = plan.feed_segments(i, each)
        if status != 0:
            return _Fed(None, n_failures)
    return _Fed(n_chars, n_failures)
