"""Hook: stand in for one method of a ``tokenizers.Tokenizer``, on one object."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokcache.cached import CachedTokenizer
from tokcache.failures import is_failure
from tokcache.locks import Lock
from tokcache.transformers.encoding import CachedEncoding, Pads
from tokcache.transformers.twin import Twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenizers import Encoding

    from tokcache.backends.shape import Shape
    from tokcache.state import Root

# Methods that change which ids a text has.
_MUTATORS = ("add_special_tokens", "add_tokens", "train", "train_from_iterator")


def hook_of(backend: Tokenizer) -> Hook | None:
    """Return the hook that a tokenizer has now, if any."""
    found = backend.__dict__.get("encode_batch")
    return found.hook() if isinstance(found, Shadow) else None


class Shadow:
    """Pass a method's calls on to a hook.

    It is all that the tokenizer holds: many versions of it are not seen by the garbage
    collector, and with what refers back to it would stay for ever.
    """

    __slots__ = ("_name", "hook")

    def __init__(self, hook: Hook, name: str) -> None:
        self.hook = weakref.ref(hook)
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the hook; ``ReferenceError`` if it is gone."""
        hook = self.hook()
        if hook is None:
            msg = (
                f"this {self._name} is of a tokenizer that was accelerated, and is gone"
            )
            raise ReferenceError(msg)
        if self._name == "encode_batch":
            return hook.encode_batch(*args, **options)
        return hook.change(self._name, *args, **options)


class Hook:
    """Answer ``encode_batch`` of one ``tokenizers.Tokenizer`` from a cache.

    The object stays itself, for Python as for compiled code: what its ``__dict__`` has
    shadows methods of its class. What is cached are the ids of its twin, which is made
    again when the tokenizer has changed.

    A deep copy or pickle of a hook makes one for the copy of its tokenizer. When nobody
    holds it any more the tokenizer has its own methods again.

    Thread safety: as the tokenizer itself.
    """

    def __init__(self, backend: Tokenizer, settings: Mapping[str, Any]) -> None:
        self._backend: Tokenizer | None = backend
        self._settings = dict(settings)
        self._encode_batch = partial(Tokenizer.encode_batch, backend)
        self._lock = Lock()
        self._has_changed = False
        twin = Twin(backend)
        self.cached = CachedTokenizer(twin.bare, **self._settings)
        twin.measure(self._root().eligibility)
        self._twin = twin
        for name in ("encode_batch", *_MUTATORS):
            backend.__dict__[name] = Shadow(self, name)

    def detach(self) -> None:
        """Give the tokenizer its own methods back."""
        backend, self._backend = self._backend, None
        if backend is not None:
            for name in ("encode_batch", *_MUTATORS):
                backend.__dict__.pop(name, None)

    def __del__(self) -> None:
        # Without a twin it failed before it had put anything there.
        if "_twin" in self.__dict__:
            self.detach()

    def encode_batch(
        self,
        input: Any,  # noqa: A002 - the tokenizer's name
        is_pretokenized: bool = False,  # noqa: FBT001, FBT002 - the same
        add_special_tokens: bool = True,  # noqa: FBT001, FBT002 - the same
    ) -> Sequence[Encoding | CachedEncoding]:
        """Return an encoding for each text, pair or list of words."""
        backend = self._backend
        if backend is not None and isinstance(input, (list, tuple)):
            if (
                is_pretokenized is False
                and type(add_special_tokens) is bool  # else it is the tokenizer's error
                and all(type(text) is str for text in input)
            ):
                found = self._answer(backend, list(input), special=add_special_tokens)
                if found is not None:
                    return found
            self._count_pass_throughs(len(input))
        # Also for what failed in the cache: the error is the tokenizer's own.
        return self._encode_batch(input, is_pretokenized, add_special_tokens)

    def _answer(
        self, backend: Tokenizer, texts: list[str], *, special: bool
    ) -> list[CachedEncoding] | None:
        """Return the encodings, or None if the tokenizer itself must make them."""
        twin = self._current(backend)
        around = twin.around[bool(special)]
        if around is None or self._root().off is not None:
            return None
        truncation, padding = backend.truncation, backend.padding
        shape = twin.live.shape(special)
        if shape is None:
            return None
        found: list[Any]
        try:
            if len(texts) == 1:  # the usual call, and a batch costs more
                found = [self.cached.encode(texts[0], add_special_tokens=False)]
            else:
                found = [*self.cached.encode_batch(texts, add_special_tokens=False)]
        except BaseException as error:
            if not is_failure(error):
                raise
            return None  # the tokenizer itself shall raise it
        own = [ids[shape.kept(len(ids))] for ids in found]
        longest = max((len(ids) + len(around) for ids in own), default=0)
        return [
            CachedEncoding(
                ids,
                around,
                _pads(shape, len(ids) + len(around), longest, padding),
                partial(twin.encode, text, special, truncation, padding),
            )
            for text, ids in zip(texts, own, strict=True)
        ]

    def _current(self, backend: Tokenizer) -> Twin:
        """Return the twin of the tokenizer as it is now."""
        if not self._has_changed and self._twin.is_like(backend):
            return self._twin
        with self._lock:
            if self._has_changed or not self._twin.is_like(backend):
                self._has_changed = False
                twin = Twin(backend)
                self.cached._replace_inner(twin.bare)  # noqa: SLF001 - made for this
                twin.measure(self._root().eligibility)
                self._twin = twin
            return self._twin

    def _root(self) -> Root:
        return self.cached._state.root  # noqa: SLF001 - one package

    def _count_pass_throughs(self, number: int) -> None:
        state = self.cached._state  # noqa: SLF001 - one package
        if state.root.eligibility.enabled:
            for _ in range(number):
                state.walker.count_pass_through()

    def change(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the tokenizer that changes it."""
        try:
            return getattr(Tokenizer, name)(self._backend, *args, **options)
        finally:
            self._has_changed = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt_hook, (self._backend, self._settings)


def _rebuilt_hook(backend: Tokenizer | None, settings: dict[str, Any]) -> Hook | None:
    return None if backend is None else Hook(backend, settings)


def _pads(
    shape: Shape, length: int, longest: int, padding: Mapping[str, Any] | None
) -> Pads:
    """Return the pads of an encoding of that length, in a batch with that longest."""
    if padding is None:
        return Pads()
    return Pads(
        shape.padded_length(length, longest) - length,
        shape.pads_left,
        shape.pad_id,
        padding["pad_type_id"],
    )
