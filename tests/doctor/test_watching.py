"""What happened between two expositions: pure arithmetic over their series."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deerflow_saver.doctor.watching import NoMetricsError, Sample, rates, sample_of
from deerflow_saver.instrumentation import PrometheusMetrics
from instrumentation.adapters import HIT, REFUSAL, WALK, served


def exposition(*, hits: float = 0, walks: float = 0, refused: float = 0, size: float = 0) -> str:
    reads = "delta_channel_read_counter_total"
    return f"""
# TYPE {reads} counter
{reads}{{outcome="hit",seed_kind="snapshot"}} {hits}
{reads}{{outcome="walk",seed_kind="root"}} {walks}
# TYPE deerflow_saver_guarded_writes_total counter
deerflow_saver_guarded_writes_total{{outcome="refused",reason="fork"}} {refused}
# TYPE deerflow_saver_cache_bytes gauge
deerflow_saver_cache_bytes{{saver="default"}} {size}
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{{generation="0"}} 17.0
"""


def test_counts_are_what_was_added_and_rates_are_by_second() -> None:
    before = sample_of(exposition(hits=10, walks=5, size=1000), at=100.0)
    after = sample_of(exposition(hits=40, walks=15, refused=2, size=600), at=102.0)
    found = rates(before, after)
    assert (found.hits, found.walks, found.refused, found.reads) == (30, 10, 2, 40)
    assert found.hit_ratio == 0.75
    assert found.per_second(found.hits) == 15.0
    assert (found.bytes, found.bytes_grown) == (600, -400)
    assert not found.restarted


def test_what_a_shared_cache_counted_is_among_it() -> None:
    def look(shared: int, outages: int, at: float) -> Sample:
        counted = (("shared", shared), ("outages", outages))
        return Sample(
            at, {(f"deerflow_saver_cache_{name}_total", ()): value for name, value in counted}
        )

    found = rates(look(10, 1, 0.0), look(25, 3, 2.0))
    assert (found.shared, found.outages) == (15, 2)


def test_a_service_that_began_anew_counted_all_it_has() -> None:
    before = sample_of(exposition(hits=1000, walks=3), at=0.0)
    found = rates(before, sample_of(exposition(hits=7, walks=3), at=1.0))
    assert (found.hits, found.walks) == (7, 0)
    assert found.restarted


def test_a_smaller_cache_is_no_restart() -> None:
    before = sample_of(exposition(size=1000), at=0.0)
    assert not rates(before, sample_of(exposition(size=10), at=1.0)).restarted


def test_a_series_that_is_new_counted_from_nothing() -> None:
    only_reads = exposition().replace("deerflow_saver_guarded", "other_guarded")
    found = rates(sample_of(only_reads, 0.0), sample_of(exposition(refused=3), 1.0))
    assert found.refused == 3


def test_nothing_read_has_no_ratio_and_no_watched_saver_no_bytes() -> None:
    without = exposition().replace("deerflow_saver_cache_bytes", "other_bytes")
    found = rates(sample_of(without, 0.0), sample_of(without, 1.0))
    assert (found.hit_ratio, found.bytes, found.bytes_grown, found.entries) == (None,) * 4


def test_two_samples_of_one_moment_have_no_rate() -> None:
    sample = sample_of(exposition(hits=1), at=1.0)
    found = rates(Sample(1.0, {}), sample)
    assert found.hits == 1
    assert found.per_second(found.hits) == 0.0


def test_it_reads_what_the_adapter_exports() -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    before = sample_of(generate_latest(registry).decode(), 0.0)
    saver = served(metrics)
    metrics.watch(saver)
    for event in (HIT, HIT, WALK, REFUSAL):
        metrics(event)
    after = sample_of(generate_latest(registry).decode(), 1.0)
    found, info = rates(before, after), saver.cache_info()
    assert found.hits >= info.hits + 2
    assert found.refused == info.refused + 1
    assert (found.bytes, found.entries) == (info.bytes, info.entries)
    assert found.reads == sum(
        value for (name, _), value in after.series.items() if name.endswith("read_counter_total")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "none of deerflow-saver's metrics"),
        ("# TYPE up gauge\nup 1\n", "none of deerflow-saver's metrics"),
        ("<!doctype html><p>Not Found</p>", "text format"),
        ('{"status": "ok"}', "text format"),
    ],
)
def test_what_is_no_exposition_of_ours_is_said_to_be_none(text: str, words: str) -> None:
    with pytest.raises(NoMetricsError, match=words):
        sample_of(text, 0.0)
