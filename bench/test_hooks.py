"""What a hook costs a read: `pytest bench/test_hooks.py --benchmark-only`.

The cheapest read there is, a warm hit of one channel with 20 writes, without a hook and with
each: the difference is the hook's, and the same for every longer read. It is small beside the
read, so telling one read to each hook is measured alone, too: that is what docs/metrics.md shows.
With `--benchmark-timer=time.thread_time` it is processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from pytest_benchmark.fixture import BenchmarkFixture

from deerflow_saver import CachedHistorySaver
from deerflow_saver._reads import _report
from deerflow_saver.bench.conversation import CHANNEL
from deerflow_saver.bench.face import Face
from deerflow_saver.bench.stored import StoredLine
from deerflow_saver.events import OnEvent
from deerflow_saver.history.reader import Result
from deerflow_saver.instrumentation import EventLogger, OpenTelemetryMetrics, PrometheusMetrics


def _prometheus() -> OnEvent:
    from prometheus_client import CollectorRegistry

    return PrometheusMetrics(CollectorRegistry())


def _otel() -> OnEvent:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    return OpenTelemetryMetrics(MeterProvider([InMemoryMetricReader()]))


def _otel_counters() -> OnEvent:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    provider = MeterProvider([InMemoryMetricReader()])
    return OpenTelemetryMetrics(provider, histograms=False)


HOOKS: dict[str, Callable[[], OnEvent | None]] = {
    "none": lambda: None,
    "empty": lambda: lambda _event: None,
    "log, switched off": EventLogger,
    "prometheus": _prometheus,
    "otel": _otel,
    "otel, no histograms": _otel_counters,
}


@pytest.mark.parametrize("hook", list(HOOKS))
@pytest.mark.benchmark(group="warm hit of one channel, with a hook")
def test_hook(benchmark: BenchmarkFixture, hook: str) -> None:
    """The history of a head that was read before."""
    raw: Any = InMemorySaver()
    thread: RunnableConfig = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    StoredLine(Face(), raw, thread, 1_000_000, 128).grow(20)
    saver: Any = CachedHistorySaver(raw, on_event=HOOKS[hook]())
    head = saver.get_tuple(thread).config

    def read() -> None:
        saver.get_delta_channel_history(config=head, channels=[CHANNEL])

    benchmark.pedantic(read, rounds=200, iterations=200, warmup_rounds=5)
    assert saver.cache_info().hits > 0


@pytest.mark.parametrize("hook", [name for name in HOOKS if name != "none"])
@pytest.mark.benchmark(group="telling one read to a hook")
def test_telling(benchmark: BenchmarkFixture, hook: str) -> None:
    """Timing the read, making its event and handing it over."""
    shared: Any = SimpleNamespace(on_event=HOOKS[hook]())
    result = Result({CHANNEL: {"writes": [("task", CHANNEL, None)] * 20}}, "hit", 0)
    now = time.perf_counter

    def tell() -> None:
        began = now()
        _report(shared, result, now() - began)

    benchmark.pedantic(tell, rounds=1000, iterations=200, warmup_rounds=5)
