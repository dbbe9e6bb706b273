"""Leaks that must be seen."""

from __future__ import annotations

import ctypes

from tests.isolated.growth import Operation, leaves_nothing
from tests.isolated.traffic import TEXT, wrapper
from tokcache import TokenIds

_kept: list[object] = []


@leaves_nothing()
def leaked_object() -> Operation:
    def operation() -> None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(TokenIds([1, 2, 3])))

    return operation


@leaves_nothing()
def leaked_reference() -> Operation:
    def operation() -> None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(TokenIds))

    return operation


@leaves_nothing()
def leaked_container() -> Operation:
    cached = wrapper()

    def operation() -> None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(cached.explain()))

    return operation


@leaves_nothing()
def kept_result() -> Operation:
    cached = wrapper()

    def operation() -> None:
        _kept.append(cached.encode(TEXT))

    return operation
