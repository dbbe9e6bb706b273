"""Say what a cache asks of a tokenizer library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tokcache.backends.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from tokcache.eligibility import Eligibility


class Backend(ABC):
    """Give one tokenizer of some library, in one mode, to the cache.

    A backend never changes its tokenizer. It may be used from any thread as far as the
    tokenizer itself may. To support a further library, write one module with such a
    class and name it in `backend_for`; three methods are needed, the others have
    defaults for a tokenizer that never changes.
    """

    name: str
    inner: Any
    mode: Hashable = None
    """What of a call's options changes the matching; None where no option does. Cached
    ids are shared by calls of one mode only."""
    max_chars: int | None = None
    """Texts longer than this pass through; None where the matching rules are known."""
    adds_special_tokens: bool = True
    """Whether the tokenizer adds its special tokens if a call does not say."""

    @abstractmethod
    def inspect(
        self, special_tokens: Sequence[str] | None, *, trust_custom: bool
    ) -> Eligibility:
        """Find out which added tokens are boundaries; read all from the live object.

        ``special_tokens`` restricts them, an empty list turns the cache off. With
        ``trust_custom`` the caller vouches for parts that are not the library's own:
        that they treat a piece of text alike wherever it stands.

        Raises ``TypeError`` for what is no list of strings and ``ValueError`` for a
        listed string that the tokenizer does not know as an added token.
        """

    def with_options(
        self,
        options: Mapping[str, Any],
        *,
        is_batch: bool = False,  # noqa: ARG002 - for those that need it
    ) -> Backend | None:
        """Return the backend for calls with these options of the tokenizer's own.

        None if the answer to such a call is not the ids of one text (of each text of a
        batch), or not known here: then the call is the tokenizer's.
        """
        return None if options else self

    def check_text(self, text: str) -> None:  # noqa: B027 - most raise nothing
        """Raise what the tokenizer raises for a whole text before it encodes it.

        It is asked before each call, warm or cold.
        """

    def bypass_reason(self) -> str | None:
        """Return why calls must not use the cache as they are now, or None.

        It is asked before each call, so it costs no more than a few attribute reads.
        """
        return None

    def is_stale(self, n_chars: int) -> bool:  # noqa: ARG002
        """Tell whether the tokenizer is not the one that `inspect` read any more.

        It is asked before ids of ``n_chars`` characters are stored, and whenever
        `bypass_reason` gives one. What it may cost should be in proportion.
        """
        return False

    def shape(self, add_special_tokens: bool) -> Shape | None:  # noqa: FBT001, ARG002
        """Return what live settings make of the ids of a whole text.

        They turn the ids of `encode_bare` into those of `encode_whole`. None if that
        cannot be had for the settings as they are now: then calls pass through.
        """
        return None

    def padding(self) -> Shape:
        """Return what padding alone makes of ids, also where `shape` is None.

        A batch is padded to its longest text, but encoded in several parts.
        """
        return Shape()

    @abstractmethod
    def encode_run(self, text: str) -> Sequence[int]:
        """Return the ids of a part of a text, nothing put before or after them.

        Ids may also come as a C-contiguous buffer of ``uint32``.
        """

    def encode_bare(self, text: str) -> Sequence[int]:
        """Return what `encode_run` would, were the live settings of `shape` off."""
        return self.encode_run(text)

    @abstractmethod
    def encode_whole(self, text: str, add_special_tokens: bool) -> Sequence[int]:  # noqa: FBT001
        """Return the ids of a whole text, exactly the tokenizer's own."""

    def encode_bare_batch(self, texts: list[str]) -> Iterable[Sequence[int]]:
        """Return what `encode_bare` would for each, by the tokenizer's own batch.

        It is gone through once; the texts are encoded before it is returned.
        """
        return [self.encode_bare(text) for text in texts]

    def encode_whole_batch(
        self,
        texts: list[str],
        add_special_tokens: bool,  # noqa: FBT001 - as in encode_whole
    ) -> Iterable[Sequence[int]]:
        """Return what `encode_whole` would for each, by the tokenizer's own batch."""
        return [self.encode_whole(text, add_special_tokens) for text in texts]

    def encode_segment(self, text: str, allow_special: bool) -> Sequence[int]:  # noqa: FBT001
        """Return the ids of one part of a list of trusted and untrusted parts.

        Without ``allow_special`` the special tokens in it are plain text.
        """
        msg = f"a {self.name} tokenizer has no way to encode untrusted text"
        raise NotImplementedError(msg)

    def fingerprint(self) -> bytes:
        """Return a hash of all that decides ids but the live settings.

        Raises ``ValueError`` where it cannot be had.
        """
        msg = f"a {self.name} tokenizer does not show all that decides its ids"
        raise ValueError(msg)

    def live_settings(self) -> tuple[object, ...]:
        """Return what decides ids but is looked at in every call."""
        return ()
