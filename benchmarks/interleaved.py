"""Time several callables in rounds that alternate, so that noise hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# A sample is long enough that neither the clock counts, nor that the callable before
# this one has left the processor's caches full of its own data.
SAMPLE_NS = 500_000
WARM_UPS = 5
# On a busy machine a call that takes longer than the scheduler's slices shares its wall
# time with others; the processor time of all its threads it has for itself.
CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.process_time_ns}


@dataclass(frozen=True)
class Latency:
    """Hold the time of one call, in nanoseconds."""

    median: float
    minimum: float
    calls: int

    @classmethod
    def of(cls, samples: Sequence[float], calls: int) -> Latency:
        """Sum up samples, each the mean of neighbouring calls."""
        return cls(statistics.median(samples), min(samples), calls)


def _sample(
    call: Callable[[Any], object], arguments: Sequence[Any], clock: Callable[[], int]
) -> float:
    began = clock()
    for argument in arguments:
        call(argument)
    return (clock() - began) / len(arguments)


def measure(
    calls: Mapping[str, Callable[[Any], object]],
    arguments: Callable[[int], Sequence[Any]],
    *,
    rounds: int,
    most_calls: int = 256,
    clock: str = "wall",
) -> dict[str, Latency]:
    """Measure each callable in every round, in turns.

    ``arguments(n)`` makes, untimed, what the next ``n`` calls are given. A sample takes
    as many calls as fill ``SAMPLE_NS``, but no more than ``most_calls``. The collector
    is off meanwhile. ``clock`` is one of ``CLOCKS``.
    """
    now = CLOCKS[clock]
    sizes: dict[str, int] = {}
    for name, call in calls.items():
        # The first calls warm up: a long tail is cached at its second sighting.
        duration = min(_sample(call, arguments(1), now) for _ in range(WARM_UPS))
        sizes[name] = max(1, min(most_calls, int(SAMPLE_NS / max(duration, 1))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                if sizes[name] > 1:  # what other callables drove out of the caches
                    _sample(call, arguments(1), now)
                call_with = arguments(sizes[name])
                samples[name].append(_sample(call, call_with, now))
    finally:
        if enabled:
            gc.enable()
    return {
        name: Latency.of(taken, sizes[name] * rounds) for name, taken in samples.items()
    }
