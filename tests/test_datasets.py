"""Use a wrapper where the data lives already: datasets, and pools of processes."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.data import REPOSITORY
from tests.encoding_runs import build, make_texts
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")

TEXTS = make_texts(120)


def want(texts: list[str] = TEXTS) -> list[list[int]]:
    tokenizer = build()
    return [tokenizer.encode(text).ids for text in texts]


@pytest.fixture(autouse=True)
def no_files_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what datasets caches in the test's own folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def to_lists(cached: CachedTokenizer, rows: dict[str, Any]) -> dict[str, Any]:
    return {"ids": [np.asarray(ids) for ids in cached.encode_batch(rows["text"])]}


def to_table(cached: CachedTokenizer, rows: Any) -> Any:
    """Return the ids of a batch as an Arrow table, without a Python object for each."""
    ids, offsets = cached.encode_batch_flat(rows["text"].to_pylist())
    values = pa.Array.from_buffers(pa.uint32(), len(ids), [None, pa.py_buffer(ids)])
    starts = pa.array(np.asarray(offsets), pa.int32())
    return pa.table({"ids": pa.ListArray.from_arrays(starts, values)})


@pytest.mark.parametrize("num_proc", [None, 2])
def test_dataset_map(tmp_path: Path, num_proc: int | None) -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    cached = CachedTokenizer(build())
    cached.encode(TEXTS[0])
    options: dict[str, Any] = {"batched": True, "batch_size": 16, "num_proc": num_proc}
    options["cache_file_name"] = str(tmp_path / "map.arrow")
    found = rows.map(functools.partial(to_lists, cached), **options)
    assert found["ids"][:] == want()
    assert found["text"][:] == TEXTS


def test_dataset_map_over_arrow_tables() -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS}).with_format("arrow")
    cached = CachedTokenizer(build())
    found = rows.map(
        functools.partial(to_table, cached), batched=True, remove_columns=["text"]
    )
    assert found.features["ids"].feature.dtype == "uint32"
    assert found.with_format(None)["ids"][:] == want()
    assert cached.cache_stats().hits > 0


HASH = """
from datasets.fingerprint import Hasher
from tests.encoding_runs import build
from tokcache import CachedTokenizer
print(Hasher.hash(CachedTokenizer(build(){more})))
"""


def hash_elsewhere(more: str = "", seed: str = "0") -> str:
    done = subprocess.run(
        [sys.executable, "-c", HASH.format(more=more)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONHASHSEED": seed},
    )
    return done.stdout.strip()


def test_the_fingerprint_is_that_of_the_settings_in_every_process() -> None:
    """What datasets files its results under: the same again, and nobody else's."""
    hash_here = datasets.fingerprint.Hasher.hash
    cached = CachedTokenizer(build())
    cold = hash_here(cached)
    for text in TEXTS:
        cached.encode(text)
    assert hash_here(cached) == cold
    assert hash_here(CachedTokenizer(build())) == cold
    assert hash_elsewhere(seed="1") == hash_elsewhere(seed="2") == cold
    assert hash_elsewhere(", ['<|im_end|>']") != cold
    other = build()
    other.add_tokens(["foox"])
    assert hash_here(CachedTokenizer(other)) != cold


def test_a_second_map_is_read_from_the_file_of_the_first(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    rows.save_to_disk(str(tmp_path / "rows"))
    files = []
    for _ in range(2):
        loaded = datasets.load_from_disk(str(tmp_path / "rows"))
        cached = CachedTokenizer(build())
        found = loaded.map(functools.partial(to_lists, cached), batched=True)
        assert found["ids"][:] == want()
        files.append(found.cache_files)
    assert files[0] == files[1]
    assert cached.cache_stats().misses == 0


# ------------------------------------------------------------------ pools of processes

_CACHED: list[CachedTokenizer] = []


def adopt(cached: CachedTokenizer) -> None:
    _CACHED[:] = [cached]


def encode_here(texts: list[str]) -> list[list[int]]:
    return [ids.ids for ids in _CACHED[0].encode_batch(texts)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper is warm, and threads use it, when the processes begin."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    cached = CachedTokenizer(build())
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            cached.encode_batch(TEXTS[:20])

    threads = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        context = multiprocessing.get_context(method)
        parts = [TEXTS[i : i + 30] for i in range(0, len(TEXTS), 30)]
        with context.Pool(2, adopt, (cached,)) as pool:
            found = pool.map_async(encode_here, parts).get(timeout=60)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [ids for part in found for ids in part] == want()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_keeps_what_is_cached() -> None:
    cached = CachedTokenizer(build())
    adopt(cached)
    for _ in range(2):
        cached.encode_batch(TEXTS)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(encode_here, (TEXTS,)).get(timeout=60) == want()
        stats = pool.apply_async(_stats).get(timeout=60)
    before = cached.cache_stats()
    assert stats.entries == before.entries
    assert stats.hits > before.hits
    assert stats.uncached_tokens - before.uncached_tokens < before.uncached_tokens


def _stats() -> Any:
    return _CACHED[0].cache_stats()
