"""What happened between two looks at a service's metrics.

A running service exports the metrics of `deerflow_saver.instrumentation`; another process
reads them as Prometheus does. Counters begin anew when a service restarts, so what a series
counted since is all of it where it is less than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deerflow_saver.instrumentation import _vocabulary as names

__all__ = ["NoMetricsError", "Rates", "Sample", "rates", "sample_of"]

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name and its labels, sorted."""

_READS = f"{names.READS.name}_total"
_GUARDED = f"{names.GUARDED.name}_total"
_EVICTIONS = "deerflow_saver_cache_evictions_total"
_SHARED = "deerflow_saver_cache_shared_total"
_OUTAGES = "deerflow_saver_cache_outages_total"
_BYTES = "deerflow_saver_cache_bytes"
_ENTRIES = "deerflow_saver_cache_entries"


class NoMetricsError(Exception):
    """What answered exports none of this package's metrics, or no metrics at all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All series of this package at one moment; `at` is in seconds of any clock."""

    at: float
    series: Mapping[Series, float]

    def total(self, name: str) -> float | None:
        """The sum over a name's series; None if there is none."""
        found = [value for (named, _), value in self.series.items() if named == name]
        return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened in `seconds`: counts, and how much the caches hold at the end.

    Reads count once for each channel, as events do. `bytes` and `entries` are None where no
    saver is watched.
    """

    seconds: float
    hits: int
    composed: int
    walks: int
    bypasses: int
    refused: int
    observed: int
    evictions: int
    shared: int
    outages: int
    bytes: int | None
    bytes_grown: int | None
    entries: int | None
    restarted: bool

    @property
    def reads(self) -> int:
        """All of them."""
        return self.hits + self.composed + self.walks + self.bypasses

    @property
    def hit_ratio(self) -> float | None:
        """Hits of all reads; None without reads."""
        return self.hits / self.reads if self.reads else None

    def per_second(self, count: int) -> float:
        """A count as a rate."""
        return count / self.seconds if self.seconds > 0 else 0.0

    def as_data(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**asdict(self), "reads": self.reads, "hit_ratio": self.hit_ratio}


def sample_of(text: str, at: float) -> Sample:
    """The metrics of this package in a Prometheus exposition.

    Raises:
        NoMetricsError: there are none in it.

    """
    from prometheus_client.parser import text_string_to_metric_families

    series: dict[Series, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(("delta_channel_", "deerflow_saver_")):
                    series[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise NoMetricsError(f"it is not Prometheus' text format: {error}") from error
    if not series:
        raise NoMetricsError("none of deerflow-saver's metrics are in it")
    return Sample(at, series)


def rates(before: Sample, after: Sample) -> Rates:
    """What happened between two samples."""
    grown = {key: _grown(before.series.get(key), value) for key, value in after.series.items()}

    def counted(name: str, **labels: str) -> int:
        wanted = labels.items()
        return int(
            sum(by for (named, of), by in grown.items() if named == name and wanted <= set(of))
        )

    now, then = after.total(_BYTES), before.total(_BYTES)
    return Rates(
        seconds=after.at - before.at,
        hits=counted(_READS, outcome="hit"),
        composed=counted(_READS, outcome="composed"),
        walks=counted(_READS, outcome="walk"),
        bypasses=counted(_READS, outcome="bypass"),
        refused=counted(_GUARDED, outcome="refused"),
        observed=counted(_GUARDED, outcome="observed") + counted(_GUARDED, outcome="allowed"),
        evictions=counted(_EVICTIONS),
        shared=counted(_SHARED),
        outages=counted(_OUTAGES),
        bytes=_whole(now),
        bytes_grown=None if now is None else int(now - (then or 0.0)),
        entries=_whole(after.total(_ENTRIES)),
        restarted=any(
            value < before.series.get(key, 0.0)
            for key, value in after.series.items()
            if key[0].endswith("_total")
        ),
    )


def _grown(before: float | None, now: float) -> float:
    """How much a counter counted; one that is new, or began anew, counted all it has."""
    return now - before if before is not None and before <= now else now


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
