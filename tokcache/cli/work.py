"""Encode chunks of lines, here or in several processes, in order."""

from __future__ import annotations

import array
import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tokcache.batch import flat_ids
from tokcache.cached import CachedTokenizer
from tokcache.chat import ChatError
from tokcache.cli.errors import UserError
from tokcache.cli.inputs import parse_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from concurrent.futures import Future

    from tokcache._ids import TokenIds
    from tokcache.chat import Renderer
    from tokcache.cli.load import TokenizerFile
    from tokcache.cli.rendering import Rendering
    from tokcache.cli.stream import Chunk, Spans

__all__ = ["START_METHODS", "Encoded", "Job", "encode_chunks"]

START_METHODS = ("spawn", "fork")

# Chunks that wait for each process: one at work, one to go on with.
_CHUNKS_A_PROCESS = 2


@dataclass(frozen=True, slots=True)
class Job:
    """All that a process needs to know to turn lines into ids."""

    file: TokenizerFile
    rendering: Rendering
    text_key: str
    messages_key: str
    add_special_tokens: bool
    max_memory_bytes: int


class Encoded(NamedTuple):
    """The ids of a chunk, joined, the number of each text's, and what was bad."""

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
        ids = iter(self._ids(texts))
        found: list[TokenIds] = []
        bad: list[str] = []
        for (where, _), outcome in zip(places, outcomes, strict=True):
            each = next(ids) if isinstance(outcome, str) else outcome
            if isinstance(each, UserError):
                bad.append(str(each))
            elif isinstance(each, Exception):
                bad.append(f"{where}: cannot be encoded: {each}")
            else:
                found.append(each)
        return Encoded(
            flat_ids(found).ids.tobytes(),
            array.array("q", map(len, found)),
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

    def _ids(self, texts: list[str]) -> Sequence[TokenIds | Exception]:
        """Return the ids of each text, or why it has none."""
        flag = self._job.add_special_tokens
        try:
            found: Any = self._cached.encode_batch(texts, add_special_tokens=flag)
        except Exception:  # noqa: BLE001 - whatever a tokenizer raises; told for each
            found = [self._ids_or_problem(text) for text in texts]
        return found  # type: ignore[no-any-return]

    def _ids_or_problem(self, text: str) -> Any:
        flag = self._job.add_special_tokens
        try:
            return self._cached.encode(text, add_special_tokens=flag)
        except Exception as problem:  # noqa: BLE001 - as above
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
    pool = ProcessPoolExecutor(
        n_processes, multiprocessing.get_context(start_method), _begin, (job,)
    )
    waiting: deque[tuple[Chunk, Future[Encoded]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(_encode, chunk.spans)))
            if len(waiting) > _CHUNKS_A_PROCESS * n_processes:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool as problem:
        error = "a process died (was it killed, or out of memory?)"
        raise UserError(error) from problem
    finally:
        pool.shutdown(cancel_futures=True)


# ------------------------------------------------------------- what each process runs

_encoder: Encoder | UserError | None = None


def _begin(job: Job) -> None:
    """Make a process's encoder; why it cannot be made is told by its first chunk."""
    global _encoder  # noqa: PLW0603 - a process has one
    # Before the tokenizer is used: it looks once.
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        _encoder = Encoder(job)
    except UserError as problem:
        _encoder = problem


def _die_with_parent() -> None:
    """Leave when the parent is gone: a pool's process would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(spans: Spans) -> Encoded:
    if not isinstance(_encoder, Encoder):
        raise _encoder or RuntimeError("the process was not begun")
    return _encoder.encode(spans)
