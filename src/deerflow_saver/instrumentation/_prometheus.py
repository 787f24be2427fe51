"""Events and cache sizes as Prometheus metrics (extra `prometheus`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from deerflow_saver.events import GuardEvent, HistoryEvent
from deerflow_saver.instrumentation import _vocabulary as names
from deerflow_saver.instrumentation._watched import HasCacheInfo, Watched

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["PrometheusMetrics"]


class PrometheusMetrics:
    """A hook that counts events in a Prometheus registry. Make one for each registry.

    Args:
        registry: the client's own by default, which its servers and apps expose.

    Raises:
        ModuleNotFoundError: the extra `prometheus` is not installed.
        ValueError: the registry has these metrics already.

    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import REGISTRY, Counter, Histogram
        except ModuleNotFoundError as error:
            msg = 'PrometheusMetrics needs its client: pip install "deerflow-saver[prometheus]"'
            raise ModuleNotFoundError(msg, name=error.name) from error
        into = registry or REGISTRY
        reads, seconds, guarded = names.READS, names.SECONDS, names.GUARDED
        counter = Counter(reads.name, reads.text, reads.labels, registry=into)
        # Looking a child up takes longer than counting
        self._reads = {
            pair: counter.labels(*pair) for pair in product(names.SEED_KINDS, names.OUTCOMES)
        }
        self._depth = Histogram(
            names.DEPTH.name, names.DEPTH.text, registry=into, buckets=names.DEPTHS
        )
        self._past_bound = Counter(names.PAST_BOUND.name, names.PAST_BOUND.text, registry=into)
        timed = Histogram(
            seconds.name,
            seconds.text,
            seconds.labels,
            registry=into,
            buckets=names.SECONDS_BOUNDS,
        )
        self._seconds = {outcome: timed.labels(outcome) for outcome in names.OUTCOMES[1:]}
        self._guarded = Counter(guarded.name, guarded.text, guarded.labels, registry=into)
        self._watched = Watched()
        into.register(_Caches(self._watched))

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

    def watch(self, saver: HasCacheInfo, name: str = "default") -> None:
        """Export what `saver.cache_info()` tells, labelled `saver=name`, at every scrape.

        Raises:
            InvalidConfigError: it has no `cache_info()`.

        """
        self._watched.add(saver, name)


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
