"""Build upstream's binding with cargo, and import it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests import data

if TYPE_CHECKING:
    from types import ModuleType

NAME = "tokcache_bench_upstream"
CRATE = Path(__file__).parent / "upstream"
TARGET = data.REPOSITORY / "out" / "upstream"
LIBRARY = f"lib{NAME}.{'dylib' if sys.platform == 'darwin' else 'so'}"


class BindingError(Exception):
    """Say why there is no binding."""


def build() -> Path:
    """Build the crate and return the module's path; cargo skips what is up to date.

    Raises ``BindingError`` without cargo, or if the build fails.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise BindingError("cargo is not installed")
    command = [cargo, "build", "--release", "--locked", "--target-dir", str(TARGET)]
    # The crate of the binding asks for CPython's stable ABI: any version loads it.
    done = subprocess.run(  # noqa: S603 - our own crate
        command, cwd=CRATE, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        message = f"cargo build failed: {lines[-1]}"
        raise BindingError(message)
    return TARGET / "release" / LIBRARY


def load() -> ModuleType:
    """Import the module that ``build`` has made; ``BindingError`` if there is none."""
    path = TARGET / "release" / LIBRARY
    if not path.is_file():
        raise BindingError("it is not built")
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
