"""SharedTokenizerCache: one store, one budget, any number of wrappers."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokcache._trie import Trie
from tokcache.budgets import DEFAULT_MEMORY_BYTES, check_budgets
from tokcache.locks import Lock
from tokcache.state import Root
from tokcache.stats import USAGE, SharedTokenizerCacheStats, named_usage

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tokcache.backends.base import Backend
    from tokcache.eligibility import Eligibility

OTHER_BEHAVIOUR = (
    "the tokenizer is not the one that its namespace has ids of: their contents differ"
)


class Lease:
    """Keep a namespace from being forgotten while somebody may walk from its roots.

    A wrapper's state holds it, and so does an encode that began with that state.
    """


@dataclass(eq=False)
class _Namespace:
    """Hold what a shared cache keeps for the wrappers of one namespace."""

    fingerprint: bytes | None
    roots: dict[Hashable, Root] = field(default_factory=dict)
    leases: weakref.WeakSet[Lease] = field(default_factory=weakref.WeakSet)

    def numbers(self) -> list[int]:
        """Return the numbers that its roots have in the trie."""
        numbers = (root.number for root in self.roots.values())
        return [number for number in numbers if number is not None]


class SharedTokenizerCache:
    """Hold cached prefixes of any number of tokenizers within one pair of budgets.

    Give it to `CachedTokenizer.with_cache`. A namespace is the identity of a
    tokenizer's behaviour, as bytes: wrappers with equal namespaces share their ids,
    others never meet. Entries stay when a wrapper goes, and serve the next one of their
    namespace. The budgets, by default 64 MiB of ids, are those of `CachedTokenizer`;
    eviction chooses among all namespaces.

    Tenants who must not learn of each other's prompts need namespaces of their own: in
    one namespace, how long a call takes shows whether its prefix was cached. What
    others evict can still be felt.

    A copy is the object itself; a pickle is an empty cache with the same budgets.

    Raises ``ValueError`` for a negative budget. Thread safety: all methods.
    """

    def __init__(
        self,
        max_memory_bytes: int = DEFAULT_MEMORY_BYTES,
        max_resident_bytes: int | None = None,
    ) -> None:
        self._budgets = check_budgets(max_memory_bytes, max_resident_bytes)
        self._trie = Trie(*self._budgets)
        self._namespaces: dict[bytes, _Namespace] = {}
        self._lock = Lock()

    @property
    def trie(self) -> Trie:
        """Return the store itself."""
        return self._trie

    @property
    def max_memory_bytes(self) -> int:
        """Return the budget for cached ids, in bytes."""
        return self._budgets[0]

    @property
    def max_resident_bytes(self) -> int:
        """Return the budget for everything that is held, in bytes."""
        return self._budgets[1]

    @property
    def namespaces(self) -> tuple[bytes, ...]:
        """Return the namespaces that wrappers opened, oldest first."""
        with self._lock:
            return tuple(self._namespaces)

    def stats(self, namespace: bytes | None = None) -> SharedTokenizerCacheStats:
        """Return the counters of all, or of one namespace; zeros if it is not known.

        They are running counters: O(roots), whatever is cached.
        """
        with self._lock:
            if namespace is None:
                usages = [self._trie.usage()]
            else:
                found = self._namespaces.get(_checked(namespace))
                numbers = [] if found is None else found.numbers()
                usages = [self._trie.usage(number) for number in numbers]
        *usage, n_closed = map(sum, zip([0] * len(USAGE), *usages, strict=True))
        return SharedTokenizerCacheStats(
            **named_usage((*usage, n_closed > 0)),
            max_memory_bytes=self._budgets[0],
            max_resident_bytes=self._budgets[1],
        )

    def clear(self, namespace: bytes | None = None) -> None:
        """Drop what is cached in one namespace, or all; not counted as evictions.

        What an encode that runs meanwhile would have added is not added. A namespace
        that no wrapper is left of is forgotten. Linear in what is dropped and in the
        leaves of all namespaces, some nanoseconds each, during which no other call
        gets through.
        """
        with self._lock:
            if namespace is None:
                self._trie.clear()
                for name in tuple(self._namespaces):
                    self._forget_unused(name)
            elif (found := self._namespaces.get(_checked(namespace))) is not None:
                self._forget_unused(namespace)
                for number in found.numbers():
                    self._trie.clear(number)

    def _forget_unused(self, name: bytes) -> None:
        """Forget a namespace that no wrapper is left of. The lock is held."""
        found = self._namespaces.get(name)
        if found is None or found.leases:
            return
        del self._namespaces[name]
        # One by one: no other call may find a number here that is closed.
        while found.roots:
            number = found.roots.popitem()[1].number
            if number is not None:
                self._trie.close_root(number)

    def drop(self, namespace: bytes) -> None:
        """Drop what is cached in one namespace, and keep the namespace."""
        with self._lock:
            found = self._namespaces.get(namespace)
            for number in [] if found is None else found.numbers():
                self._trie.clear(number)

    def open_root(
        self,
        name: bytes,
        backend: Backend,
        eligibility: Eligibility,
        content: bytes | None,
    ) -> tuple[Root, Lease]:
        """Return a wrapper's root in a namespace, a new one if it is the first.

        ``content`` is the fingerprint of its tokenizer, or None if that has none.
        Raises ``ValueError`` if the namespace is that of another content.
        """
        # Ids are stored under the numbers that tokens have in the scanner.
        key = (
            backend.name,
            backend.mode,
            tuple(
                (t.content, t.id, t.phase, t.is_eligible) for t in eligibility.tokens
            ),
        )
        with self._lock:
            while True:
                found = self._namespaces.get(name) or _Namespace(content)
                if content is not None and found.fingerprint not in (None, content):
                    raise ValueError(OTHER_BEHAVIOUR)
                lease = Lease()
                found.leases.add(lease)
                # A finalizer may have had it forgotten until it has a lease.
                if self._namespaces.setdefault(name, found) is found:
                    break
            found.fingerprint = found.fingerprint or content
            root = found.roots.get(key)
            if root is None:
                root = found.roots[key] = Root.of(eligibility, self._trie.open_root())
            return root, lease

    def __copy__(self) -> SharedTokenizerCache:
        return self

    def __deepcopy__(self, _: object) -> SharedTokenizerCache:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedTokenizerCache, self._budgets

    def __repr__(self) -> str:
        return (
            f"SharedTokenizerCache({len(self.namespaces)} namespaces, "
            f"{self.max_memory_bytes:,} bytes)"
        )


class Membership:
    """Stand for one wrapper in one namespace of a shared cache."""

    def __init__(self, cache: SharedTokenizerCache, namespace: bytes | None) -> None:
        if not isinstance(cache, SharedTokenizerCache):
            msg = f"cache must be a SharedTokenizerCache, got {type(cache).__name__}"
            raise TypeError(msg)
        self.cache = cache
        self.given = None if namespace is None else _checked(namespace)
        self.name = self.given  # where the wrapper's ids are
        self._is_first = True

    def drop(self) -> None:
        """Drop the ids of the wrapper's namespace: its tokenizer may be another now."""
        if self.name is not None:
            self.cache.drop(self.name)

    def root(
        self, backend: Backend, eligibility: Eligibility
    ) -> tuple[Root, Lease | None]:
        """Return the root for what was found out about the wrapper's tokenizer.

        Raises ``ValueError`` if the namespace is that of another tokenizer, or none was
        given and the tokenizer has no fingerprint. Once the wrapper is made, a
        tokenizer that changed is off instead, with the reason.
        """
        try:
            content = backend.fingerprint()
        except ValueError:
            if self.given is None:
                raise
            content = None
            if not self._is_first:
                # What changed does not show, so its ids would be taken for the same.
                self.drop()
        try:
            name = self.given if self.given is not None else content
            assert name is not None  # noqa: S101 - else the error was raised
            found: tuple[Root, Lease | None] = self.cache.open_root(
                name, backend, eligibility, content
            )
            self.name = name
        except ValueError as error:
            if self._is_first:
                raise
            off = replace(eligibility, enabled=False, reason=f"{error}")
            found = Root.of(off), None
        self._is_first = False
        return found


def _checked(namespace: bytes) -> bytes:
    if not isinstance(namespace, bytes):
        msg = f"namespace must be bytes, got {type(namespace).__name__}"
        raise TypeError(msg)
    return namespace
