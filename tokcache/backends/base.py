"""Say what a cache asks of a tokenizer library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokcache.eligibility import Eligibility


class Backend(Protocol):
    """Give one tokenizer of some library to the cache.

    A backend never changes its tokenizer. It may be used from any thread as far as the
    tokenizer itself may.
    """

    name: str
    inner: Any

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

    def bypass_reason(self) -> str | None:
        """Return why calls must go to the tokenizer at this moment, or None.

        It is asked before each call, so it costs no more than a few attribute reads.
        """

    def encode_run(self, text: str) -> list[int]:
        """Return the ids of a part of a text, nothing put before or after them."""

    def encode_whole(self, text: str, add_special_tokens: bool) -> list[int]:  # noqa: FBT001
        """Return the ids of a whole text, exactly the tokenizer's own."""
