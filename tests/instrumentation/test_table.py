"""The table behind the adapters: nothing that is counted is lost, whatever it is counted by."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deerflow_saver.events import HistoryEvent
from deerflow_saver.instrumentation._prometheus import PrometheusMetrics, _ClientMetrics
from deerflow_saver.instrumentation._table import EventTable
from instrumentation.adapters import HIT, PAST, REFUSAL, WALK


def test_any_number_of_depths_is_counted() -> None:
    table = EventTable()
    for depth in range(2000):
        table(replace(HIT, replay_depth=depth))
        table(replace(WALK, replay_depth=depth, seconds=1.0))
    totals = table.totals()
    assert totals.reads["snapshot", "hit"] == totals.reads["root", "walk"] == 2000
    assert sum(totals.reads.values()) == 4000
    assert sum(totals.depth.counts) == 4000
    assert totals.depth.counts[:4] == [2, 2, 2, 6]  # up to 0, 1, 2 and 5
    assert totals.depth.total == 2 * sum(range(2000))
    assert totals.seconds["walk"].total == 2000
    assert len(table._counts) == 0


def test_memory_does_not_grow_with_depths() -> None:
    table = EventTable()
    for depth in range(10_000):
        table(replace(HIT, replay_depth=depth))
        assert len(table._counts) <= 512


def test_threads_that_count_at_once_lose_nothing() -> None:
    table = EventTable()

    def count(number: int) -> None:
        for depth in range(3000):
            table(replace(HIT, replay_depth=(number * depth) % 1000))
            if not depth % 500:
                table(PAST)
                table.totals()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    totals = table.totals()
    assert totals.reads["snapshot", "hit"] == 12_000
    assert totals.past_bound == totals.reads["missing", "walk"] == 24


def test_what_was_told_does_not_change_afterwards() -> None:
    table = EventTable()
    table(WALK)
    before = table.totals()
    told = asdict(before)
    for event in (WALK, HIT, REFUSAL):
        table(event)
    assert asdict(before) == told


def test_the_page_is_the_one_the_clients_own_metrics_would_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prometheus_client.metrics._use_created", False)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    hooks = PrometheusMetrics(ours), _ClientMetrics(theirs)
    for event in (HIT, HIT, WALK, PAST, REFUSAL):
        for hook in hooks:
            hook(event)
    shown = generate_latest(ours).decode().splitlines()
    expected = generate_latest(theirs).decode().splitlines()
    assert [line for line in shown if "deerflow_saver_cache" not in line] == sorted(
        expected, key=shown.index
    )


def test_an_event_is_made_and_compared_as_any_frozen_dataclass() -> None:
    event = HistoryEvent("hit", "messages", seed_kind="root", replay_depth=1, calls=0, seconds=0.5)
    assert event == replace(event, past_bound=False) != replace(event, past_bound=True)
    assert hash(event) == hash(replace(event))
    assert asdict(event)["replay_depth"] == 1
    with pytest.raises(AttributeError):
        event.calls = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        HistoryEvent("hit", "messages", "root", 1, 0)  # type: ignore[call-arg]
