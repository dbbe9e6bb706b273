"""The traffic that hit ratios are measured on: real traces, real conversations."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from benchmarks import prompts
from tests import data
from tokcache import CachedTokenizer
from tokcache.backends import backend_for
from tokcache.chat import chat_format, chat_formats
from tokcache.cli.inputs import read_conversations
from tokcache.cli.measure import prompts as prompts_of
from tokcache.cli.traces import Trace, TraceRequest, read_trace, trace_format
from tokcache.cli.workload import UNBOUNDED, of_texts, of_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokcache.cli.workload import Workload

HOURS = 6  # within which WEKA's sessions begin

# The conversations have no times: they begin at random within an hour, and a prompt
# follows the one before after 20 seconds on average.
SPAN_SECONDS = 3600
MEAN_GAP_SECONDS = 20
SEED = 1


@dataclass(frozen=True)
class Case:
    """Prompts as texts for the compiled cache and as paths for the other schemes."""

    name: str
    workload: Workload
    trace: Trace
    segment_of: Sequence[int]
    """Which segment ends a prefix: several prefixes may end with the same."""
    block: int | None = None
    """Tokens of a whole block, where prompts are cut into blocks, not at messages."""

    @cached_property
    def n_tokens(self) -> int:
        """Return the tokens of all prompts."""
        lengths = self.trace.lengths
        return sum(request.n_tokens(lengths) for request in self.trace.requests)

    def deepest(self, path: Sequence[int]) -> Sequence[int]:
        """Return the last boundary of a prompt, alone.

        Behind a message it recurs in the next turn's prompt. What is left at the end of
        a prompt in blocks does not: there it is the end of the last whole block.
        """
        has_rest = bool(path) and self.trace.lengths[path[-1]] < (self.block or 0)
        return path[:-1][-1:] if has_rest else path[-1:]

    @cached_property
    def unique_bytes(self) -> int:
        """Return what the payloads of all distinct segments take."""
        lengths = dict(zip(self.segment_of, self.trace.lengths, strict=True))
        return 4 * sum(lengths.values())

    @cached_property
    def ends(self) -> Sequence[int]:
        """Return how many tokens each prefix has in all."""
        ends = [0] * len(self.trace.lengths)
        for request in self.trace.requests:
            total = 0
            for number in request.path:
                total += self.trace.lengths[number]
                ends[number] = total
        return ends


def cases(part: str = "") -> Iterator[Case]:
    """Yield what is at hand and has ``part`` in its file's name.

    Without the shared folder that is the shipped example.
    """
    folder = data.DATA
    files = sorted(folder.glob("traces/*.jsonl.gz"))
    talks = sorted(folder.glob("conversations/tau_airline*.jsonl.gz"))
    if not files:
        message = f"skipped: prefix traces ({folder / 'traces'} is absent)\n"
        sys.stderr.write(message)
    for file in files:
        if part not in file.name:
            continue
        kind = trace_format(str(file))
        if kind is not None:
            trace = read_trace([str(file)], kind, hours=HOURS)
            name = file.name.partition(".")[0]
            numbers = range(len(trace.lengths))
            yield Case(name, of_trace(trace), trace, numbers, max(trace.lengths))
    if not talks:
        examples = data.REPOSITORY / "examples" / "data"
        talks = sorted(examples.glob("tau_airline*.jsonl.gz"))
    talks = [file for file in talks if part in file.name]
    if talks:
        yield _conversations(talks)


def _conversations(files: Sequence[Path]) -> Case:
    family = prompts.family()
    inner = data.load_family(family)
    cached = CachedTokenizer(inner, max_memory_bytes=UNBOUNDED)
    texts = _in_order_of_arrival([str(file) for file in files], family)
    for text in texts:
        cached.count(text, add_special_tokens=False)
    boundary_tokens = cached.explain().boundary_tokens
    workload = of_texts(texts, backend_for(inner), boundary_tokens)
    trace, segment_of = _paths(workload)
    return Case(
        f"{files[0].name.partition('.')[0]}, {family}", workload, trace, segment_of
    )


def _in_order_of_arrival(files: Sequence[str], family: str) -> list[str]:
    renderer = chat_format(family if family in chat_formats() else "qwen3")
    random_times = random.Random(SEED)
    timed = []
    for conversation in read_conversations(files):
        time = random_times.uniform(0, SPAN_SECONDS)
        for text in prompts_of(conversation, renderer):
            timed.append((time, text))
            time += random_times.expovariate(1 / MEAN_GAP_SECONDS)
    return [text for _, text in sorted(timed, key=lambda each: each[0])]


def _paths(workload: Workload) -> tuple[Trace, list[int]]:
    """Cut texts where the cache does, and number their prefixes and segments."""
    trace = Trace()
    segment_of: list[int] = []
    numbers: dict[tuple[int, str], int] = {}
    segments: dict[str, int] = {}
    contents = workload.scanner.contents
    for text in workload.texts:
        path: list[int] = []
        start, anchor = 0, ""
        for end, token in workload.scanner.boundaries(text):
            segment = anchor + text[start:end]
            number = numbers.setdefault(
                (path[-1] if path else -1, segment), len(trace.lengths)
            )
            if number == len(trace.lengths):
                trace.lengths.append(len(workload.encode(segment)) - bool(anchor))
                segment_of.append(segments.setdefault(segment, len(segments)))
            path.append(number)
            start, anchor = end, contents[token]
        tail = text[start:]
        n_tail = len(workload.encode(anchor + tail)) - bool(anchor) if tail else 0
        trace.requests.append(TraceRequest(tuple(path), n_tail))
    return trace, segment_of
