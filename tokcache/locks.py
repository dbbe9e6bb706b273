"""A lock that serves where a plain one would hang: in finalizers, and after a fork."""

from __future__ import annotations

import os
import threading
import weakref


class Lock:
    """Guard what is changed by short Python code, in a ``with`` statement.

    The thread that has it may take it again, since the collector may run inside, and
    with it a finalizer that calls back in. In a forked child it is free: the thread
    that held it is not there to give it back.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _every_lock.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.RLock()


_every_lock: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _every_lock:
        lock._renew()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
