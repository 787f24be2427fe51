"""`PrometheusMetrics`: what a scrape shows after reads, refusals, and with watched savers."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from prometheus_client import CollectorRegistry, generate_latest

from deerflow_saver import CachedHistorySaver, InvalidConfigError, MemoryHistoryCache
from deerflow_saver.instrumentation import PrometheusMetrics
from deerflow_saver.instrumentation._vocabulary import CACHE, OUTCOMES, SEED_KINDS
from instrumentation.adapters import HIT, PAST, REFUSAL, WALK, Sharing, served


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PrometheusMetrics:
    return PrometheusMetrics(registry)


def test_reads_are_counted_by_what_they_start_from(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    for event in (HIT, HIT, WALK, PAST):
        metrics(event)
    counted = {
        (kind, outcome): registry.get_sample_value(
            "delta_channel_read_counter_total", {"seed_kind": kind, "outcome": outcome}
        )
        for kind in SEED_KINDS
        for outcome in OUTCOMES
    }
    assert {pair: count for pair, count in counted.items() if count} == {
        ("snapshot", "hit"): 2.0,
        ("root", "walk"): 1.0,
        ("missing", "walk"): 1.0,
    }
    assert None not in counted.values()  # a rate needs a series that was 0 before


def test_depths_and_times_are_put_into_buckets(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    for event in (HIT, WALK, PAST):
        metrics(event)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("delta_channel_replay_depth_sum") == 7 + 120 + 6000
    assert [
        value("delta_channel_replay_depth_bucket", le=bound)
        for bound in ("5.0", "10.0", "200.0", "5000.0", "+Inf")
    ] == [0, 1, 2, 2, 3]
    assert value("deerflow_saver_read_seconds_sum", outcome="walk") == 0.52
    assert value("deerflow_saver_read_seconds_count", outcome="walk") == 2
    assert value("deerflow_saver_read_seconds_count", outcome="hit") is None
    assert value("delta_channel_walk_past_bound_counter_total") == 1


def test_guarded_writes_are_counted_by_reason(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    metrics(REFUSAL)
    labels = {"outcome": "refused", "reason": "fork"}
    assert registry.get_sample_value("deerflow_saver_guarded_writes_total", labels) == 1


def test_a_wrapper_that_is_served_shows_its_counters(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    saver = served(metrics)
    metrics.watch(saver)
    info = saver.cache_info()

    def cache(name: str) -> float | None:
        return registry.get_sample_value(f"deerflow_saver_cache_{name}", {"saver": "default"})

    assert (cache("bytes"), cache("max_bytes")) == (info.bytes, info.max_bytes)
    assert (cache("entries"), cache("evictions_total")) == (info.entries, info.evictions)
    assert cache("hit_ratio") == info.hit_ratio > 0
    assert cache("errors_total") == 0
    shown = generate_latest(registry).decode()
    hits = re.findall(
        r'^delta_channel_read_counter_total\{outcome="hit".* (\S+)$', shown, re.MULTILINE
    )
    assert sum(map(float, hits)) >= info.hits > 0
    refused = 'deerflow_saver_guarded_writes_total{outcome="refused",reason="fork"} '
    assert float(shown.partition(refused)[2].partition("\n")[0]) == info.refused > 0


def test_no_thread_is_a_label(registry: CollectorRegistry, metrics: PrometheusMetrics) -> None:
    metrics.watch(served(metrics))
    shown = generate_latest(registry).decode()
    assert "secret-thread" not in shown
    labels = set(re.findall(r'[{,](\w+)="', shown))
    assert labels <= {"seed_kind", "outcome", "reason", "saver", "le"}


def test_every_savers_cache_has_a_series(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    savers = {
        name: CachedHistorySaver(InMemorySaver(), MemoryHistoryCache(size))
        for name, size in (("chats", 1000), ("jobs", 2000))
    }
    for name, saver in savers.items():
        metrics.watch(saver, name)
    budget = "deerflow_saver_cache_max_bytes"
    assert registry.get_sample_value(budget, {"saver": "chats"}) == 1000
    assert registry.get_sample_value(budget, {"saver": "jobs"}) == 2000
    other: Any = CachedHistorySaver(InMemorySaver(), MemoryHistoryCache(3000))
    metrics.watch(other, "jobs")
    assert registry.get_sample_value(budget, {"saver": "jobs"}) == 3000


def test_what_a_shared_cache_counts_is_shown(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    saver = Sharing()
    metrics.watch(saver)
    for name, count in (("shared", 5), ("outages", 2)):
        found = registry.get_sample_value(
            f"deerflow_saver_cache_{name}_total", {"saver": "default"}
        )
        assert found == count


def test_a_watched_saver_is_not_kept_alive(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    saver: Any = CachedHistorySaver(InMemorySaver(), on_event=metrics)
    metrics.watch(saver)
    bytes_now = "deerflow_saver_cache_bytes", {"saver": "default"}
    assert registry.get_sample_value(*bytes_now) == 0
    del saver
    gc.collect()
    assert registry.get_sample_value(*bytes_now) is None


def test_what_has_no_cache_is_refused(metrics: PrometheusMetrics) -> None:
    with pytest.raises(InvalidConfigError, match="InMemorySaver"):
        metrics.watch(InMemorySaver())  # type: ignore[arg-type]


def test_one_registry_takes_one_of_them(registry: CollectorRegistry) -> None:
    PrometheusMetrics(registry)
    with pytest.raises(ValueError, match="delta_channel_read_counter"):
        PrometheusMetrics(registry)


def test_the_metrics_are_exposed_with_their_words(
    registry: CollectorRegistry, metrics: PrometheusMetrics
) -> None:
    shown = generate_latest(registry).decode()
    for metric in CACHE:
        suffix = "_total" if metric.kind == "counter" else ""
        assert f"# HELP {metric.name}{suffix} {metric.text}" in shown


MULTIPROCESS = """
import multiprocessing, sys
from instrumentation.adapters import HIT
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from deerflow_saver.instrumentation import PrometheusMetrics

metrics = PrometheusMetrics()

def work():
    metrics(HIT)

workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
registry = CollectorRegistry()
MultiProcessCollector(registry)
labels = {"seed_kind": "snapshot", "outcome": "hit"}
assert registry.get_sample_value("delta_channel_read_counter_total", labels) == 2
assert registry.get_sample_value("delta_channel_replay_depth_sum") == 14
"""


def test_workers_of_one_service_are_summed_in_the_clients_multiprocess_mode(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", MULTIPROCESS], check=True, env=environment)
