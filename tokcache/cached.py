"""CachedTokenizer: a tokenizer's face, with a cache behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from tokcache._ids import JoinedIds, TokenIds
from tokcache._trie import Trie
from tokcache.arguments import exact_str, exact_texts, given, plain_ids, texts_of
from tokcache.backends import backend_for
from tokcache.batch import FlatIds, flat_ids
from tokcache.batch_flow import BatchFlow
from tokcache.budgets import (
    DEFAULT_MEMORY_BYTES,
    check_budgets,
    check_max_chars,
    check_share,
)
from tokcache.delegation import Delegation
from tokcache.observers import Observers
from tokcache.segments import EncodeSegment, as_segments
from tokcache.shared import Membership, SharedTokenizerCache
from tokcache.stats import (
    USAGE,
    CacheEventFn,
    CacheTokenUsageFn,
    L1CacheStats,
    named_usage,
)
from tokcache.subclass_fields import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokenizers import Encoding
    from typing_extensions import Self

    from tokcache.backends.base import Backend
    from tokcache.chat import Message, Renderer
    from tokcache.eligibility import Explanation

# Characters that an id stands for, seldom less.
CHARS_AN_ID = 2

# What `count` takes to count messages.
CHAT_OPTIONS = frozenset({"messages", "template", "tools", "add_generation_prompt"})


class CachedTokenizer(Delegation, BatchFlow):
    """Wrap a tokenizer and remember what it has already tokenized.

    ``encode``, ``encode_batch`` and ``count`` answer from a trie of cached prefixes and
    ask the inner tokenizer only for the rest. The ids are always those of the inner
    tokenizer; where that cannot be guaranteed a call passes through, and ``explain()``
    says why. Every attribute that is not the cache's own is the inner tokenizer's.

    ``special_tokens`` restricts where prompts are cut to these added tokens; an empty
    list disables the cache. ``max_memory_bytes`` bounds the cached ids (four bytes
    each, by default 64 MiB) and ``max_resident_bytes`` everything the cache holds, by
    default four times that and 1 MiB; both hold whenever a call returns. With ``cache``
    the ids are kept there, see `with_cache`. With ``extend_on_hit=False`` only
    prompts that match nothing are stored; with ``cache_tails=False`` never what follows
    the last boundary. ``trust_custom`` vouches that parts of the tokenizer that are
    written in Python treat each piece of text by itself, and ``max_chars`` that a
    tokenizer of an unknown library treats texts up to that length as it does short
    ones. ``verify`` is the share of hits, from 0 to 1, that are encoded again as a
    whole and compared; a difference turns the cache off. ``on_hit``, ``on_miss`` and
    ``on_tokens`` are observers; one that raises is reported once through ``logging``
    and counted.

    A copy or a pickle has the same tokenizer and settings, and an empty cache.

    Raises ``TypeError`` for a tokenizer of a library that is not known, ``ValueError``
    for a negative budget or bound, a namespace without a cache, or a special token
    that the tokenizer does not have.

    Thread safety: any number of threads may share one object. Lookups hold a lock only
    while they run in compiled code; the inner tokenizer and the observers run outside
    it. Setting a public attribute sets the inner tokenizer's, and reads it again.
    """

    def __init__(  # noqa: PLR0913 - all but two by name
        self,
        inner: Any,
        special_tokens: Sequence[str] | None = None,
        *,
        max_memory_bytes: int | None = None,
        max_resident_bytes: int | None = None,
        cache: SharedTokenizerCache | None = None,
        namespace: bytes | None = None,
        extend_on_hit: bool = True,
        cache_tails: bool = True,
        trust_custom: bool = False,
        max_chars: int | None = None,
        verify: float = 0.0,
        on_hit: CacheEventFn | None = None,
        on_miss: CacheEventFn | None = None,
        on_tokens: CacheTokenUsageFn | None = None,
    ) -> None:
        membership = None
        max_chars = check_max_chars(max_chars)
        if cache is None:
            if namespace is not None:
                raise ValueError("a namespace is one of a shared cache: give cache too")
            memory = (
                DEFAULT_MEMORY_BYTES if max_memory_bytes is None else max_memory_bytes
            )
            budgets = check_budgets(memory, max_resident_bytes)
            trie = Trie(*budgets)
        else:
            if max_memory_bytes is not None or max_resident_bytes is not None:
                raise ValueError("the budgets are those of the shared cache")
            membership = Membership(cache, namespace)
            budgets = (cache.max_memory_bytes, cache.max_resident_bytes)
            trie = cache.trie
        self._inner = inner
        self._budgets = budgets
        self._max_chars_given = max_chars
        super().__init__(
            backend_for(inner, max_chars=max_chars),
            special_tokens=(
                list(special_tokens)
                if isinstance(special_tokens, (list, tuple))
                else special_tokens
            ),
            trust_custom=trust_custom,
            trie=trie,
            membership=membership,
            extend_on_hit=extend_on_hit,
            cache_tails=cache_tails,
            verify=check_share("verify", verify),
            observers=Observers(on_hit, on_miss, on_tokens),
        )

    @classmethod
    def with_cache(
        cls,
        inner: Any,
        special_tokens: Sequence[str] | None,
        cache: SharedTokenizerCache,
        namespace: bytes | None = None,
        **settings: Any,
    ) -> Self:
        """Wrap a tokenizer whose ids are kept in a shared cache.

        Wrappers with equal namespaces share ids, so their tokenizers must behave alike:
        where the content of a tokenizer can be seen, it is compared. Without a
        namespace the fingerprint of that content is it. ``settings`` are those of the
        constructor but the budgets. What is cached stays when the wrapper goes.

        Raises as the constructor does, ``TypeError`` for a cache or namespace of
        another type, and ``ValueError`` for a namespace that has another tokenizer's
        ids, or without a namespace if the tokenizer has no fingerprint.
        """
        return cls(inner, special_tokens, cache=cache, namespace=namespace, **settings)

    # -- encoding ---------------------------------------------------------------------

    def encode(
        self,
        sequence: str,
        pair: Any = None,
        is_pretokenized: bool = False,  # noqa: FBT001, FBT002 - the inner signature
        add_special_tokens: bool | None = None,  # noqa: FBT001 - the inner signature
        **options: Any,
    ) -> TokenIds | Encoding:
        """Return the ids that the inner tokenizer has for ``sequence``.

        The result is a ``TokenIds`` whenever the answer is the ids of one text. With a
        pair, pre-tokenized input or an option that is not known here, the call and its
        result are the inner tokenizer's. Raises ``TypeError`` if ``sequence`` is not a
        str, and whatever the inner tokenizer raises; then nothing is stored.

        Linear in the text: a cached prefix is compared and copied, the rest is encoded.
        """
        state = self._state
        if pair is not None or is_pretokenized or options or self._checks_text:
            call = self._call(pair, is_pretokenized, options)
            if call is None:
                return self._inner.encode(  # type: ignore[no-any-return]
                    sequence,
                    **given(pair, is_pretokenized, add_special_tokens),
                    **options,
                )
            sequence = exact_str(sequence, "sequence")
            call.check_text(sequence)
            state = self._state_of(call)
        elif type(sequence) is not str:
            sequence = exact_str(sequence, "sequence")
        if add_special_tokens is not True and add_special_tokens is not False:
            add_special_tokens = self._adds(add_special_tokens)
        return self._encode(state, sequence, add_special_tokens)

    async def aencode(
        self,
        sequence: str,
        *,
        add_special_tokens: bool | None = None,
        **options: Any,
    ) -> TokenIds | Encoding:
        """Return what `encode` does, and keep the event loop free meanwhile.

        What is cached, or short, is answered at once; the rest is encoded in a thread.
        Observers are called where the encode ends. Raises as `encode`. Who is cancelled
        leaves an encode under way, and what it stores.
        """
        from tokcache import aio  # noqa: PLC0415 - asyncio takes long to import

        text = exact_str(sequence, "sequence")
        return await aio.encode(self, text, add_special_tokens, options)

    def encode_batch(
        self,
        input: Sequence[Any],  # noqa: A002 - the inner tokenizer's name
        is_pretokenized: bool = False,  # noqa: FBT001, FBT002 - the inner signature
        add_special_tokens: bool | None = None,  # noqa: FBT001 - the inner signature
        **options: Any,
    ) -> list[TokenIds] | list[Encoding]:
        """Return the ids of each text, in order: what ``encode`` returns for each.

        A batch with pairs, pre-tokenized input or unknown options is the inner
        tokenizer's. Raises ``TypeError`` naming the first item that is not a str.
        """
        texts = texts_of(input)
        has_pairs = any(
            issubclass(kind, (tuple, list)) for kind in set(map(type, texts))
        )
        call = self._call(has_pairs or None, is_pretokenized, options, is_batch=True)
        if call is None:
            return self._inner.encode_batch(  # type: ignore[no-any-return]
                texts, **given(None, is_pretokenized, add_special_tokens), **options
            )
        texts = exact_texts(texts)
        if add_special_tokens is not True and add_special_tokens is not False:
            add_special_tokens = self._adds(add_special_tokens)
        found: list[TokenIds] = []
        self._encode_batch(call, texts, add_special_tokens, found)
        shape = call.padding()
        if shape.pads and shape.pad_length is None:
            # Also what passed through: it was padded to the longest of its part.
            longest = max(map(len, found), default=0)
            return [TokenIds(shape.padded(ids.tolist(), longest)) for ids in found]
        return found

    def encode_batch_flat(
        self,
        input: Sequence[str],  # noqa: A002 - as in encode_batch
        add_special_tokens: bool | None = None,  # noqa: FBT001 - as in encode
        **options: Any,
    ) -> FlatIds:
        """Return the ids of all texts in one buffer, and where each begins and ends.

        What `encode_batch` returns, joined: ``ids`` of ``uint32`` and ``offsets`` of
        ``int64``, one more than texts; text ``i`` has ``ids[offsets[i]:offsets[i+1]]``.
        Raises as `encode_batch`, and ``TypeError`` for what is no text.
        """
        texts = exact_texts(texts_of(input))
        call = self._call(None, False, options, is_batch=True)  # noqa: FBT003
        if call is None or call.padding().pads:
            found: list[Any] = self.encode_batch(
                texts, add_special_tokens=add_special_tokens, **options
            )
            # With some options these are the tokenizer's, in a type of its own.
            return flat_ids(
                ids if type(ids) is TokenIds else TokenIds(getattr(ids, "ids", ids))
                for ids in found
            )
        if add_special_tokens is not True and add_special_tokens is not False:
            add_special_tokens = self._adds(add_special_tokens)
        joined = JoinedIds(sum(map(len, texts)) // CHARS_AN_ID)
        self._encode_batch(call, texts, add_special_tokens, joined)
        return FlatIds(*joined.finish())

    def encode_segments(
        self, segments: Iterable[EncodeSegment | tuple[str, bool]]
    ) -> TokenIds:
        """Return the ids of a list of trusted and untrusted parts, one after another.

        Each part is encoded by itself: one with ``allow_special`` as the tokenizer does
        without ``add_special_tokens``, any other with its special tokens as plain text
        (``tokenizers`` still matches added tokens that are not special). Never cached,
        for a cache that joins the parts would lose which of them is trusted. An inner
        tokenizer with a method of this name is asked.

        Raises ``TypeError`` for what is no segment and ``NotImplementedError`` where
        the tokenizer has no way to encode untrusted text.
        """
        parts = as_segments(segments)
        state = self._state
        own = getattr(self._inner, "encode_segments", None)
        if own is not None:
            found = own(parts)
            return TokenIds(getattr(found, "ids", found))
        if state.backend.is_stale(sum(len(part.text) for part in parts)):
            state = self._read_again(state)
        ids: list[int] = []
        for part in parts:
            ids += state.backend.encode_segment(part.text, part.allow_special)
        return TokenIds(ids)

    @overload
    def count(
        self,
        sequence: str,
        add_special_tokens: bool | None = None,  # noqa: FBT001 - as in encode
        **options: Any,
    ) -> int: ...
    @overload
    def count(
        self,
        sequence: None = None,
        add_special_tokens: bool | None = None,  # noqa: FBT001 - as in encode
        *,
        messages: Sequence[Message],
        template: str | Renderer,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        **options: Any,
    ) -> int: ...
    def count(
        self,
        sequence: str | None = None,
        add_special_tokens: bool | None = None,  # noqa: FBT001 - as in encode
        **options: Any,
    ) -> int:
        """Return how many ids ``encode`` would return; cached ones are not built.

        Instead of a text it may be ``messages`` in OpenAI's form with a ``template``:
        the name of a plain format of `tokcache.chat`, a Jinja chat template, or what
        has a method ``render``. Then special tokens are added only if asked for, for a
        template writes them itself. Raises ``TypeError`` for both, or neither, and
        `tokcache.chat.ChatError` for messages that cannot be rendered.
        """
        state = self._state
        if options or self._checks_text or type(sequence) is not str:
            if sequence is None or not CHAT_OPTIONS.isdisjoint(options):
                from tokcache.chat_count import rendered  # noqa: PLC0415 - seldom needed

                sequence = rendered(sequence, options)
                add_special_tokens = bool(add_special_tokens)
            sequence = exact_str(sequence, "sequence")
            call = self._call(None, False, options)  # noqa: FBT003
            if call is None:
                return len(
                    self.encode(
                        sequence, add_special_tokens=add_special_tokens, **options
                    )
                )
            call.check_text(sequence)
            state = self._state_of(call)
        if add_special_tokens is not True and add_special_tokens is not False:
            add_special_tokens = self._adds(add_special_tokens)
        return self._count(state, sequence, add_special_tokens)

    def decode(self, ids: Iterable[int], *args: Any, **options: Any) -> str:
        """Return the inner tokenizer's text for ``ids``."""
        return self._inner.decode(plain_ids(ids), *args, **options)  # type: ignore[no-any-return]

    def decode_batch(
        self, sequences: Iterable[Iterable[int]], *args: Any, **options: Any
    ) -> list[str]:
        """Return the inner tokenizer's text for each list of ids."""
        plain = [plain_ids(ids) for ids in sequences]
        return self._inner.decode_batch(plain, *args, **options)  # type: ignore[no-any-return]

    def _adds(self, add_special_tokens: object) -> bool:
        """Return what the flag means if it is no plain bool."""
        if add_special_tokens is None:
            return self._backend.adds_special_tokens
        if type(add_special_tokens).__name__ in {"bool", "bool_"}:  # numpy's
            return bool(add_special_tokens)
        kind = type(add_special_tokens).__name__
        message = f"add_special_tokens must be a bool, got {kind}"
        raise TypeError(message)

    def _call(
        self,
        pair: Any,
        is_pretokenized: bool,  # noqa: FBT001 - the inner signature
        options: Mapping[str, Any],
        *,
        is_batch: bool = False,
    ) -> Backend | None:
        """Return the backend for a call; None if its answer is not ids of one text."""
        if pair is not None or is_pretokenized:
            return None
        if not options:
            return self._backend
        return self._backend.with_options(options, is_batch=is_batch)

    # -- observers --------------------------------------------------------------------

    def with_observer(
        self, on_hit: CacheEventFn | None, on_miss: CacheEventFn | None
    ) -> CachedTokenizer:
        """Set the callbacks for hits and misses, and return the object itself."""
        self._observers.on_hit = on_hit
        self._observers.on_miss = on_miss
        self._notice_watchers()
        return self

    def with_token_observer(
        self, on_tokens: CacheTokenUsageFn | None
    ) -> CachedTokenizer:
        """Set the callback for token usage, and return the object itself."""
        self._observers.on_tokens = on_tokens
        self._notice_watchers()
        return self

    # -- state ------------------------------------------------------------------------

    @property
    def inner(self) -> Any:
        """Return the wrapped tokenizer."""
        return self._inner

    def _replace_inner(self, inner: Any) -> None:
        """Wrap another tokenizer from now on: an empty cache, the same counters."""
        self._inner = inner
        self._backend = backend_for(inner, max_chars=self._max_chars_given)
        self.invalidate()

    def cache_stats(self) -> L1CacheStats:
        """Return the counters as they are now; all zero if always disabled. O(1)."""
        states = list(self._states.values())
        counted = states[0].walker.counters()
        if not any(counted) and not any(s.root.eligibility.enabled for s in states):
            return L1CacheStats()
        hits, misses, cached, uncached, passed, failures = counted
        joined = self._membership
        if joined is None:
            usage = named_usage(self._trie.usage())
        else:
            shared = joined.cache.stats(joined.name)
            usage = {name: getattr(shared, name) for name in USAGE}
        return L1CacheStats(
            hits=hits,
            misses=misses,
            **usage,
            max_memory_bytes=self._budgets[0],
            max_resident_bytes=self._budgets[1],
            cached_tokens=cached,
            uncached_tokens=uncached,
            pass_throughs=passed,
            self_check_failures=failures,
            observer_errors=self._observers.errors,
        )

    def clear_cache(self) -> None:
        """Drop all that is cached and start hits, misses and token counts again.

        What an encode that runs meanwhile would have added is not added.
        """
        for state in list(self._states.values()):
            state.walker.clear()

    def explain(self, **options: Any) -> Explanation:
        """Say what is cached and what is not, and why; readable when printed.

        ``options`` are those of a call, where they decide what is matched (for tiktoken
        ``allowed_special``). Raises ``ValueError`` for others.
        """
        call = self._call(None, False, options)  # noqa: FBT003
        if call is None:
            names = ", ".join(options)
            msg = f"calls with these options are the inner tokenizer's: {names}"
            raise ValueError(msg)
        return self._state_of(call).explain()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the tokenizer and the settings; what is cached stays here.

        A copy in this process uses the same shared cache, if there is one. The fields
        of a subclass go with it, those in ``__slots__`` too.
        """
        settings: dict[str, Any] = {
            "extend_on_hit": self._extend_on_hit,
            "cache_tails": self._cache_tails,
            "trust_custom": self._trust_custom,
            "max_chars": self._max_chars_given,
            "verify": self._verify,
            "on_hit": self._observers.on_hit,
            "on_miss": self._observers.on_miss,
            "on_tokens": self._observers.on_tokens,
        }
        if self._membership is None:
            settings["max_memory_bytes"], settings["max_resident_bytes"] = self._budgets
        else:
            settings["cache"] = self._membership.cache
            settings["namespace"] = self._membership.given
        made_from = (type(self), self._inner, self._special_tokens, settings)
        return _rebuild, made_from, fields_of(self)

    def __repr__(self) -> str:
        state = self.__dict__.get("_state")
        switch = "on" if state is not None and state.root.off is None else "off"
        return f"CachedTokenizer({type(self._inner).__name__}, cache {switch})"


def _rebuild(
    cls: type[CachedTokenizer],
    inner: Any,
    special_tokens: list[str] | None,
    settings: dict[str, Any],
) -> CachedTokenizer:
    # Not through a subclass's constructor, whose arguments are its own.
    made = cls.__new__(cls)
    CachedTokenizer.__init__(made, inner, special_tokens, **settings)
    return made
