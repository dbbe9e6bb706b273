"""Encode chunks of lines, here or in several processes, in order."""

from __future__ import annotations

import array
import itertools
import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple

from tokcache.batch import FlatIds, flat_ids
from tokcache.cached import CachedTokenizer
from tokcache.chat import ChatError
from tokcache.cli.errors import UserError
from tokcache.cli.inputs import parse_line
from tokcache.failures import is_failure

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tokcache.chat import Renderer
    from tokcache.cli.load import TokenizerFile
    from tokcache.cli.rendering import Rendering
    from tokcache.cli.stream import Chunk, Spans

__all__ = ["START_METHODS", "Encoded", "Job", "encode_chunks"]

START_METHODS = ("spawn", "fork")

# Chunks under way for each process: one at work, and what waits for one before it.
_CHUNKS_A_PROCESS = 3

_DIED = "a process died (was it killed, or out of memory?)"


@dataclass(frozen=True, slots=True)
class Job:
    """Hold all that a process needs to know to turn lines into ids."""

    file: TokenizerFile
    rendering: Rendering
    text_key: str
    messages_key: str
    add_special_tokens: bool
    max_memory_bytes: int


class Encoded(NamedTuple):
    """Hold the ids of a chunk, joined, the number of each text's, and what was bad."""

    ids: bytes
    lengths: array.array[int]
    bad: list[str]
    n_cached: int


class Encoder:
    """Encode chunks with one tokenizer and one cache."""

    def __init__(self, job: Job) -> None:
        self._job = job
        tokenizer = job.file.load()
        # To the longest of a batch, which would be that of a chunk.
        tokenizer.no_padding()
        self._cached = CachedTokenizer(tokenizer, max_memory_bytes=job.max_memory_bytes)
        self._renderer: Renderer | None = None

    def encode(self, spans: Spans) -> Encoded:
        """Return the ids of all texts that can be encoded, in order."""
        n_before = self._cached.cache_stats().cached_tokens
        places = [
            (f"{path}:{number}", line)
            for path, lines in spans
            for number, line in lines
        ]
        outcomes = [self._text(line, where) for where, line in places]
        texts = [each for each in outcomes if isinstance(each, str)]
        (ids, offsets), problems = self._ids(texts)
        bad: list[str] = []
        n_texts = 0
        for (where, _), outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, UserError):
                bad.append(str(outcome))
                continue
            if n_texts in problems:
                bad.append(f"{where}: cannot be encoded: {problems[n_texts]}")
            n_texts += 1
        return Encoded(
            ids.tobytes(),
            array.array("q", (b - a for a, b in itertools.pairwise(offsets))),
            bad,
            self._cached.cache_stats().cached_tokens - n_before,
        )

    def _text(self, line: bytes, where: str) -> str | UserError:
        """Return the prompt that a line holds, or what is wrong with it."""
        job = self._job
        try:
            entry = parse_line(
                line, where, text_key=job.text_key, messages_key=job.messages_key
            )
            if entry.messages is None:
                return entry.text or ""
            if self._renderer is None:
                self._renderer = job.rendering.renderer()
            return self._renderer.render(entry.messages, tools=entry.tools)
        except UserError as problem:
            told = str(problem)
            return problem if told.startswith(where) else UserError(f"{where}: {told}")
        except ChatError as problem:
            return UserError(f"{where}: {problem}")

    def _ids(self, texts: list[str]) -> tuple[FlatIds, dict[int, BaseException]]:
        """Return the ids of texts, and why some, by their places, have none."""
        flag = self._job.add_special_tokens
        try:
            return self._cached.encode_batch_flat(texts, add_special_tokens=flag), {}
        except BaseException as problem:
            if not is_failure(problem):
                raise
            each = [self._ids_or_problem(text) for text in texts]  # told for each
        problems = {i: x for i, x in enumerate(each) if isinstance(x, BaseException)}
        return flat_ids(x for x in each if not isinstance(x, BaseException)), problems

    def _ids_or_problem(self, text: str) -> Any:
        flag = self._job.add_special_tokens
        try:
            return self._cached.encode(text, add_special_tokens=flag)
        except BaseException as problem:
            if not is_failure(problem):
                raise
            return problem


def encode_chunks(
    job: Job, chunks: Iterator[Chunk], n_processes: int, start_method: str
) -> Generator[tuple[Chunk, Encoded], None, None]:
    """Yield each chunk with its ids, in order.

    One process lets the tokenizer use all cores. Several use one each, take chunks as
    they get done, and have a cache each; no more chunks are read ahead than keep them
    busy.
    """
    if n_processes == 1:
        encoder = Encoder(job)
        for chunk in chunks:
            yield chunk, encoder.encode(chunk.spans)
        return
    context = multiprocessing.get_context(start_method)
    crew: list[_Worker] = []
    try:
        for _ in range(n_processes):
            crew.append(_Worker(context, job))  # noqa: PERF401 - to be stopped if one fails
        yield from _in_order(crew, chunks)
    finally:
        for worker in crew:
            worker.stop()


def _in_order(
    crew: Sequence[_Worker], chunks: Iterator[Chunk]
) -> Iterator[tuple[Chunk, Encoded]]:
    """Give chunks to whoever is idle, and yield the answers as the chunks came."""
    idle = list(crew)
    busy: dict[Any, tuple[_Worker, int, Chunk]] = {}
    done: dict[int, tuple[Chunk, Encoded]] = {}
    n_given = n_yielded = 0
    while True:
        # One slow chunk must not let the others pile up behind it.
        while idle and n_given - n_yielded < _CHUNKS_A_PROCESS * len(crew):
            chunk = next(chunks, None)
            if chunk is None:
                break
            worker = idle.pop()
            worker.send(chunk)
            busy[worker.pipe] = worker, n_given, chunk
            n_given += 1
        if n_yielded in done:
            yield done.pop(n_yielded)
            n_yielded += 1
            continue
        if not busy:
            return
        for pipe in wait(list(busy)):
            worker, number, chunk = busy.pop(pipe)
            done[number] = chunk, worker.receive()
            idle.append(worker)


class _Worker:
    """Drive one process at the other end of a pipe of its own.

    Nothing is shared but that pipe, so that a process that dies, at whatever moment,
    leaves no lock held and no queue full: its end of the pipe closes, and that is seen.
    """

    def __init__(self, context: Any, job: Job) -> None:
        self.pipe, theirs = context.Pipe()
        # A fork has both ends, and would never see that ours is closed.
        inherited = self.pipe if context.get_start_method() == "fork" else None
        self._process = context.Process(
            target=_work, args=(theirs, inherited, job), daemon=True
        )
        self._process.start()
        theirs.close()

    def send(self, chunk: Chunk) -> None:
        """Give it a chunk; it must be idle."""
        try:
            self.pipe.send(chunk.spans)
        except OSError as problem:
            raise UserError(_DIED) from problem

    def receive(self) -> Encoded:
        """Return its answer."""
        try:
            found = self.pipe.recv()
        except (EOFError, OSError) as problem:
            raise UserError(_DIED) from problem
        if isinstance(found, UserError):
            raise found
        return found  # type: ignore[no-any-return]

    def stop(self) -> None:
        """End it, whatever it does."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def _work(pipe: Any, inherited: Any, job: Job) -> None:
    """Encode what comes, until the other end is closed or its process gone."""
    if inherited is not None:
        inherited.close()
    # Before the tokenizer is used: it looks once.
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    try:
        encoder: Encoder | UserError = Encoder(job)
    except UserError as problem:
        encoder = problem
    try:
        while True:
            spans = pipe.recv()
            pipe.send(
                encoder.encode(spans) if isinstance(encoder, Encoder) else encoder
            )
    except (EOFError, OSError):
        return
