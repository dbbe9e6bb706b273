"""Cut ``tokcache encode`` off at every step and at any moment, and go on."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.encoding_runs import (
    command,
    content,
    fill_folder,
    lines_of,
    make_texts,
    start,
)
from tokcache.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.monkeypatch import MonkeyPatch

KINDS = ["parquet", "arrow", "npy"]
KILLS = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_folder(tmp_path_factory.mktemp("encode"))


class Crash(BaseException):
    """Stand for the end of the process at some step."""


class Steps:
    """Crash before a step: a sync or a rename, of which every change consists."""

    def __init__(self, monkeypatch: MonkeyPatch) -> None:
        self.left = -1
        self._wrap(monkeypatch, os, "fsync")
        self._wrap(monkeypatch, Path, "replace")
        # A process that is gone tidies nothing up.
        self._wrap(monkeypatch, Path, "unlink", counts=False)

    def _wrap(
        self, monkeypatch: MonkeyPatch, owner: Any, name: str, *, counts: bool = True
    ) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def step(*args: Any, **options: Any) -> Any:
            if counts:
                self.left -= 1
            if self.left == 0:
                raise Crash
            return real(*args, **options)

        monkeypatch.setattr(owner, name, step)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_a_crash_before_any_step(
    folder: Path, tmp_path: Path, monkeypatch: MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of([*make_texts(9), "\ud800", *make_texts(9, 8)]))
    more = ("--format", kind, "--shard-size", "1KiB", "--chunk-size", "1KiB")
    arguments = [
        *command(folder, tmp_path / "whole", *more, files=[path]),
        "--skip-bad",
    ]
    assert main(arguments) == 0
    whole = content(tmp_path / "whole")
    assert len(whole) > 5
    steps = Steps(monkeypatch)
    n_crashes = 0
    while True:
        out = tmp_path / str(n_crashes)
        arguments[arguments.index("--out") + 1] = str(out)
        steps.left = n_crashes + 1
        try:
            assert main(arguments) == 0
            break
        except Crash:
            n_crashes += 1
        steps.left = -1
        assert main([*arguments, "--resume"]) == 0
        assert content(out) == whole
    assert content(out) == whole
    n_shards = len(whole) - 3
    assert n_crashes > 3 * n_shards


def test_a_run_that_crashes_again_and_again_comes_to_its_end(
    folder: Path, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    more = ("--shard-size", "1KiB", "--chunk-size", "1KiB", "--resume")
    files = [folder / "texts.jsonl"]
    assert main(command(folder, tmp_path / "whole", *more, files=files)) == 0
    steps = Steps(monkeypatch)
    draw = random.Random(5)
    n_crashes = 0
    while True:
        steps.left = draw.randrange(3, 12)
        try:
            assert main(command(folder, tmp_path / "o", *more, files=files)) == 0
            break
        except Crash:
            n_crashes += 1
    assert n_crashes > 3
    assert content(tmp_path / "o") == content(tmp_path / "whole")


def test_a_line_of_the_ledger_that_was_cut_off_is_written_again(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    more = ("--shard-size", "4KiB", "--chunk-size", "2KiB", "--resume")
    arguments = command(folder, out, *more, files=[folder / "texts.jsonl"])
    assert main(arguments) == 0
    whole = content(out)
    ledger = whole["shards.jsonl"]
    for length in range(0, len(ledger), 171):
        (out / "shards.jsonl").write_bytes(ledger[:length])
        (out / "shard-00001.parquet.tmp").write_bytes(b"left behind")
        assert main(arguments) == 0
        (out / "shard-00001.parquet.tmp").unlink(missing_ok=True)
        assert content(out) == whole


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_goes_on_to_the_same_bytes(
    folder: Path, tmp_path: Path, processes: int
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(make_texts(4000, longest=400)))
    more = ("--shard-size", "256KiB", "--chunk-size", "64KiB", "--resume")
    one = command(folder, tmp_path / "whole", *more, files=[path])
    assert main(one) == 0
    arguments = command(
        folder, tmp_path / "o", *more, "--processes", processes, files=[path]
    )
    draw = random.Random(processes)
    ledger = tmp_path / "o" / "shards.jsonl"
    n_killed = 0
    for _ in range(KILLS // 2):
        run = start(arguments)
        # Most of the time goes into the start; what matters comes after it.
        before = ledger.stat().st_mtime_ns if ledger.exists() else 0
        deadline = time.monotonic() + 60
        while run.poll() is None and time.monotonic() < deadline:
            if draw.random() < 0.02 and ledger.exists():
                break
            if ledger.exists() and ledger.stat().st_mtime_ns != before:
                time.sleep(draw.random() * 0.1)
                break
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        n_killed += run.returncode == -signal.SIGKILL
    assert n_killed > 0
    run = start(arguments)
    assert (run.communicate()[1], run.returncode) == ("", 0)
    assert content(tmp_path / "o") == content(tmp_path / "whole")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_no_process_outlives_a_killed_run(
    folder: Path, tmp_path: Path, method: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(make_texts(4000, longest=400)))
    more = ("--processes", 2, "--start-method", method, "--shard-size", "64KiB")
    run = start(command(folder, tmp_path / "o", *more, files=[path]))
    deadline = time.monotonic() + 60
    while not list((tmp_path / "o").glob("shard-*.parquet")):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = _children(run.pid)
    assert len(children) >= 2
    run.send_signal(signal.SIGKILL)
    run.communicate()  # ends when the last of them has closed the pipes
    while any(map(_is_alive, children)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_dies_ends_the_run_and_not_its_work(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(make_texts(4000, longest=400)))
    out = tmp_path / "o"
    more = ("--processes", 2, "--shard-size", "64KiB", "--chunk-size", "32KiB")
    arguments = command(folder, out, *more, files=[path])
    run = start(arguments)
    deadline = time.monotonic() + 60
    while not list(out.glob("shard-*.parquet")):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for child in _children(run.pid):
        command_line = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in command_line:
            os.kill(child, signal.SIGKILL)
    told = run.communicate()[1]
    assert run.returncode == 2
    assert told.startswith("tokcache: a process died")
    assert not list(out.glob("*.tmp"))
    assert main([*arguments, "--resume", "--processes", "1"]) == 0
    assert main(command(folder, tmp_path / "whole", *more[2:], files=[path])) == 0
    assert content(out) == content(tmp_path / "whole")


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    if not found.exists():
        pytest.skip("the system does not list a process's children")
    return [int(child) for child in found.read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
