"""What a hook costs a read: `pytest bench/test_hooks.py --benchmark-only`.

The cheapest read there is, a warm hit of one channel with 20 writes, without a hook and with
each: the difference is the hook's, and the same for every longer read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from pytest_benchmark.fixture import BenchmarkFixture

from deerflow_saver import CachedHistorySaver
from deerflow_saver.bench.conversation import CHANNEL
from deerflow_saver.bench.face import Face
from deerflow_saver.bench.stored import StoredLine
from deerflow_saver.events import OnEvent
from deerflow_saver.instrumentation import EventLogger, OpenTelemetryMetrics, PrometheusMetrics


def _prometheus() -> OnEvent:
    from prometheus_client import CollectorRegistry

    return PrometheusMetrics(CollectorRegistry())


def _otel() -> OnEvent:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    return OpenTelemetryMetrics(MeterProvider([InMemoryMetricReader()]))


HOOKS: dict[str, Callable[[], OnEvent | None]] = {
    "none": lambda: None,
    "empty": lambda: lambda _event: None,
    "log, switched off": EventLogger,
    "prometheus": _prometheus,
    "otel": _otel,
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
