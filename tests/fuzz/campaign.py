"""Run random tokenizers and texts through the cache and compare with the raw tokenizer.

    python -m tests.fuzz.campaign --seconds 600 --seed 1 --jobs 2

Prints a self-contained reproduction of each failure, then what the run covered. Exit
code 1 after a failure. Cases run in worker processes: what hangs or crashes is reported
with the number of its case, and does not end the campaign unheard.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, normalizers

from tests.fuzz.random_tokenizer import chance, pick, random_text, random_tokenizer
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableSequence, Sequence
    from multiprocessing.context import SpawnProcess

    from tests.fuzz.random_tokenizer import Fragments
    from tokcache import CacheTokenUsage

CASE_SECONDS = 20  # a case takes milliseconds, the slowest seen less than one second
SHRINK_SECONDS = 20
CHECK_EVERY = 5  # steps; the trie's own check walks all of it

# --- cases ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """Encode, count or batch some texts; clear; or switch a state of the tokenizer."""

    kind: str  # encode, count, batch, clear, add; truncation, padding, plain, lower
    texts: tuple[str, ...] = ()  # for add: a token and the names of its flags
    flag: bool = False  # add_special_tokens; for a state: on or off


@dataclass(frozen=True, slots=True)
class Case:
    """All that a failure depends on."""

    tokenizer: str
    options: dict[str, Any]
    steps: tuple[Step, ...]


def _options(rng: Random, tokens: Sequence[str]) -> dict[str, Any]:
    """Draw the options of a cached tokenizer; a third have hardly any room."""
    options: dict[str, Any] = {}
    if chance(rng, 0.25):
        options["special_tokens"] = [token for token in tokens if chance(rng, 0.7)]
    if chance(rng, 0.3):
        sizes = (0, 40, 120, 400, 2000, 8000, 20_000)
        options["max_memory_bytes"] = rng.choice(sizes)
    if chance(rng, 0.2):
        sizes = (0, 1500, 3000, 6000, 20_000, 100_000, 300_000)
        options["max_resident_bytes"] = rng.choice(sizes)
    if chance(rng, 0.2):
        options["extend_on_hit"] = False
    if chance(rng, 0.2):
        options["cache_tails"] = False
    return options


def _steps(rng: Random, fragments: Fragments, *, normalizes: bool) -> Iterator[Step]:
    """Draw what is done with a cached tokenizer, in order."""
    special = pick(rng, (2, 0.5), (1, 0.05), (1, 0.95))
    switches, adds = chance(rng, 0.05), chance(rng, 0.05)
    lowered = {token.lower() for token in fragments.tokens}
    if normalizes or len(lowered) < len(fragments.tokens):
        lowered = set()
    texts: list[str] = []
    for _ in range(rng.randint(5, 60)):
        kind = pick(rng, (80, "encode"), (12, "count"), (5, "batch"), (1.5, "clear"))
        drawn = []
        for _ in range({"batch": rng.randint(0, 4), "clear": 0}.get(kind, 1)):
            text = random_text(rng, fragments, texts)
            texts.append(text)
            drawn.append(text)
        yield Step(kind, tuple(drawn), chance(rng, special))
        if switches and chance(rng, 0.2):
            state = rng.choice(("truncation", "padding", "plain"))
            yield Step(state, flag=chance(rng, 0.3))
        if adds and chance(rng, 0.15):
            yield _change_of_tokens(rng, fragments, lowered)


def _change_of_tokens(rng: Random, fragments: Fragments, lowered: set[str]) -> Step:
    """Draw a token to add, mostly one that is there, or a change of the normalizer.

    A token that is looked for in the normalized text must not be normalized to what
    another one is.
    """
    if lowered and chance(rng, 0.2):
        return Step("lower", flag=chance(rng, 0.5))
    content = rng.choice(fragments.tokens * 2 + fragments.pieces)
    flags = [name for name in ("lstrip", "rstrip", "single_word") if chance(rng, 0.15)]
    flags += ["special"] * chance(rng, 0.7)
    if content in fragments.tokens or content.lower() not in lowered:
        flags += ["normalized"] * (bool(lowered) and chance(rng, 0.5))
        lowered.add(content.lower())
    return Step("add", (content, " ".join(flags)))


def random_case(seed: int, number: int) -> Case:
    """Draw a case; the same seed and number give the same one."""
    rng = Random(f"{seed}/{number}")
    tokenizer, fragments = random_tokenizer(rng)
    options = _options(rng, fragments.tokens)
    steps = _steps(rng, fragments, normalizes=tokenizer.normalizer is not None)
    return Case(tokenizer.to_str(), options, tuple(steps))


# --- one case ------------------------------------------------------------------------


class Totals:
    """What a run covered: named counters over an array, which processes may share."""

    NAMES = (
        *("cases", "cache_on", "texts", "texts_on", "tokens", "cached_tokens"),
        *("uncached_tokens", "hits", "misses", "full_hits", "errors", "evictions"),
        *("oversized", "pass_throughs", "self_check_failures", "raw_hangs", "failures"),
    )

    def __init__(self, cells: MutableSequence[int] | None = None) -> None:
        """Count in `cells`, or in a list."""
        self._cells = [0] * len(self.NAMES) if cells is None else cells

    def __getitem__(self, name: str) -> int:
        """Return a counter."""
        return self._cells[self.NAMES.index(name)]

    def add(self, name: str, amount: int = 1) -> None:
        """Count."""
        self._cells[self.NAMES.index(name)] += amount

    @property
    def token_hit_ratio(self) -> float:
        """Return the share of ids that came from the cache, where it was on."""
        both = self["cached_tokens"] + self["uncached_tokens"]
        return self["cached_tokens"] / max(1, both)

    @property
    def cache_on_ratio(self) -> float:
        """Return the share of cases whose tokenizer had boundaries."""
        return self["cache_on"] / max(1, self["cases"])

    def __str__(self) -> str:
        """Describe the run in a few lines."""
        return (
            f"cases {self['cases']:,} (cache on {self.cache_on_ratio:.1%}), "
            f"texts {self['texts']:,}, ids {self['tokens']:,}, "
            f"raw errors {self['errors']:,}\n"
            f"where on: texts {self['texts_on']:,}, hits {self['hits']:,}, "
            f"misses {self['misses']:,}, token hit ratio {self.token_hit_ratio:.1%}, "
            f"inner calls saved {self['full_hits'] / max(1, self['texts_on']):.1%}\n"
            f"evictions {self['evictions']:,}, oversized {self['oversized']:,}, "
            f"passed through {self['pass_throughs']:,}, self-check failures "
            f"{self['self_check_failures']:,}\n"
            f"raw tokenizer hung {self['raw_hangs']:,}, failures {self['failures']:,}"
        )


def _attempt(call: Callable[[], Any]) -> Any:
    """Return what the call returns, or the type of what it raises, panics included."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic is a BaseException
        return type(error)


def _raw(tokenizer: Tokenizer, step: Step) -> Any:
    """Do a step with the raw tokenizer; it raises for the first text that fails."""
    ids = [tokenizer.encode(t, add_special_tokens=step.flag).ids for t in step.texts]
    return len(ids[0]) if step.kind == "count" else ids


def _cached(tokenizer: Any, step: Step) -> Any:
    """Do a step with the cached tokenizer."""
    if step.kind == "batch":
        batch = tokenizer.encode_batch(list(step.texts), add_special_tokens=step.flag)
        return [list(ids) for ids in batch]
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
            form := _attempt(partial(tokenizer.normalizer.normalize_str, content)), type
        )
    ]
    return len(forms) > len(set(forms))


class _Run:
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
        wanted = _attempt(lambda: _raw(raw, step))
        mark("cached")
        got = _attempt(lambda: _cached(self.cached, step))
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
    run = _attempt(lambda: _Run(case, raw, totals))
    if isinstance(run, type):
        return f"the constructor raised {run.__name__}"
    for number, step in enumerate(case.steps):
        wrong = run.do(step, partial(mark, number)) or run.bounds()
        if wrong is None and number % CHECK_EVERY == 0:
            broken = _attempt(run.cached._trie.check)
            wrong = broken and f"check() raised {broken.__name__}"
        if wrong:
            return f"step {number} {step}: {wrong}"
    ending: str | None = run.end()
    return ending


# --- smaller reproductions -----------------------------------------------------------


def _without(items: Any) -> Iterator[Any]:
    """List the sequence with parts left out, large parts first."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2


def _replaced(case: Case, old: str, new: str) -> Case:
    """Change all texts alike: what prefixes share must stay shared."""
    steps = [
        replace(step, texts=tuple(text.replace(old, new) for text in step.texts))
        for step in case.steps
    ]
    return replace(case, steps=tuple(steps))


def _simpler(case: Case) -> Iterator[Case]:
    """List simpler cases, the most promising first."""
    for steps in _without(case.steps):
        yield replace(case, steps=steps)
    for name in case.options:
        rest = {key: value for key, value in case.options.items() if key != name}
        yield replace(case, options=rest)
    parts = json.loads(case.tokenizer)
    for tokens in _without(parts["added_tokens"]):  # the rest is numbered anew
        yield replace(case, tokenizer=json.dumps({**parts, "added_tokens": tokens}))
    for name in ("normalizer", "pre_tokenizer", "post_processor"):
        if parts[name] is not None:
            yield replace(case, tokenizer=json.dumps({**parts, name: None}))
    texts = dict.fromkeys(text for step in case.steps for text in step.texts)
    longest = max(texts, key=len, default="")
    for size in (64, 16, 4, 2, 1):
        starts = range(len(longest) + 1 - size)
        for part in dict.fromkeys(longest[at : at + size] for at in starts):
            yield _replaced(case, part, "")
    for text in texts:
        for less in _without(text):
            yield _replaced(case, text, less)


def _kind(wrong: object) -> str | None:
    """Return what kind of failure a description is of, without its data."""
    if not isinstance(wrong, str):
        return None
    return " ".join(
        re.findall("wanted|got|class|statistics|[a-z]+_bytes|raised", wrong)
    )


def shrink(case: Case) -> Case:
    """Leave out of a failing case what the failure does not need."""
    kind = _kind(run_case(case, Totals()))
    deadline = time.monotonic() + SHRINK_SECONDS
    progress = True
    while progress:
        progress = False
        for simpler in _simpler(case):
            if time.monotonic() > deadline:
                return case
            # A tokenizer that cannot even be read is no simpler case.
            wrong = _attempt(partial(run_case, simpler, Totals()))
            if simpler != case and _kind(wrong) == kind:
                case, progress = simpler, True
                break
    return case


def reproduction(case: Case, wrong: str) -> str:
    """Write a failing case as a program of its own."""
    lines = [
        f"# {wrong}",
        "from tests.fuzz.campaign import Case, Step, Totals, run_case",
        f"TOKENIZER = {case.tokenizer!r}",
        f"OPTIONS = {case.options!r}",
        "STEPS = (",
        *(f"    {step!r}," for step in case.steps),
        ")",
        "print(run_case(Case(TOKENIZER, OPTIONS, STEPS), Totals()))",
    ]
    return "\n".join(lines)


# --- campaigns -----------------------------------------------------------------------


def _say(*lines: str) -> None:
    """Print at once, for several processes share the output."""
    sys.stdout.write("\n".join((*lines, "")))
    sys.stdout.flush()


def _work(cells: Any, place: Any, plan: tuple[int, int, int, float]) -> None:
    """Run every `jobs`-th case until one fails or the time is over.

    `place` tells the parent where the worker is: the case, the step, whether the raw
    tokenizer is being called, whether the worker ended by itself.
    """
    seed, number, jobs, end = plan
    stderr = os.fdopen(os.dup(2), "w")
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)  # a panic writes its backtrace there

    def mark(step: int, phase: str) -> None:
        place[1], place[2] = step, phase == "raw"

    totals = Totals(cells)
    while time.time() < end:
        place[0] = number
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True, file=stderr)
        case = random_case(seed, number)
        wrong = run_case(case, totals, mark)
        faulthandler.cancel_dump_traceback_later()
        if wrong:
            totals.add("failures")
            small = shrink(case)
            wrong = run_case(small, Totals()) or wrong
            _say(f"# seed {seed}, case {number}", reproduction(small, wrong))
            break
        number += jobs
    place[3] = 1


def _report_death(seed: int, place: Any, totals: Totals, code: int | None) -> None:
    """Report what a worker was doing when it hung (exit code 1) or crashed."""
    number, step, in_raw, _ = place
    totals.add("raw_hangs" if in_raw else "failures")
    case = random_case(seed, number)
    doing = "raw" if in_raw else "cached"
    wrong = f"seed {seed}, case {number}: the {doing} tokenizer hung or crashed, {code}"
    steps = case.steps[: step + 1]
    _say(reproduction(replace(case, steps=steps), wrong))


def campaign(seconds: float, seed: int, jobs: int, start: int = 0) -> Totals:
    """Run cases in `jobs` processes until the time is over or a case fails."""
    os.environ["RUST_BACKTRACE"] = "0"  # a panic is an answer here, and a fast one
    context = multiprocessing.get_context("spawn")
    end = time.time() + seconds
    cells = [context.RawArray("q", len(Totals.NAMES)) for _ in range(jobs)]
    places = [context.RawArray("q", [start + job, 0, 0, 0]) for job in range(jobs)]

    def begin(job: int) -> SpawnProcess:
        plan = (seed, places[job][0], jobs, end)
        worker = context.Process(target=_work, args=(cells[job], places[job], plan))
        worker.start()
        return worker

    workers = {job: begin(job) for job in range(jobs)}
    while workers:
        multiprocessing.connection.wait([w.sentinel for w in workers.values()])
        for job, worker in list(workers.items()):
            if worker.is_alive():
                continue
            worker.join()
            del workers[job]
            if not places[job][3]:
                _report_death(seed, places[job], Totals(cells[job]), worker.exitcode)
                places[job][0] += jobs
                workers[job] = begin(job)
    return Totals([sum(column) for column in zip(*cells, strict=True)])


def main() -> int:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    args = parser.parse_args()
    totals = campaign(args.seconds, args.seed, args.jobs, args.start)
    _say(str(totals))
    return 1 if totals["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
