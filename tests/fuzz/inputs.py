"""Keep the inputs that a fuzzer found: a file a harness, a line an input."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).with_name("corpus")


def kept_inputs(name: str) -> list[bytes]:
    """Return the inputs of a harness, the shortest first."""
    path = FOLDER / f"{name}.txt"
    if not path.exists():
        return []
    return [base64.b64decode(line) for line in path.read_text().split("\n")[:-1]]


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs of a harness."""
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    lines = (base64.b64encode(data).decode() + "\n" for data in ordered)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text("".join(lines))


def unpack(name: str, folder: Path) -> None:
    """Write the inputs of a harness as the files that libFuzzer wants."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in kept_inputs(name):
        digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        (folder / digest).write_bytes(data)
