"""Run a case through a raw and a cached tokenizer, and compare."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from tokenizers import AddedToken, Tokenizer, normalizers

from tokcache import CachedTokenizer, batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.cases import Case, Step
    from tests.fuzz.totals import Totals
    from tokcache import CacheTokenUsage

CHECK_EVERY = 5  # steps; the trie's own check walks all of it


def attempt(call: Callable[[], Any]) -> Any:
    """Return what the call returns, or the type of what it raises, panics included."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic is a BaseException
        return type(error)


def in_one_batch(tokenizer: Any, texts: list[str], **options: bool) -> list[list[int]]:
    """Encode texts together, their runs joined however few they are."""
    with mock.patch.object(batch, "JOINED_TEXTS", 1):
        return [list(ids) for ids in tokenizer.encode_batch(texts, **options)]


def _raw(tokenizer: Tokenizer, step: Step) -> Any:
    """Do a step with the raw tokenizer; it raises for the first text that fails."""
    ids = [tokenizer.encode(t, add_special_tokens=step.flag).ids for t in step.texts]
    return len(ids[0]) if step.kind == "count" else ids


def _cached(tokenizer: Any, step: Step) -> Any:
    """Do a step with the cached tokenizer."""
    if step.kind == "batch":
        return in_one_batch(tokenizer, list(step.texts), add_special_tokens=step.flag)
    (text,) = step.texts
    if step.kind == "count":
        return tokenizer.count(text, add_special_tokens=step.flag)
    return [list(tokenizer.encode(text, add_special_tokens=step.flag))]


def _change(tokenizer: Any, step: Step) -> None:
    """Change a raw or a cached tokenizer as the step says."""
    if step.kind == "add":
        content, names = step.texts
        flags = {"normalized": False} | dict.fromkeys(names.split(), True)
        tokenizer.add_tokens([AddedToken(content, **flags)])
    elif step.kind == "lower":
        tokenizer.normalizer = (
            normalizers.Lowercase() if step.flag else normalizers.Sequence([])
        )
    elif step.kind == "plain":
        tokenizer.encode_special_tokens = step.flag
    elif step.kind == "truncation":
        tokenizer.enable_truncation(4) if step.flag else tokenizer.no_truncation()
    else:
        tokenizer.enable_padding(length=8) if step.flag else tokenizer.no_padding()


def _leaves_to_chance(tokenizer: Tokenizer) -> bool:
    """Tell whether two added tokens are looked for as the same text.

    The library then has other ids for one text from one object to the next.
    """
    if tokenizer.normalizer is None:
        return False
    normalized = [
        token.content
        for token in tokenizer.get_added_tokens_decoder().values()
        if token.normalized
    ]
    forms = [
        form
        for content in normalized
        if not isinstance(
            form := attempt(partial(tokenizer.normalizer.normalize_str, content)), type
        )
    ]
    return len(forms) > len(set(forms))


class SideBySide:
    """A raw and a cached tokenizer side by side, and what observers saw."""

    def __init__(self, case: Case, raw: Tokenizer, totals: Totals) -> None:
        self.totals = totals
        self.raw = raw
        self.cached = CachedTokenizer(
            Tokenizer.from_str(case.tokenizer),
            **case.options,
            on_hit=lambda: self._see("hits"),
            on_miss=lambda: self._see("misses"),
            on_tokens=self._see_tokens,
        )
        self.seen: Counter[str] = Counter()
        explanation = self.cached.explain()
        is_on = explanation.enabled and bool(explanation.boundary_tokens)
        totals.add("cases")
        totals.add("cache_on", is_on)

    def _see(self, event: str) -> None:
        self.seen[event] += 1

    def _see_tokens(self, usage: CacheTokenUsage) -> None:
        self.seen["texts_on"] += 1
        self.seen["cached_tokens"] += usage.cached_tokens
        self.seen["uncached_tokens"] += usage.uncached_tokens
        self.seen["full_hits"] += not usage.uncached_tokens

    def do(self, step: Step, mark: Callable[[str], object]) -> str | None:
        """Do a step with both tokenizers; return what differs."""
        if step.kind in ("encode", "count", "batch"):
            return self._compare(step, mark)
        if step.kind == "clear":
            wrong = self.sums()
            self.cached.clear_cache()
            return wrong
        _change(self.raw, step)
        _change(self.cached, step)
        return None

    def _compare(self, step: Step, mark: Callable[[str], object]) -> str | None:
        mark("raw")
        raw = self.cached.inner if _leaves_to_chance(self.raw) else self.raw
        wanted = attempt(lambda: _raw(raw, step))
        mark("cached")
        got = attempt(lambda: _cached(self.cached, step))
        self.totals.add("texts", len(step.texts))
        if isinstance(wanted, list):
            self.totals.add("tokens", sum(map(len, wanted)))
        elif isinstance(wanted, type):
            self.totals.add("errors")
        if step.kind == "batch" and isinstance(wanted, type) and isinstance(got, type):
            return None  # which of its texts fails first is not said
        return None if got == wanted else f"wanted {wanted}, got {got}"

    def bounds(self) -> str | None:
        """Check what must hold whenever no call is running."""
        stats = self.cached.cache_stats()
        if stats.memory_bytes > stats.max_memory_bytes:
            return f"memory_bytes over the budget: {stats}"
        if stats.resident_bytes > stats.max_resident_bytes:
            return f"resident_bytes over the budget: {stats}"
        return None

    def sums(self) -> str | None:
        """Compare statistics with what observers saw, add both up, begin anew."""
        stats, seen = self.cached.cache_stats(), self.seen
        self.seen = Counter()
        for name in ("texts_on", "full_hits"):
            self.totals.add(name, seen[name])
        for name in ("hits", "misses", "cached_tokens", "uncached_tokens"):
            self.totals.add(name, getattr(stats, name))
            if seen[name] != getattr(stats, name):
                return f"statistics {stats} differ from what observers saw, {seen}"
        if stats.hits + stats.misses != seen["texts_on"]:
            return f"statistics {stats} are not of all encodes, {seen}"
        return None

    def end(self) -> str | None:
        """Add up what is counted over the whole life of a cached tokenizer."""
        stats = self.cached.cache_stats()
        for name in ("evictions", "oversized", "pass_throughs", "self_check_failures"):
            self.totals.add(name, getattr(stats, name))
        if stats.observer_errors:
            return f"{stats.observer_errors} errors of observers"
        return self.sums()


def run_case(
    case: Case, totals: Totals, mark: Callable[[int, str], object] = lambda *_: None
) -> str | None:
    """Run a case; return what is wrong, or None.

    `mark` is told before each call which tokenizer is called, "raw" or "cached".
    """
    raw = Tokenizer.from_str(case.tokenizer)
    mark(-1, "cached")
    run = attempt(lambda: SideBySide(case, raw, totals))
    if isinstance(run, type):
        return f"the constructor raised {run.__name__}"
    for number, step in enumerate(case.steps):
        wrong = run.do(step, partial(mark, number)) or run.bounds()
        if wrong is None and number % CHECK_EVERY == 0:
            broken = attempt(run.cached._trie.check)
            wrong = broken and f"check() raised {broken.__name__}"
        if wrong:
            return f"step {number} {step}: {wrong}"
    ending: str | None = run.end()
    return ending
