"""When a saver was at work: absolute intervals, and how long their union is."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["READS", "WRITES", "Intervals", "timed", "union_ms"]

READS = ("aget_tuple", "aget_delta_channel_history", "alist")
WRITES = ("aput", "aput_writes")

SaverT = TypeVar("SaverT", bound=BaseCheckpointSaver[Any])


class Intervals:
    """Begin and end of every call, by method, in seconds of `time.perf_counter`."""

    def __init__(self) -> None:
        self._of: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(self, method: str, began: float) -> None:
        """A call that ends now."""
        self._of[method].append((began, time.perf_counter()))

    def taken(self, methods: Sequence[str]) -> float:
        """Milliseconds during which at least one of the methods was at work; they are forgotten."""
        return union_ms([interval for method in methods for interval in self._of.pop(method, ())])


def union_ms(intervals: Sequence[tuple[float, float]]) -> float:
    """Milliseconds that intervals cover together; where two overlap counts once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return round(total * 1e3, 4)


def timed(cls: type[SaverT], intervals: Intervals) -> type[SaverT]:
    """`cls`, noting its async calls; its methods keep their origin, so the wrapper knows it."""
    methods = {name: _timed(getattr(cls, name), name, intervals) for name in (*READS, *WRITES)}
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return cast("type[SaverT]", type(cls.__name__, (cls,), {**names, **methods}))


def _timed(method: Callable[..., Any], name: str, intervals: Intervals) -> Callable[..., Any]:
    if name == "alist":
        return _timed_listing(method, name, intervals)

    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return await method(self, *args, **kwargs)
        finally:
            intervals.add(name, began)

    return call


def _timed_listing(
    method: Callable[..., Any], name: str, intervals: Intervals
) -> Callable[..., Any]:
    """Without what the consumer does between two rows."""

    @functools.wraps(method)
    async def listing(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        rows = method(self, *args, **kwargs)
        while True:
            began = time.perf_counter()
            try:
                row = await anext(rows)
            except StopAsyncIteration:
                return
            finally:
                intervals.add(name, began)
            yield row

    return listing
