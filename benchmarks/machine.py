"""Name the machine and the interpreter that figures come from."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe() -> str:
    """Return one line."""
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{os.cpu_count()} x {processor()}, {platform.system()}"
    )
