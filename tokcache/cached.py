"""CachedTokenizer: the façade, and the flow of one prompt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokcache._ids import TokenIds
from tokcache._scan import Scanner
from tokcache._trie import Trie
from tokcache._walker import Plan, Walker
from tokcache.backends import backend_for
from tokcache.budgets import check_budgets
from tokcache.eligibility import Eligibility, Explanation, probe_token
from tokcache.stats import (
    CacheEventFn,
    CacheTokenUsage,
    CacheTokenUsageFn,
    L1CacheStats,
)

if TYPE_CHECKING:
    from tokenizers import Encoding

logger = logging.getLogger("tokcache")

DEFAULT_MEMORY_BYTES = 64 * 2**20

# A tokenizer that fails its self-check so often breaks a rule the cache relies on.
MAX_SELF_CHECK_FAILURES = 8

# Methods of the inner tokenizer that change which ids a text has.
_MUTATORS = frozenset(
    {"add_special_tokens", "add_tokens", "train", "train_from_iterator"}
)
# Methods that switch a state which is looked at in every call.
_SWITCHES = frozenset(
    {"enable_padding", "enable_truncation", "no_padding", "no_truncation"}
)
# Attributes whose value is looked at in every call, so that setting one changes nothing
# that is cached.
_LIVE_STATE = frozenset({"encode_special_tokens"})


@dataclass(slots=True, eq=False)
class _State:
    """What was read from the inner tokenizer at one moment; replaced as a whole.

    An encode keeps the state that it began with: its walker's token indices are those
    of its eligibility.
    """

    eligibility: Eligibility
    walker: Walker
    off: str | None
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class CachedTokenizer:
    """Wrap a tokenizer and remember what it has already tokenized.

    ``encode``, ``encode_batch`` and ``count`` answer from a trie of cached prefixes and
    ask the inner tokenizer only for the rest. The ids are always those of the inner
    tokenizer; where that cannot be guaranteed a call passes through, and ``explain()``
    says why. Every attribute that is not the cache's own is the inner tokenizer's.

    ``special_tokens`` restricts where prompts are cut to these added tokens; an empty
    list disables the cache. ``max_memory_bytes`` bounds the cached ids (four bytes
    each) and ``max_resident_bytes`` everything the cache holds, by default four times
    that and 1 MiB; both hold whenever a call returns. With ``extend_on_hit=False`` only
    prompts that match nothing are stored; with ``cache_tails=False`` never what follows
    the last boundary. ``trust_custom`` vouches that parts of the tokenizer that are
    written in Python treat each piece of text by itself. ``on_hit``, ``on_miss`` and
    ``on_tokens`` are observers; one that raises is reported once through ``logging``
    and counted.

    Raises ``TypeError`` for a tokenizer of a library that is not known, ``ValueError``
    for a negative budget or a special token that the tokenizer does not have.

    Thread safety: any number of threads may share one object. Lookups hold a lock only
    while they run in compiled code; the inner tokenizer and the observers run outside
    it. Setting a public attribute sets the inner tokenizer's, and reads it again.
    """

    def __init__(  # noqa: PLR0913 - all but two by name
        self,
        inner: Any,
        special_tokens: Sequence[str] | None = None,
        *,
        max_memory_bytes: int = DEFAULT_MEMORY_BYTES,
        max_resident_bytes: int | None = None,
        extend_on_hit: bool = True,
        cache_tails: bool = True,
        trust_custom: bool = False,
        on_hit: CacheEventFn | None = None,
        on_miss: CacheEventFn | None = None,
        on_tokens: CacheTokenUsageFn | None = None,
    ) -> None:
        self._budgets = check_budgets(max_memory_bytes, max_resident_bytes)
        self._inner = inner
        self._special_tokens = (
            list(special_tokens)
            if isinstance(special_tokens, (list, tuple))
            else special_tokens
        )
        self._extend_on_hit = extend_on_hit
        self._cache_tails = cache_tails
        self._trust_custom = trust_custom
        self._on_hit = on_hit
        self._on_miss = on_miss
        self._on_tokens = on_tokens
        self._is_observed = False
        self._observer_errors = 0
        self._notice_observers()
        self._backend = backend_for(inner)
        self._trie = Trie(*self._budgets)
        self._change = object()
        self._install = threading.Lock()
        self.invalidate()

    # -- encoding ---------------------------------------------------------------------

    def encode(
        self,
        sequence: str,
        pair: Any = None,
        is_pretokenized: bool = False,  # noqa: FBT001, FBT002 - the inner signature
        add_special_tokens: bool = True,  # noqa: FBT001, FBT002 - the inner signature
        **options: Any,
    ) -> TokenIds | Encoding:
        """Return the ids that the inner tokenizer has for ``sequence``.

        The result is a ``TokenIds`` whenever the answer is the ids of one text. With a
        pair, pre-tokenized input or an option that is not known here, the call and its
        result are the inner tokenizer's. Raises ``TypeError`` if ``sequence`` is not a
        str, and whatever the inner tokenizer raises; then nothing is stored.

        Linear in the text: a cached prefix is compared and copied, the rest is encoded.
        """
        if pair is not None or is_pretokenized or options:
            return self._inner.encode(  # type: ignore[no-any-return]
                sequence,
                pair=pair,
                is_pretokenized=is_pretokenized,
                add_special_tokens=add_special_tokens,
                **options,
            )
        if type(sequence) is not str:
            sequence = _exact_str(sequence, "sequence")
        return self._encode(sequence, add_special_tokens)

    def encode_batch(
        self,
        input: Sequence[Any],  # noqa: A002 - the inner tokenizer's name
        is_pretokenized: bool = False,  # noqa: FBT001, FBT002 - the inner signature
        add_special_tokens: bool = True,  # noqa: FBT001, FBT002 - the inner signature
        **options: Any,
    ) -> list[TokenIds] | list[Encoding]:
        """Return the ids of each text, in order: what ``encode`` returns for each.

        A batch with pairs, pre-tokenized input or unknown options is the inner
        tokenizer's. Raises ``TypeError`` naming the first item that is not a str.
        """
        if isinstance(input, (str, bytes)) or not isinstance(input, Iterable):
            message = f"input must be a list of str, got {type(input).__name__}"
            raise TypeError(message)
        texts = list(input)
        if (
            is_pretokenized
            or options
            or any(isinstance(text, (tuple, list)) for text in texts)
        ):
            return self._inner.encode_batch(  # type: ignore[no-any-return]
                texts,
                is_pretokenized=is_pretokenized,
                add_special_tokens=add_special_tokens,
                **options,
            )
        texts = [_exact_str(text, f"input[{i}]") for i, text in enumerate(texts)]
        return [self._encode(text, add_special_tokens) for text in texts]

    def count(
        self,
        sequence: str,
        add_special_tokens: bool = True,  # noqa: FBT001, FBT002 - as in encode
    ) -> int:
        """Return how many ids ``encode`` would return; cached ones are not built."""
        text = _exact_str(sequence, "sequence")
        state = self._state
        if self._passes_through(state, add_special_tokens):
            return len(self._pass_through(state, text, add_special_tokens))
        found = state.walker.count(text, add_special_tokens)
        if not isinstance(found, Plan):
            if self._is_observed:
                self._report(hit=True, cached=found, uncached=0)
            return found
        return len(self._complete(state, found, text, add_special_tokens))

    def decode(self, ids: Iterable[int], *args: Any, **options: Any) -> str:
        """Return the inner tokenizer's text for ``ids``."""
        return self._inner.decode(_plain(ids), *args, **options)  # type: ignore[no-any-return]

    def decode_batch(
        self, sequences: Iterable[Iterable[int]], *args: Any, **options: Any
    ) -> list[str]:
        """Return the inner tokenizer's text for each list of ids."""
        plain = [_plain(ids) for ids in sequences]
        return self._inner.decode_batch(plain, *args, **options)  # type: ignore[no-any-return]

    def _encode(self, text: str, special: bool) -> TokenIds:  # noqa: FBT001 - hot path
        state = self._state
        if self._passes_through(state, special):
            return self._pass_through(state, text, special)
        found = state.walker.lookup(text, special)
        if isinstance(found, TokenIds):
            if self._is_observed:
                self._report(hit=True, cached=len(found), uncached=0)
            return found
        return self._complete(state, found, text, special)

    def _passes_through(self, state: _State, special: bool) -> bool:  # noqa: FBT001
        return (
            state.off is not None
            or self._backend.bypass_reason() is not None
            or (special and not state.walker.has_affixes)
        )

    def _pass_through(
        self,
        state: _State,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
    ) -> TokenIds:
        ids = TokenIds(self._backend.encode_whole(text, special))
        if state.eligibility.enabled:
            state.walker.count_pass_through()
        return ids

    def _complete(
        self,
        state: _State,
        plan: Plan,
        text: str,
        special: bool,  # noqa: FBT001 - as in _encode
    ) -> TokenIds:
        """Encode what a plan lacks, check it, and finish the plan."""
        change = self._change
        while plan.untried and not self._try_tokens(state, plan.untried):
            # A token that fails its trial is no boundary: cut the text again.
            again = state.walker.lookup(text, special)
            if isinstance(again, TokenIds):
                if self._is_observed:
                    self._report(hit=True, cached=len(again), uncached=0)
                return again
            plan = again
        if not plan.has_boundary:
            ids = plan.finish_whole(self._backend.encode_whole(text, special))
        elif not self._feed_or_raise_as_whole(plan, text, special):
            whole = self._backend.encode_whole(text, special)
            self._note_failure(state, plan)
            ids = plan.finish_whole(whole)
        elif self._backend.bypass_reason() is not None or self._change is not change:
            # Truncation, padding or another mode was switched on meanwhile, and may
            # have been on for a part of the ids: they are not to be trusted.
            return self._pass_through(state, text, special)
        else:
            ids = plan.finish()
        if self._is_observed:
            self._report(
                hit=plan.hit, cached=plan.cached_tokens, uncached=plan.uncached_tokens
            )
        return ids

    def _feed_or_raise_as_whole(self, plan: Plan, text: str, special: bool) -> bool:  # noqa: FBT001
        """Feed a plan; what fails, fails as the whole text does.

        A run can fail before another one, for which the whole text is refused first.
        """
        try:
            return self._feed(plan)
        except Exception:
            self._backend.encode_whole(text, special)
            raise

    def _feed(self, plan: Plan) -> bool:
        """Encode the runs of a plan; false if their ids fail both self-checks."""
        encode = self._backend.encode_run
        for i in range(plan.n_runs):
            status = plan.feed(i, encode(plan.run_text(i)))
            if status == 0:
                continue
            plan.walker.count_self_check_failure()
            if status == 1:
                each = [encode(text) for text in plan.segment_texts(i)]
                status = plan.feed_segments(i, each)
            if status != 0:
                return False
        return True

    def _try_tokens(self, state: _State, tokens: Sequence[int]) -> bool:
        """Try tokens at their first sight as boundaries; false if one was refused."""
        scanner = state.walker.scanner
        verdicts = state.eligibility.tokens
        trusted = True
        for index in tokens:
            token = verdicts[index]
            other = next(
                (v.content for v in verdicts if v.is_eligible and v is not token), None
            )
            reason = probe_token(
                self._backend.encode_run, scanner, index, token.content, token.id, other
            )
            if reason is None:
                scanner.trust(index)
            else:
                scanner.refuse(index)
                state.walker.count_self_check_failure()
                state.refused[token.content] = reason
                trusted = False
        return trusted

    def _note_failure(self, state: _State, plan: Plan) -> None:
        tokens = ", ".join(repr(token) for token in plan.boundary_tokens())
        state.notes.append(f"self-check failed near {tokens}: not cached")
        if len(state.notes) >= MAX_SELF_CHECK_FAILURES and state.off is None:
            state.off = (
                f"{MAX_SELF_CHECK_FAILURES} prompts failed the self-check: "
                "the ids of a prompt are not those of its segments"
            )
            state.walker.clear()
            logger.warning("tokcache is off: %s", state.off)

    # -- observers --------------------------------------------------------------------

    def with_observer(
        self, on_hit: CacheEventFn | None, on_miss: CacheEventFn | None
    ) -> CachedTokenizer:
        """Set the callbacks for hits and misses, and return the object itself."""
        self._on_hit = on_hit
        self._on_miss = on_miss
        self._notice_observers()
        return self

    def with_token_observer(
        self, on_tokens: CacheTokenUsageFn | None
    ) -> CachedTokenizer:
        """Set the callback for token usage, and return the object itself."""
        self._on_tokens = on_tokens
        self._notice_observers()
        return self

    def _notice_observers(self) -> None:
        self._is_observed = any(
            observer is not None
            for observer in (self._on_hit, self._on_miss, self._on_tokens)
        )

    def _report(self, *, hit: bool, cached: int, uncached: int) -> None:
        event = self._on_hit if hit else self._on_miss
        if event is not None:
            self._call(event)
        if self._on_tokens is not None:
            self._call(self._on_tokens, CacheTokenUsage(cached, uncached))

    def _call(self, observer: Callable[..., object], *args: object) -> None:
        try:
            observer(*args)
        except Exception:
            self._observer_errors += 1
            if self._observer_errors == 1:
                logger.exception(
                    "a tokcache observer raised; later errors are only counted"
                )

    # -- state ------------------------------------------------------------------------

    @property
    def inner(self) -> Any:
        """Return the wrapped tokenizer."""
        return self._inner

    def cache_stats(self) -> L1CacheStats:
        """Return the counters as they are now; all zero if disabled. O(1)."""
        state = self._state
        if not state.eligibility.enabled:
            return L1CacheStats()
        hits, misses, cached, uncached, passed, failures = state.walker.counters()
        entries, tails, memory, resident, insertions, evictions, oversized = (
            self._trie.usage()[:7]
        )
        return L1CacheStats(
            hits=hits,
            misses=misses,
            entries=entries,
            memory_bytes=memory,
            tails=tails,
            resident_bytes=resident,
            max_memory_bytes=self._budgets[0],
            max_resident_bytes=self._budgets[1],
            cached_tokens=cached,
            uncached_tokens=uncached,
            insertions=insertions,
            evictions=evictions,
            oversized=oversized,
            pass_throughs=passed,
            self_check_failures=failures,
            observer_errors=self._observer_errors,
        )

    def clear_cache(self) -> None:
        """Drop all that is cached and start hits, misses and token counts again.

        What an encode that runs meanwhile would have added is not added.
        """
        self._state.walker.clear()

    def invalidate(self) -> None:
        """Read the inner tokenizer again and drop all that is cached.

        Needed after the inner tokenizer was changed behind the wrapper's back: added
        tokens or another normalizer, model or processor, or one of these parts
        edited in place (``tokenizer.normalizer.prepend = ...``). Methods called and
        attributes set on the wrapper do this by themselves.
        """
        self._change = object()
        while True:
            change = self._change
            state = self._read()
            with self._install:
                # What another thread changed while this one read is read again.
                if self._change is change:
                    # The old state, and its root, go with the last encode that uses it.
                    self._state = state
                    return

    def _read(self) -> _State:
        eligibility = self._backend.inspect(
            self._special_tokens, trust_custom=self._trust_custom
        )
        scanner = Scanner(
            [(t.content, t.id, t.phase, t.reason is None) for t in eligibility.tokens]
        )
        walker = Walker(
            self._trie,
            None,
            scanner,
            eligibility.before,
            eligibility.after,
            extend_on_hit=self._extend_on_hit,
            cache_tails=self._cache_tails,
        )
        return _State(eligibility, walker, eligibility.reason)

    def explain(self) -> Explanation:
        """Say what is cached and what is not, and why; readable when printed."""
        state = self._state
        found = state.eligibility
        refused: dict[str, str] = {
            token.content: token.reason
            for token in (*found.tokens, *found.unscanned)
            if token.reason is not None
        }
        refused.update(state.refused)
        return Explanation(
            enabled=state.off is None,
            reason=state.off,
            boundary_tokens=tuple(
                token.content for token in found.tokens if token.content not in refused
            ),
            refused_tokens=refused,
            add_special_tokens=found.affix_reason,
            bypass=self._backend.bypass_reason(),
            notes=tuple(state.notes),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_inner" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._inner, name)
        if name not in _MUTATORS and name not in _SWITCHES:
            return value

        def change(*args: Any, **options: Any) -> Any:
            try:
                return value(*args, **options)
            finally:
                if name in _MUTATORS:
                    self.invalidate()
                else:
                    # An encode that is under way notices, even if it is switched back.
                    self._change = object()

        return change

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        if not hasattr(type(self._inner), name):
            # A subclass may keep fields of its own.
            object.__setattr__(self, name, value)
            return
        setattr(self._inner, name, value)
        if name in _LIVE_STATE:
            self._change = object()
        else:
            self.invalidate()

    def __repr__(self) -> str:
        switch = "off" if self._state.off is not None else "on"
        return f"CachedTokenizer({type(self._inner).__name__}, cache {switch})"


def _exact_str(value: object, name: str) -> str:
    """Return ``value`` as a str proper, or raise TypeError naming the argument."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    message = f"{name} must be a str, got {type(value).__name__}"
    raise TypeError(message)


def _plain(ids: Iterable[int]) -> Any:
    return ids.tolist() if isinstance(ids, TokenIds) else ids
