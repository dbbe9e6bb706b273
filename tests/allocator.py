"""Count what the compiled core takes from malloc, or let malloc fail for it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULES = ("_batch", "_counters", "_ids", "_plan", "_scan", "_trie", "_walker")
SOURCE = Path(__file__).with_suffix(".c")


def run_with_own_allocator(scenario: Callable[[], None], folder: Path) -> None:
    """Run a function of a module in a process of its own, where `Allocator` works.

    Skips the test where no such allocator can be made.
    """
    library = own_allocator(folder)
    if library is None:
        pytest.skip("needs Linux, a C compiler and no other preloaded library")
    ran = run_alone(scenario, library)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def own_allocator(folder: Path) -> Path | None:
    """Make the library that `Allocator` commands; None where it cannot be."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or "LD_PRELOAD" in os.environ:
        return None
    library = folder / "allocator.so"
    made = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE],
        capture_output=True,
        check=False,
    )
    return None if made.returncode else library


def run_alone(
    function: Callable[[], object], preloaded: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a function of a module in a process of its own."""
    preload = {} if preloaded is None else {"LD_PRELOAD": str(preloaded)}
    # The interpreter counts its blocks only where it has its own allocator.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONMALLOC"}
    module, name = function.__module__, function.__name__
    return subprocess.run(
        [sys.executable, "-c", f"from {module} import {name} as run; run()"],
        cwd=Path(__file__).parents[1],
        env=inherited | preload,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


class Allocator:
    """Command the allocator of this process; only the compiled core's calls count."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for name in ("failed", "blocks", "bytes", "peak"):
            getattr(self._library, f"allocator_{name}").restype = ctypes.c_long
        files = {
            importlib.import_module(f"tokcache.{name}").__file__ for name in MODULES
        }
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            limits, access, *_, file = line.split()
            if file in files and "x" in access:
                self._library.allocator_watch(
                    *(ctypes.c_void_p(int(limit, 16)) for limit in limits.split("-"))
                )

    @property
    def blocks(self) -> int:
        """Return how many blocks the core has."""
        return int(self._library.allocator_blocks())

    @property
    def bytes(self) -> int:
        """Return how many bytes these take, malloc's own included."""
        return int(self._library.allocator_bytes())

    def take_peak(self) -> int:
        """Return the most bytes that the core had since this was last asked."""
        return int(self._library.allocator_peak())

    @property
    def failed(self) -> int:
        """Return how many calls have failed since they were made to fail."""
        return int(self._library.allocator_failed())

    def fail(self, after: int, *, on: bool = False) -> None:
        """Let the call after so many fail, and with ``on`` all that follow.

        Calls count while it is `armed`.
        """
        self._library.allocator_fail(ctypes.c_long(after), ctypes.c_int(on))

    def fail_no_more(self) -> None:
        """Let no call fail from now on; ``failed`` stays."""
        self._library.allocator_stop()

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Count calls towards the one that fails."""
        self._library.allocator_arm(1)
        try:
            yield
        finally:
            self._library.allocator_arm(0)
