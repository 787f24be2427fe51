"""What the metrics are called, whoever exports them.

The names that begin with `delta_channel_` are those of LangGraph's own platform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from deerflow_saver.events import CacheInfo, Outcome, SeedKind

__all__ = [
    "CACHE", "DEPTH", "DEPTHS", "GUARDED", "OUTCOMES", "PAST_BOUND", "READS", "SECONDS",
    "SECONDS_BOUNDS", "SEED_KINDS", "CacheMetric", "Metric",
]  # fmt: skip

SEED_KINDS: tuple[SeedKind, ...] = get_args(SeedKind)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
DEPTHS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Upper bounds of the buckets of `DEPTH`, in writes."""
SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets of `SECONDS`."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, what it says, and its labels."""

    name: str
    text: str
    labels: tuple[str, ...] = ()


READS = Metric(
    "delta_channel_read_counter",
    "Delta histories read, one per channel, by what they start from and how they were come by.",
    ("seed_kind", "outcome"),
)
DEPTH = Metric("delta_channel_replay_depth", "Writes to replay after such a read.")
PAST_BOUND = Metric(
    "delta_channel_walk_past_bound_counter",
    "Walks over more supersteps than LangGraph means to let pass without a snapshot.",
)
SECONDS = Metric(
    "deerflow_saver_read_seconds",
    "Time of reads that called the wrapped saver, once for each of their channels.",
    ("outcome",),
)
GUARDED = Metric(
    "deerflow_saver_guarded_writes",
    "Writes that would leave the line, by what became of them and why.",
    ("outcome", "reason"),
)


@dataclass(frozen=True, slots=True)
class CacheMetric:
    """Something that `cache_info()` tells, read when metrics are collected."""

    name: str
    text: str
    kind: Literal["gauge", "counter"]
    value: Callable[[CacheInfo], float]


CACHE = (
    CacheMetric("deerflow_saver_cache_bytes", "Bytes held.", "gauge", lambda info: info.bytes),
    CacheMetric(
        "deerflow_saver_cache_max_bytes", "The budget.", "gauge", lambda info: info.max_bytes
    ),
    CacheMetric(
        "deerflow_saver_cache_entries",
        "Histories of one thread and namespace that are held.",
        "gauge",
        lambda info: info.entries,
    ),
    CacheMetric(
        "deerflow_saver_cache_hit_ratio",
        "Share of all reads since the start that called nobody.",
        "gauge",
        lambda info: info.hit_ratio,
    ),
    CacheMetric(
        "deerflow_saver_cache_evictions",
        "Entries dropped for want of room.",
        "counter",
        lambda info: info.evictions,
    ),
    CacheMetric(
        "deerflow_saver_cache_shared",
        "Reads in which records of other workers took part.",
        "counter",
        lambda info: info.shared,
    ),
    CacheMetric(
        "deerflow_saver_cache_outages",
        "Times that the store of a shared cache stopped answering.",
        "counter",
        lambda info: info.outages,
    ),
    CacheMetric(
        "deerflow_saver_cache_errors",
        "Failures inside the cache; the wrapped saver answered.",
        "counter",
        lambda info: info.errors,
    ),
)
"""Labelled with `saver`, the name given to `watch`."""
