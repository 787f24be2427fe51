"""`OpenTelemetryMetrics`: what a reader of the SDK collects."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from deerflow_saver.instrumentation import OpenTelemetryMetrics
from deerflow_saver.instrumentation._vocabulary import DEPTHS, SECONDS_BOUNDS
from instrumentation.adapters import HIT, PAST, REFUSAL, WALK, Sharing, served


class Collected:
    """A provider, and what its instruments show by name."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def __call__(self) -> dict[str, Any]:
        data: Any = self.reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        return {tuple(sorted(p.attributes.items())): p for p in self()[name].data.data_points}


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def metrics(collected: Collected) -> OpenTelemetryMetrics:
    return OpenTelemetryMetrics(collected.provider)


def test_events_are_counted(collected: Collected, metrics: OpenTelemetryMetrics) -> None:
    for event in (HIT, HIT, WALK, PAST, REFUSAL):
        metrics(event)
    reads = collected.points("delta_channel_read_counter")
    assert {attributes: point.value for attributes, point in reads.items()} == {
        (("outcome", "hit"), ("seed_kind", "snapshot")): 2,
        (("outcome", "walk"), ("seed_kind", "root")): 1,
        (("outcome", "walk"), ("seed_kind", "missing")): 1,
    }
    refused = collected.points("deerflow_saver_guarded_writes")
    assert refused[("outcome", "refused"), ("reason", "fork")].value == 1
    assert collected.points("delta_channel_walk_past_bound_counter")[()].value == 1


def test_histograms_have_the_bounds_of_their_units(
    collected: Collected, metrics: OpenTelemetryMetrics
) -> None:
    for event in (HIT, WALK):
        metrics(event)
    (depth,) = collected.points("delta_channel_replay_depth").values()
    assert (depth.count, depth.sum, depth.explicit_bounds) == (2, 127, DEPTHS)
    seconds = collected.points("deerflow_saver_read_seconds")
    assert list(seconds) == [(("outcome", "walk"),)]
    assert seconds[(("outcome", "walk"),)].explicit_bounds == SECONDS_BOUNDS
    assert collected()["deerflow_saver_read_seconds"].unit == "s"


def test_without_histograms_the_rest_is_the_same(collected: Collected) -> None:
    metrics = OpenTelemetryMetrics(collected.provider, histograms=False)
    for event in (HIT, WALK, PAST, REFUSAL):
        metrics(event)
    assert set(collected()) == {
        "delta_channel_read_counter",
        "delta_channel_walk_past_bound_counter",
        "deerflow_saver_guarded_writes",
    }
    assert sum(p.value for p in collected.points("delta_channel_read_counter").values()) == 3


def test_a_wrapper_that_is_served_shows_its_cache(
    collected: Collected, metrics: OpenTelemetryMetrics
) -> None:
    saver = served(metrics)
    metrics.watch(saver, "main")
    info = saver.cache_info()
    key = (("saver", "main"),)
    for name, value in (("bytes", info.bytes), ("entries", info.entries), ("evictions", 0)):
        assert collected.points(f"deerflow_saver_cache_{name}")[key].value == value
    assert collected.points("deerflow_saver_cache_hit_ratio")[key].value == info.hit_ratio > 0
    hits = [
        point.value
        for attributes, point in collected.points("delta_channel_read_counter").items()
        if ("outcome", "hit") in attributes
    ]
    assert sum(hits) >= info.hits > 0


def test_what_a_shared_cache_counts_is_shown(
    collected: Collected, metrics: OpenTelemetryMetrics
) -> None:
    saver = Sharing()
    metrics.watch(saver, "main")
    for name, count in (("shared", 5), ("outages", 2)):
        points = collected.points(f"deerflow_saver_cache_{name}")
        assert points[(("saver", "main"),)].value == count


def test_no_thread_is_an_attribute(collected: Collected, metrics: OpenTelemetryMetrics) -> None:
    metrics.watch(served(metrics))
    assert "secret-thread" not in str(collected())


def test_an_api_without_bounds_leaves_them_to_the_provider(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.sdk.metrics import Meter

    with_bounds = Meter.create_histogram

    def create_histogram(self: Any, name: str, unit: str = "", description: str = "") -> Any:
        return with_bounds(self, name, unit, description)

    monkeypatch.setattr(Meter, "create_histogram", create_histogram)
    metrics = OpenTelemetryMetrics(collected.provider)
    metrics(WALK)
    (depth,) = collected.points("delta_channel_replay_depth").values()
    assert depth.sum == 120
