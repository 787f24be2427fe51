"""Events and cache sizes as OpenTelemetry metrics (extra `otel`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deerflow_saver.events import GuardEvent, HistoryEvent
from deerflow_saver.instrumentation import _vocabulary as names
from deerflow_saver.instrumentation._table import EventTable, Totals
from deerflow_saver.instrumentation._watched import HasCacheInfo, Watched

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation

__all__ = ["OpenTelemetryMetrics"]


class OpenTelemetryMetrics:
    """A hook that counts events for an OpenTelemetry meter. Make one for each provider.

    Args:
        meter_provider: the global one by default, which may be set later.
        histograms: fill those of depths and times. The SDK puts every value into its bucket at
            once, which is most of what this hook costs a read; the counters are read from a
            table when metrics are collected.

    Raises:
        ModuleNotFoundError: the extra `otel` is not installed.

    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, histograms: bool = True
    ) -> None:
        try:
            from opentelemetry.metrics import get_meter
        except ModuleNotFoundError as error:
            msg = 'OpenTelemetryMetrics needs its API: pip install "deerflow-saver[otel]"'
            raise ModuleNotFoundError(msg, name=error.name) from error
        meter = get_meter("deerflow_saver", meter_provider=meter_provider)
        self._table = EventTable()
        for metric, series in _COUNTERS:
            observers = [_counted(self._table, metric, series)]
            meter.create_observable_counter(metric.name, observers, description=metric.text)
        self._depth = self._seconds = None
        if histograms:
            self._depth = _histogram(meter, names.DEPTH, names.DEPTHS)
            self._seconds = _histogram(meter, names.SECONDS, names.SECONDS_BOUNDS, unit="s")
        self._watched = Watched()
        for told in names.CACHE:
            gauge = told.kind == "gauge"
            create = meter.create_observable_gauge if gauge else meter.create_observable_counter
            create(told.name, [_observer(self._watched, told)], description=told.text)

    def __call__(self, event: HistoryEvent | GuardEvent) -> None:
        """Count one event."""
        self._table(event)
        if self._depth is None or isinstance(event, GuardEvent):
            return
        self._depth.record(event.replay_depth)
        if self._seconds is not None and event.outcome != "hit":
            self._seconds.record(event.seconds, {"outcome": event.outcome})

    def watch(self, saver: HasCacheInfo, name: str = "default") -> None:
        """Export what `saver.cache_info()` tells, with the attribute `saver=name`.

        Raises:
            InvalidConfigError: it has no `cache_info()`.

        """
        self._watched.add(saver, name)


def _histogram(
    meter: Meter, metric: names.Metric, bounds: Iterable[float], unit: str = ""
) -> Histogram:
    """A histogram with bounds of its own, which APIs before 1.30 leave to the provider's views."""
    advice: dict[str, Any] = {"explicit_bucket_boundaries_advisory": list(bounds)}
    if advice.keys() - inspect.signature(meter.create_histogram).parameters.keys():
        advice = {}
    return meter.create_histogram(metric.name, unit=unit, description=metric.text, **advice)


Series = Callable[[Totals], Mapping[tuple[str, ...], int]]
"""Picks one metric out of the table: values by label values."""

_COUNTERS: tuple[tuple[names.Metric, Series], ...] = (
    (names.READS, lambda found: found.reads),
    (names.PAST_BOUND, lambda found: {(): found.past_bound}),
    (names.GUARDED, lambda found: found.guarded),
)


def _counted(
    table: EventTable, metric: names.Metric, series: Series
) -> Callable[[CallbackOptions], list[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(_options: CallbackOptions) -> list[Observation]:
        return [
            Observation(count, dict(zip(metric.labels, labels, strict=True)))
            for labels, count in series(table.totals()).items()
            if count  # a counter that was never added to has no series
        ]

    return observe


def _observer(
    watched: Watched, metric: names.CacheMetric
) -> Callable[[CallbackOptions], list[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(_options: CallbackOptions) -> list[Observation]:
        return [Observation(metric.value(info), {"saver": name}) for name, info in watched.infos()]

    return observe
