"""What events add up to: a plain table, which an adapter reads when metrics are collected.

Counting here takes a fraction of the time that the clients' own counters take, and a hook is
called at every read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from deerflow_saver.events import GuardEvent, HistoryEvent
from deerflow_saver.instrumentation import _vocabulary as names

__all__ = ["Buckets", "EventTable", "Totals"]

_UNFOLDED = 512
"""Depths that are counted one by one, at most, until they are put into their buckets."""


@dataclass(slots=True)
class Buckets:
    """A histogram: how often up to each bound and not up to the one before, and the sum."""

    bounds: Sequence[float]
    total: float = 0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Put a value into its bucket."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Buckets:
        """As it is now."""
        return Buckets(self.bounds, self.total, list(self.counts))


@dataclass(frozen=True, slots=True)
class Totals:
    """All events so far, as one moment saw them. Series that were never counted are 0."""

    reads: Mapping[tuple[str, ...], int]
    """By `seed_kind` and `outcome`."""
    depth: Buckets
    seconds: Mapping[str, Buckets]
    """By `outcome`."""
    past_bound: int
    guarded: Mapping[tuple[str, ...], int]
    """By `outcome` and `reason`."""


class EventTable:
    """A hook that counts events; `totals` tells how many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = {}
        self._reads: dict[tuple[str, ...], int] = dict.fromkeys(
            product(names.SEED_KINDS, names.OUTCOMES), 0
        )
        self._depth = Buckets(names.DEPTHS)
        self._seconds = {outcome: Buckets(names.SECONDS_BOUNDS) for outcome in names.OUTCOMES[1:]}
        self._past_bound = 0
        self._guarded: dict[tuple[str, ...], int] = {}

    def __call__(self, event: HistoryEvent | GuardEvent) -> None:
        """Count one event."""
        if isinstance(event, GuardEvent):
            self._guard(event)
            return
        key = event.seed_kind, event.outcome, event.replay_depth
        with self._lock:
            try:
                self._counts[key] += 1
            except KeyError:
                self._first(key)
        if event.outcome != "hit":
            self._asked(event)

    def totals(self) -> Totals:
        """What was counted until now."""
        with self._lock:
            self._fold()
            return Totals(
                dict(self._reads),
                self._depth.copy(),
                {outcome: buckets.copy() for outcome, buckets in self._seconds.items()},
                self._past_bound,
                dict(self._guarded),
            )

    def _first(self, key: tuple[str, str, int]) -> None:
        if len(self._counts) >= _UNFOLDED:
            self._fold()
        self._counts[key] = 1

    def _fold(self) -> None:
        for (seed_kind, outcome, depth), times in self._counts.items():
            self._reads[seed_kind, outcome] += times
            self._depth.add(depth, times)
        self._counts.clear()

    def _asked(self, event: HistoryEvent) -> None:
        with self._lock:
            self._seconds[event.outcome].add(event.seconds)
            self._past_bound += event.past_bound

    def _guard(self, event: GuardEvent) -> None:
        key = event.outcome, event.reason
        with self._lock:
            self._guarded[key] = self._guarded.get(key, 0) + 1
