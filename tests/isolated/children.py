"""Wait for a forked child, but not for ever."""

from __future__ import annotations

import os
import signal
import time

SECONDS = 10.0


def exit_code(pid: int) -> int:
    """Return a child's exit code; one that hangs is killed, which is -9."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
