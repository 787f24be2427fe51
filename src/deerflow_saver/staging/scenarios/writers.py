"""Two writers on one thread, and a run that goes on saving after it was cancelled."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from deerflow_saver.staging.scenarios.graphs import both, chain, loop_free
from deerflow_saver.staging.scenarios.scenario import ASYNC, Finding, Scenario, compared, repeated
from deerflow_saver.staging.scenarios.stage import Stage

__all__ = ["SCENARIOS"]

_SAVED = 0.1
"""Seconds in which the saves of a step that has ended are done."""


def _second_writer(stage: Stage, durability: str, *, updates: bool) -> Finding:
    runs = itertools.count(1)
    graph: Any = None
    thread = stage.thread()

    def second() -> None:
        if updates:
            stage.update(graph, thread, both("U"), "n")
        else:
            stage.run(graph, both("B"), thread, durability)

    def node(state: Any) -> Any:
        number = next(runs)
        if number == 2:  # noqa: PLR2004 - the second run is the one that is disturbed
            time.sleep(_SAVED)
            stage.beside(second)
        return both(f"out{number}-{state['plain'][-1]}")

    graph = stage.compile(chain(n=node))
    for given in ("in0", "A"):
        stage.run(graph, both(given), thread, durability)
    return compared(stage.every(graph, thread))


def _cancelled(stage: Stage) -> Finding:
    """Cancel a run in the middle of its last save; update the state when it says it has ended."""
    graph, thread = stage.compile(loop_free()), stage.thread()
    stage.run(graph, both("in1"), thread)

    async def cancel() -> None:
        saving, updated = asyncio.Event(), asyncio.Event()
        with stage.replaced("put", lambda store: _held_up(store, saving, updated)):
            run = asyncio.create_task(graph.ainvoke(both("in2"), thread, durability="exit"))
            await saving.wait()
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run
        await graph.aupdate_state(thread, both("U"), "n")
        updated.set()
        await asyncio.sleep(_SAVED)

    stage.wait(cancel())
    return compared(stage.every(graph, thread))


def _held_up(store: Any, saving: asyncio.Event, updated: asyncio.Event) -> Any:
    """A save that goes on after the update; where the run waits for it, it gives way."""

    async def aput(*args: Any) -> Any:
        saving.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(updated.wait(), 10 * _SAVED)
        return await store(*args)

    return aput


def _by_durability() -> Iterator[Scenario]:
    for durability in ("sync", "async", "exit"):
        for name, updates in (("run", False), ("update_state", True)):
            yield Scenario(
                f"C1 second writer ({name}) on a thread whose run is in flight mixes the branches "
                f"[{durability}]",
                "two-writers",
                repeated(partial(_second_writer, durability=durability, updates=updates), 3),
            )


SCENARIOS = (
    *_by_durability(),
    Scenario(
        "C1c awaiting a cancelled run returns while its last checkpoint is still being written; "
        "update_state then forks",
        "cancelled-run-saves",
        repeated(_cancelled, 3),
        ASYNC,
    ),
)
