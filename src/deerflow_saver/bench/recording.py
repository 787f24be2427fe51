"""The stopwatch of one cell: wall time, CPU time, and what reached saver and Redis."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Recorder", "Samples"]


@dataclass(slots=True)
class Samples:
    """One metric of one cell; the i-th entries belong to the same call."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    calls: Counter[str] | None = field(default_factory=Counter)
    """Calls that reached the raw saver, and round trips to Redis, over all samples; None where
    those of a sample were not counted."""

    def add(self, wall: float, cpu: float, calls: Counter[str] | None) -> None:
        """One call, in seconds."""
        self.wall_ms.append(round(wall * 1e3, 4))
        self.cpu_ms.append(round(cpu * 1e3, 4))
        self.calls = None if self.calls is None or calls is None else self.calls + calls

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the calls as means per sample, None where they were not counted."""
        each = None
        if self.calls is not None:
            each = {name: round(n / len(self.wall_ms), 3) for name, n in sorted(self.calls.items())}
        return {"wall_ms": self.wall_ms, "cpu_ms": self.cpu_ms, "calls": each}


class Recorder:
    """Measures calls by metric.

    Args:
        counts: what the raw saver and the Redis client count in.

    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._samples: dict[str, Samples] = {}

    def measure(self, metric: str, call: Callable[[], Any]) -> Any:
        """What `call` gives; CPU time is the process's, all threads together."""
        before = self._counts.copy()
        cpu, wall = time.process_time(), time.perf_counter()
        answer = call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.add(metric, wall, cpu, self._counts - before)
        return answer

    def add(self, metric: str, wall: float, cpu: float, calls: Counter[str] | None = None) -> None:
        """A sample that was measured elsewhere, in seconds; without `calls`, uncounted ones."""
        self._samples.setdefault(metric, Samples()).add(wall, cpu, calls)

    def drop(self) -> None:
        """Begin anew: what was measured was the warm-up."""
        self._samples.clear()

    def as_dict(self) -> dict[str, Any]:
        """Every metric's samples."""
        return {metric: samples.as_dict() for metric, samples in self._samples.items()}
