"""Threads to roll back: what stands at their head before a run, and where the run ends."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.types import Command

from support.agent_in_modes import Agent
from support.modes import thread

__all__ = [
    "AFTER",
    "HEADS",
    "RUN",
    "TURN",
    "WHERE",
    "AsyncStopping",
    "Stopped",
    "Stopping",
    "acancel",
    "amake",
    "cancel",
    "config_of_run",
    "inputs",
    "make",
    "shown",
    "told",
]

RUN = "the run"
"""Its id."""
TURN: Any = {"log": ["run"], "do": "ask"}
FIRST: Any = ({"log": ["one"], "do": "x"}, None)

HEADS: dict[str, list[tuple[Any, str | None]]] = {
    "clean": [FIRST],
    # One task has asked twice and was answered once, the other has finished
    "interrupted": [
        FIRST,
        ({"log": ["two"], "do": "ask twice"}, None),
        (Command(resume="early"), None),
    ],
    # One task has failed, the other has finished
    "busy": [FIRST, ({"log": ["two"], "do": "x"}, "ask")],
    "empty": [],
}
"""The turns that lead there: the input, and the node that ends it."""
AFTER: dict[str, Any] = {"interrupted": Command(resume="late"), "busy": None}
"""What goes on from a head; a new turn does from any."""
WHERE = ("before", "during", "after")
"""When a run ends, in terms of its first superstep."""
_NODES = {
    True: {"before": None, "during": "ask", "after": "close"},
    False: {"before": None, "during": "plan", "after": "ask"},
}
"""The node that ends it, by whether it goes on from the head; None: it ends before any."""


class Stopped(Exception):  # noqa: N818
    """A node was stopped."""


class Stopping(Agent):
    """An agent whose runs end where a test wants."""

    stop: str | None = None

    def _at(self, name: str) -> None:
        if self.stop == name:
            raise Stopped(name)

    def _plan(self, state: Any) -> Any:
        self._at("plan")
        return super()._plan(state)

    def _ask(self, state: Any) -> Any:
        self._at("ask")
        return super()._ask(state)

    def _close(self, state: Any) -> Any:
        self._at("close")
        return super()._close(state)


class AsyncStopping(Agent):
    """The same with nodes that are cancelled while they wait."""

    stop: str | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        self.reached = asyncio.Event()
        super().__init__(*args, **options)

    async def _at(self, name: str) -> None:
        if self.stop == name:
            self.reached.set()
            await asyncio.Event().wait()

    async def _plan(self, state: Any) -> Any:
        await self._at("plan")
        return super()._plan(state)

    async def _ask(self, state: Any) -> Any:
        await self._at("ask")
        return super()._ask(state)

    async def _close(self, state: Any) -> Any:
        await self._at("close")
        return super()._close(state)


def inputs(head: str) -> list[Any]:
    """What may be run from a head."""
    return [TURN, *([AFTER[head]] if head in AFTER else [])]


def config_of_run(thread_id: str = "1") -> Any:
    return {**thread(thread_id), "metadata": {"run_id": RUN}}


def make(agent: Stopping, head: str, thread_id: str = "1", **options: Any) -> None:
    """Lead a thread to a head."""
    for given, stop in HEADS[head]:
        run(agent, given, stop, thread(thread_id), **options)


def run(agent: Stopping, given: Any, stop: str | None, config: Any, **options: Any) -> None:
    agent.stop = stop
    try:
        agent.graph.invoke(given, config, **options)
    except Stopped:
        agent.stop = None
    assert agent.stop is None


def cancel(agent: Stopping, given: Any, where: str, thread_id: str = "1", **options: Any) -> None:
    """A run that ends before, in or after its first superstep."""
    stop, config = _NODES[given is not TURN][where], config_of_run(thread_id)
    if stop is not None:
        run(agent, given, stop, config, **options)
        return
    stream = agent.graph.stream(given, config, stream_mode="values", **options)
    next(stream)
    stream.close()


async def amake(agent: AsyncStopping, head: str, **options: Any) -> None:
    """`make` with tasks that are cancelled."""
    for given, stop in HEADS[head]:
        await arun(agent, given, stop, thread(), **options)


async def arun(
    agent: AsyncStopping, given: Any, stop: str | None, config: Any, **options: Any
) -> None:
    agent.stop = stop
    task = asyncio.create_task(agent.graph.ainvoke(given, config, **options))
    if stop is None:
        await task
        return
    await agent.reached.wait()
    agent.stop = None
    agent.reached.clear()
    task.cancel()
    ended = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)


async def acancel(agent: AsyncStopping, given: Any, where: str, **options: Any) -> None:
    """`cancel` with a task that is cancelled."""
    stop, config = _NODES[given is not TURN][where], config_of_run()
    if stop is not None:
        await arun(agent, given, stop, config, **options)
        return
    stream = agent.graph.astream(given, config, stream_mode="values", **options)
    await anext(stream)
    await stream.aclose()


def told(state: Any) -> Any:
    """A state without what tells one checkpoint from another: ids and times."""
    values = {name: value for name, value in state.values.items() if value not in ([], {}, None)}
    tasks = [
        (task.name, task.path, repr(task.error), [i.value for i in task.interrupts], task.result)
        for task in state.tasks
    ]
    return values, state.next, tasks, [asked.value for asked in state.interrupts]


def shown(agent: Agent, thread_id: str = "1") -> Any:
    """What a thread's reader is shown."""
    return told(agent.accessor.get(thread(thread_id)))
