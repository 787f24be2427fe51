"""Threads to roll back: what stands at their head before the run, and where the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langgraph.types import Command

from support.agent_in_modes import Agent
from support.modes import thread

__all__ = ["AFTER", "HEADS", "RUN", "AsyncStopping", "Stopped", "Stopping", "cancel", "shown", "turn"]

RUN = "the run"
"""Its id."""


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


def _empty(_agent: Any, **_: Any) -> None:
    pass


def _clean(agent: Any, **options: Any) -> None:
    agent.graph.invoke({"log": ["one"], "do": "x"}, thread(), **options)


def _interrupted(agent: Any, **options: Any) -> None:
    """One task has asked twice and was answered once, the other has finished."""
    _clean(agent, **options)
    agent.graph.invoke({"log": ["two"], "do": "ask twice"}, thread(), **options)
    agent.graph.invoke(Command(resume="early"), thread(), **options)


def _busy(agent: Any, **options: Any) -> None:
    """One task has failed, the other has finished."""
    _clean(agent, **options)
    agent.stop = "ask"
    try:
        agent.graph.invoke({"log": ["two"], "do": "x"}, thread(), **options)
    except Stopped:
        agent.stop = None
    assert agent.stop is None


HEADS: dict[str, Callable[..., None]] = {
    "clean": _clean,
    "interrupted": _interrupted,
    "busy": _busy,
    "empty": _empty,
}
AFTER: dict[str, Any] = {"interrupted": Command(resume="late"), "busy": None}
"""What goes on from a head; a new turn does from any."""
TURN = {"log": ["run"], "do": "ask"}
POINTS: dict[bool, dict[str, str | None]] = {
    True: {"before": None, "during": "ask", "after": "close"},
    False: {"before": None, "during": "plan", "after": "ask"},
}
"""Per whether a run goes on, where it ends in terms of its first superstep."""


def config_of_run(**names: Any) -> Any:
    return {**thread(**names), "metadata": {"run_id": RUN}}


def cancel(agent: Stopping, given: Any, where: str, **options: Any) -> None:
    """A run that ends before, in or after its first superstep."""
    agent.stop = POINTS[given is not TURN][where]
    if agent.stop is None:
        stream = agent.graph.stream(given, config_of_run(), stream_mode="values", **options)
        next(stream)
        stream.close()
        return
    try:
        agent.graph.invoke(given, config_of_run(), **options)
    except Stopped:
        agent.stop = None
    assert agent.stop is None


async def acancel(agent: AsyncStopping, given: Any, where: str, **options: Any) -> None:
    """The same with a task that is cancelled."""
    agent.stop = POINTS[given is not TURN][where]
    if agent.stop is None:
        stream = agent.graph.astream(given, config_of_run(), stream_mode="values", **options)
        await anext(stream)
        await stream.aclose()
        return
    run = asyncio.create_task(agent.graph.ainvoke(given, config_of_run(), **options))
    await agent.reached.wait()
    run.cancel()
    agent.stop = None
    agent.reached.clear()
    assert isinstance((await asyncio.gather(run, return_exceptions=True))[0], BaseException)


def told(state: Any) -> Any:
    """A state without what tells one checkpoint from another: ids and times."""
    values = {name: value for name, value in state.values.items() if value not in ([], {}, None)}
    tasks = [
        (task.name, task.path, repr(task.error), [i.value for i in task.interrupts], task.result)
        for task in state.tasks
    ]
    return values, state.next, tasks, [asked.value for asked in state.interrupts]


def shown(agent: Agent) -> Any:
    return told(agent.accessor.get(thread()))


def turn(agent: Agent, head: str) -> Any:
    """What goes on from a head, and then another turn; gives all that is shown."""
    if head in AFTER:
        agent.graph.invoke(AFTER[head], thread())
    after = shown(agent)
    agent.graph.invoke({"log": ["next"], "do": "x"}, thread())
    return after, shown(agent)
