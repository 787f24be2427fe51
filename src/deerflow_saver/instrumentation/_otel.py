"""Events and cache sizes as OpenTelemetry metrics (extra `otel`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from deerflow_saver.events import GuardEvent, HistoryEvent
from deerflow_saver.instrumentation import _vocabulary as names
from deerflow_saver.instrumentation._watched import HasCacheInfo, Watched

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation

__all__ = ["OpenTelemetryMetrics"]


class OpenTelemetryMetrics:
    """A hook that counts events with an OpenTelemetry meter. Make one for each provider.

    Args:
        meter_provider: the global one by default, which may be set later.

    Raises:
        ModuleNotFoundError: the extra `otel` is not installed.

    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry.metrics import get_meter
        except ModuleNotFoundError as error:
            msg = 'OpenTelemetryMetrics needs its API: pip install "deerflow-saver[otel]"'
            raise ModuleNotFoundError(msg, name=error.name) from error
        meter = get_meter("deerflow_saver", meter_provider=meter_provider)
        self._reads = meter.create_counter(names.READS.name, description=names.READS.text)
        self._past_bound = meter.create_counter(
            names.PAST_BOUND.name, description=names.PAST_BOUND.text
        )
        self._guarded = meter.create_counter(names.GUARDED.name, description=names.GUARDED.text)
        self._depth = _histogram(meter, names.DEPTH, names.DEPTHS)
        self._seconds = _histogram(meter, names.SECONDS, names.SECONDS_BOUNDS, unit="s")
        self._watched = Watched()
        for metric in names.CACHE:
            gauge = metric.kind == "gauge"
            create = meter.create_observable_gauge if gauge else meter.create_observable_counter
            create(metric.name, [_observer(self._watched, metric)], description=metric.text)

    def __call__(self, event: HistoryEvent | GuardEvent) -> None:
        """Count one event."""
        if isinstance(event, GuardEvent):
            self._guarded.add(1, {"outcome": event.outcome, "reason": event.reason})
            return
        self._reads.add(1, {"seed_kind": event.seed_kind, "outcome": event.outcome})
        self._depth.record(event.replay_depth)
        if event.past_bound:
            self._past_bound.add(1)
        if event.outcome != "hit":
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


def _observer(
    watched: Watched, metric: names.CacheMetric
) -> Callable[[CallbackOptions], list[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(_options: CallbackOptions) -> list[Observation]:
        return [Observation(metric.value(info), {"saver": name}) for name, info in watched.infos()]

    return observe
