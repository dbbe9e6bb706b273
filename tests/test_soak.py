"""The soak's own logic: what it asks for, what it sees, and what makes it fail."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.soak import HELD, Sample, Soak, WrongIdsError, growth, too_much

from .data import REPOSITORY, families

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("matplotlib")


def test_a_short_soak(tmp_path: Path) -> None:
    # So short a run is never warm: what it grows by says nothing.
    options = ["--requests", "20000", "--max-growth", "10"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.soak", *options),
            *("--out", str(tmp_path / "soak")),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads((tmp_path / "soak.json").read_text("utf-8"))
    assert figures["problem"] is None
    assert figures["requests"] == 20_000
    assert figures["store"]["insertions"] > 1000
    samples = figures["samples"]
    assert 0.5 < samples[-1]["token_hit_ratio"] < 1
    assert all(sample["rss_bytes"] > 2**24 for sample in samples)
    limit = figures["store"]["max_resident_bytes"]
    assert all(0 < sample["resident_bytes"] <= limit for sample in samples)
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_a_process_that_grows_by_more_than_two_per_cent_fails() -> None:
    assert too_much(0.019) is None
    assert too_much(0.021) == "the process has grown by 2.10%"


def test_growth_is_that_since_the_process_was_warm() -> None:
    def samples(*sizes: int) -> list[Sample]:
        return [Sample(1000 * i, size, 0, 1.0) for i, size in enumerate(sizes, 1)]

    assert growth(samples(10, *[100] * 19)) == 0
    assert growth(samples(10, *[100] * 18, 103)) == pytest.approx(0.03)
    assert growth(samples(10, *[100] * 9, 103, *[100] * 9)) == pytest.approx(0.03)
    assert growth(samples(100, *[100] * 18, 90)) == 0
    assert growth([]) == 0


def test_wrong_ids_are_found() -> None:
    soak = Soak(2, families()[:1])
    for wrapper in soak.wrappers:
        backend: Any = wrapper._backend
        backend.encode_run = lambda text: [*map(ord, text)]
        backend.encode_whole = lambda text, _: [*map(ord, text)]
    with pytest.raises(WrongIdsError, match="not the ids"):
        soak.run(20_000, slices=2)


def test_a_result_that_changes_is_found() -> None:
    client = Soak(1, families()[:1]).clients[0]
    changing = bytearray(b"0123")
    client._hold(memoryview(changing))
    changing[0] += 1
    for _ in range(HELD - 1):
        client._hold(memoryview(b"0123"))
    with pytest.raises(WrongIdsError, match="changed"):
        client._hold(memoryview(b"0123"))
