"""Saves that fail, or are never made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from langgraph.cache.memory import InMemoryCache
from langgraph.types import CachePolicy

from deerflow_saver.staging.scenarios.graphs import both, chain, fan, loop_free, writing
from deerflow_saver.staging.scenarios.scenario import (
    BLOCKING,
    Finding,
    Scenario,
    compared,
    repeated,
)
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]


_PATIENCE = 1.0
"""Seconds after which a save that has not come waits for what waits for it."""


class _DiskFullError(Exception):
    pass


def _failing(stage: Stage, fails: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Makes a `put_writes` that fails for some writes."""

    def make(store: Any) -> Any:
        def put_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            if fails(writes):
                message = "disk full"
                raise _DiskFullError(message)
            store(config, writes, task_id, task_path)

        async def aput_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            if fails(writes):
                message = "disk full"
                raise _DiskFullError(message)
            await store(config, writes, task_id, task_path)

        return aput_writes if stage.face else put_writes

    return make


def _of_the_node(writes: Any) -> bool:
    return ("delta", ["out2"]) in [tuple(write) for write in writes]


def _failed_writes(stage: Stage, durability: str) -> Finding:
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.run(graph, both("in1"), thread, durability)
    with stage.replaced("put_writes", _failing(stage, _of_the_node)), suppress(_DiskFullError):
        stage.run(graph, both("in2"), thread, durability)
    return compared(stage.every(graph, thread))


def _cached_node(stage: Stage) -> Finding:
    builder = chain(c=writing("c"))
    builder.nodes["c"] = _with_cache(builder.nodes["c"])
    graph, thread = stage.compile(builder, cache=InMemoryCache()), stage.thread()
    for given in ("in1", "in2"):
        stage.run(graph, both(given), thread)
    return compared({"reload": stage.values(graph, thread)})


def _with_cache(node: Any) -> Any:
    return replace(node, cache_policy=CachePolicy(key_func=lambda _state: "always"))


def _torn_update(stage: Stage) -> Finding:
    """An update that ends between its writes and its checkpoint; then the run goes on."""
    parallel = fan(writing("a"), None, b=writing("b"), c=writing("c"))
    graph = stage.compile(parallel, interrupt_before=["b", "c"])
    thread = stage.thread()
    stage.run(graph, both("in"), thread)
    with stage.replaced("put", _torn(stage)), suppress(_DiskFullError):
        stage.update(graph, thread, both("U"), "c")
    stage.run(graph, None, thread)
    return compared({"resumed": stage.values(graph, thread)})


def _torn(stage: Stage) -> Callable[[Any], Any]:
    def make(_store: Any) -> Any:
        def put(*_: Any) -> None:
            raise _DiskFullError

        async def aput(*_: Any) -> None:
            raise _DiskFullError

        return aput if stage.face else put

    return make


def _save_behind(stage: Stage) -> Finding:
    """Writes that wait, in one of a run's two workers, for a save submitted before them.

    Both workers are held until the third step, when that save and those writes are queued.
    """
    queued, stored, came = threading.Event(), threading.Event(), list[bool]()

    def saving(store: Any) -> Any:
        def put(config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
            if metadata["step"] == -1:
                queued.wait()
            config = store(config, checkpoint, metadata, versions)
            if metadata["step"] == 0:
                stored.set()
            return config

        return put

    def writing_late(store: Any) -> Any:
        def put_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            if ("delta", ["in"]) in writes:
                queued.wait()
            elif ("delta", ["a"]) in writes:
                came.append(stored.wait(_PATIENCE))
            store(config, writes, task_id, task_path)

        return put_writes

    graph = stage.compile(chain(a=writing("a"), b=lambda _state: queued.set()))
    config = {**stage.thread(), "max_concurrency": 2}
    with stage.replaced("put", saving), stage.replaced("put_writes", writing_late):
        stage.run(graph, both("in"), config)
    return Finding(not came[0], f"the save went ahead of the writes: {came[0]}")


def _by_durability() -> Iterator[Scenario]:
    for durability in ("sync", "async"):
        yield Scenario(
            f"8234 checkpoint persisted although its delta writes failed [{durability}]",
            "failed-writes-kept-checkpoint",
            partial(_failed_writes, durability=durability),
        )


SCENARIOS = (
    *_by_durability(),
    Scenario(
        "cache a cache hit's delta writes are not stored (lost on reload)",
        "cached-node-writes",
        _cached_node,
    ),
    Scenario(
        "20 update_state torn between its writes and its checkpoint, then resumed",
        "torn-update",
        repeated(_torn_update),
    ),
    Scenario(
        "pool a save waits for writes that are queued behind it: long runs never end",
        "saves-wait-for-ever",
        _save_behind,
        BLOCKING,
    ),
)
