"""A run never ends: its saves wait for one another in LangGraph's pool.

LangGraph before 1.2.15 lets a checkpoint's save take the delta writes it has to wait for when
it begins to run, not when it is handed to the pool. By then writes of later steps may be among
them, which are queued behind it. When every worker of the pool waits like that, nothing moves
any more. A blocking run has as many workers as a thread pool has by default (CPUs and four), or
`max_concurrency`; an async run is limited by `max_concurrency` only.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
from collections.abc import Callable
from typing import Any

from deerflow_saver.fixes._fix import Defect, Finding
from deerflow_saver.fixes._sites import Site, patch, require

__all__ = ["DEFECT"]

_TURNS = 50
"""Turns of the event loop that storing writes takes: a save that waits for nothing needs one."""

_SAVE = "_checkpointer_put_after_previous"
"""`SyncPregelLoop`'s and `AsyncPregelLoop`'s method that stores a checkpoint."""


def _probe() -> Finding:
    """On a loop of its own, for the caller may be on one."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(asyncio.run, _first_stored()).result()
    evidence = f"of a checkpoint and writes that were submitted after it, the {first} came first"
    return Finding(first == "writes", evidence)


async def _first_stored() -> str:
    """What is stored first of a run that submits a checkpoint, writes and a checkpoint at once."""
    from langsmith import tracing_context

    from deerflow_saver.fixes._scenes import Saver, compiled, said, thread

    class Watched(Saver):
        async def aput(self, *args: Any) -> Any:
            stored.append("checkpoint")
            return await super().aput(*args)

        async def aput_writes(
            self, config: Any, writes: Any, task_id: str, task_path: str = ""
        ) -> None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            stored.append("writes")
            await super().aput_writes(config, writes, task_id, task_path)

    async def node(_state: Any) -> Any:
        return said("out")

    stored: list[str] = []
    graph = compiled({"node": node}, saver=Watched())
    with tracing_context(enabled=False):
        await graph.ainvoke(said("in"), thread(), durability="exit")
    return stored[0]


class _Submitter:
    """What a loop submits its work through. LangGraph keeps its method by a `WeakMethod`."""

    def __init__(self, submit: Callable[..., Any]) -> None:
        self._submit = submit

    def submit(self, function: Any, *args: Any, **options: Any) -> Any:
        """As the executor's; a save is given the delta writes submitted so far."""
        return self._submit(_settled(function), *args, **options)


def _settled(function: Any) -> Any:
    """A save that waits for the writes submitted before it, and for no others.

    It becomes the method of a copy of its loop, whose list of writes grows no more. As work
    is begun in the order it was submitted in, nothing then waits for what is queued behind it.
    """
    if getattr(function, "__name__", None) != _SAVE:
        return function
    loop = function.__self__
    saving = copy.copy(loop)
    loop._delta_write_futs = []
    return getattr(saving, _SAVE)


def _enter(wrapped: Any, _executor: Any, args: Any, kwargs: Any) -> Any:
    return _Submitter(wrapped(*args, **kwargs)).submit


async def _aenter(wrapped: Any, _executor: Any, args: Any, kwargs: Any) -> Any:
    return _Submitter(await wrapped(*args, **kwargs)).submit


def _check() -> None:
    require("langgraph.pregel._loop", "PregelLoop._delta_write_futs")
    for loop in ("SyncPregelLoop", "AsyncPregelLoop"):
        require("langgraph.pregel._loop", f"{loop}.{_SAVE}", ("prev", "checkpoint"))


_EXECUTORS = "langgraph.pregel._executor"

DEFECT = Defect(
    slug="saves-wait-for-ever",
    symptom="a run of many steps, or one with max_concurrency, never ends",
    upstream=(),
    distribution="langgraph",
    probe=_probe,
    remedy=patch(
        Site(_EXECUTORS, "BackgroundExecutor.__enter__", _enter),
        Site(_EXECUTORS, "AsyncBackgroundExecutor.__aenter__", _aenter),
        check=_check,
        text="Update langgraph (1.2.15 or newer). Until then, run with a max_concurrency that is "
        "greater than the number of steps, or with ainvoke and no max_concurrency at all.",
    ),
    severity="raises",
)
