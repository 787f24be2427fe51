"""Events and cache sizes as Prometheus metrics (extra `prometheus`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, product
from typing import TYPE_CHECKING

from deerflow_saver.events import GuardEvent, HistoryEvent, OnEvent
from deerflow_saver.instrumentation import _vocabulary as names
from deerflow_saver.instrumentation._table import Buckets, EventTable, Totals
from deerflow_saver.instrumentation._watched import HasCacheInfo, Watched

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["PrometheusMetrics"]


class PrometheusMetrics:
    """A hook that counts events for a Prometheus registry. Make one for each registry.

    Args:
        registry: the client's own by default, which its servers and apps expose.

    Raises:
        ModuleNotFoundError: the extra `prometheus` is not installed.
        ValueError: the registry has these metrics already.

    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import REGISTRY, values
        except ModuleNotFoundError as error:
            msg = 'PrometheusMetrics needs its client: pip install "deerflow-saver[prometheus]"'
            raise ModuleNotFoundError(msg, name=error.name) from error
        into = registry or REGISTRY
        self._count: OnEvent
        if values.ValueClass is values.MutexValue:
            self._count = table = EventTable()
            into.register(_Events(table))
        else:
            self._count = _ClientMetrics(into)
        self._watched = Watched()
        into.register(_Caches(self._watched))

    def __call__(self, event: HistoryEvent | GuardEvent) -> None:
        """Count one event."""
        self._count(event)

    def watch(self, saver: HasCacheInfo, name: str = "default") -> None:
        """Export what `saver.cache_info()` tells, labelled `saver=name`, at every scrape.

        Raises:
            InvalidConfigError: it has no `cache_info()`.

        """
        self._watched.add(saver, name)


class _Events:
    """A collector of what a table counted, as `prometheus_client` asks for them."""

    def __init__(self, table: EventTable) -> None:
        self._table = table

    def collect(self) -> Iterator[Metric]:
        found = self._table.totals()
        yield from _counters(found)
        yield from _histograms(found)

    describe = collect
    """A registry refuses these names to anybody else."""


def _counters(found: Totals) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    counted = (
        (names.READS, found.reads),
        (names.PAST_BOUND, {(): found.past_bound}),
        (names.GUARDED, found.guarded),
    )
    for metric, series in counted:
        family = CounterMetricFamily(metric.name, metric.text, labels=metric.labels)
        for labels, count in series.items():
            family.add_metric(labels, count)
        yield family


def _histograms(found: Totals) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    measured = (
        (names.DEPTH, {(): found.depth}),
        (names.SECONDS, {(outcome,): buckets for outcome, buckets in found.seconds.items()}),
    )
    for metric, series in measured:
        family = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
        for labels, buckets in series.items():
            family.add_metric(labels, _cumulative(buckets), buckets.total)
        yield family


def _cumulative(buckets: Buckets) -> list[tuple[str, float]]:
    from prometheus_client.utils import floatToGoString

    bounds = (*map(floatToGoString, buckets.bounds), "+Inf")
    return list(zip(bounds, accumulate(buckets.counts), strict=True))


class _ClientMetrics:
    """A hook that counts with the client's own metrics, whose values several processes share.

    That is its multiprocess mode, in which what a collector tells is not shown.
    """

    def __init__(self, into: CollectorRegistry) -> None:
        from prometheus_client import Counter, Histogram

        reads, depth, seconds = names.READS, names.DEPTH, names.SECONDS
        past, guarded = names.PAST_BOUND, names.GUARDED
        counter = Counter(reads.name, reads.text, reads.labels, registry=into)
        # Looking a child up takes longer than counting
        self._reads = {
            pair: counter.labels(*pair) for pair in product(names.SEED_KINDS, names.OUTCOMES)
        }
        self._depth = Histogram(depth.name, depth.text, registry=into, buckets=names.DEPTHS)
        self._past_bound = Counter(past.name, past.text, registry=into)
        bounds = names.SECONDS_BOUNDS
        timed = Histogram(seconds.name, seconds.text, seconds.labels, registry=into, buckets=bounds)
        self._seconds = {outcome: timed.labels(outcome) for outcome in names.OUTCOMES[1:]}
        self._guarded = Counter(guarded.name, guarded.text, guarded.labels, registry=into)

    def __call__(self, event: HistoryEvent | GuardEvent) -> None:
        """Count one event."""
        if isinstance(event, GuardEvent):
            self._guarded.labels(event.outcome, event.reason).inc()
            return
        self._reads[event.seed_kind, event.outcome].inc()
        self._depth.observe(event.replay_depth)
        if event.past_bound:
            self._past_bound.inc()
        if event.outcome != "hit":
            self._seconds[event.outcome].observe(event.seconds)


class _Caches:
    """A collector, as `prometheus_client` asks for them."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        infos = list(self._watched.infos())
        for metric in names.CACHE:
            family = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
            samples = family(metric.name, metric.text, labels=["saver"])
            for name, info in infos:
                samples.add_metric([name], metric.value(info))
            yield samples
