"""What was read from a tokenizer at one moment, and what became known since."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokcache._scan import Scanner
from tokcache.eligibility import Eligibility, Explanation, probe_token
from tokcache.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokcache._walker import Walker
    from tokcache.backends.base import Backend

logger = logging.getLogger("tokcache")

# A tokenizer that fails its self-check so often breaks a rule the cache relies on.
MAX_SELF_CHECK_FAILURES = 8

# Taken by who turns a root off, which is said once.
_turning_off = Lock()


@dataclass(slots=True, eq=False)
class Root:
    """What is known of one root of a trie by all wrappers whose walks begin there.

    ``number`` is None for the root of a single wrapper, which opens and closes it.
    """

    eligibility: Eligibility
    scanner: Scanner
    number: int | None
    off: str | None
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, eligibility: Eligibility, number: int | None = None) -> Root:
        """Make the root for what was found out about a tokenizer."""
        scanner = Scanner(
            [(t.content, t.id, t.phase, t.reason is None) for t in eligibility.tokens]
        )
        return cls(eligibility, scanner, number, eligibility.reason)

    def turn_off(self, reason: str) -> None:
        """Stop to use the cache, for good, and say so once."""
        with _turning_off:
            if self.off is not None:
                return
            self.off = reason
        logger.warning("tokcache is off: %s", reason)


@dataclass(slots=True, eq=False)
class State:
    """One mode of one wrapper; replaced as a whole when its tokenizer is read again.

    An encode keeps the state that it began with: its walker's token indices are those
    of its root.
    """

    backend: Backend
    root: Root
    walker: Walker
    lease: object = None
    """What keeps the root open where others may close it."""

    def try_tokens(
        self,
        tokens: Sequence[int],
        is_as_before: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Try tokens at their first sight as boundaries; false if one failed.

        It is refused from then on, unless the tokenizer changed during its trial, which
        shows nothing then.
        """
        root = self.root
        verdicts = root.eligibility.tokens
        trusted = True
        for index in tokens:
            token = verdicts[index]
            other = next(
                (v.content for v in verdicts if v.is_eligible and v is not token), None
            )
            reason = probe_token(
                lambda text: list(self.backend.encode_bare(text)),
                root.scanner,
                index,
                token.content,
                token.id,
                other,
            )
            if not is_as_before():
                return False
            if reason is None:
                root.scanner.trust(index)
            else:
                root.scanner.refuse(index)
                self.walker.count_self_check_failure()
                root.refused[token.content] = reason
                trusted = False
        return trusted

    def count_failures(self, n_failures: int) -> None:
        """Count runs of a prompt that failed their self-check."""
        for _ in range(n_failures):
            self.walker.count_self_check_failure()

    def note_failure(self, tokens: Sequence[str]) -> None:
        """Note a prompt that failed its self-check; after a few the root is off."""
        root = self.root
        names = ", ".join(repr(token) for token in tokens)
        root.notes.append(f"self-check failed near {names}: not cached")
        if len(root.notes) >= MAX_SELF_CHECK_FAILURES:
            self.turn_off(
                f"{MAX_SELF_CHECK_FAILURES} prompts failed the self-check: "
                "the ids of a prompt are not those of its segments"
            )

    def turn_off(self, reason: str) -> None:
        """Turn the root off and drop what it holds; the counters stay."""
        self.root.turn_off(reason)
        self.walker.drop()

    def explain(self) -> Explanation:
        """Say what is cached and what is not, and why."""
        root = self.root
        found = root.eligibility
        refused: dict[str, str] = {
            token.content: token.reason
            for token in (*found.tokens, *found.unscanned)
            if token.reason is not None
        }
        refused.update(root.refused)
        return Explanation(
            enabled=root.off is None,
            reason=root.off,
            boundary_tokens=tuple(
                token.content for token in found.tokens if token.content not in refused
            ),
            refused_tokens=refused,
            add_special_tokens=found.affix_reason,
            bypass=self.backend.bypass_reason(),
            notes=tuple(root.notes),
        )
