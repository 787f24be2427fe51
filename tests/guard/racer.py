"""A process that takes turns on a thread, as it is told over a connection.

`serve` opens a wrapped saver as a `Spec` says, sends `"ready"`, and answers every batch of turns
with what became of each. It can be told to die inside a write.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from langgraph.checkpoint.base import id as ids
from langgraph.graph import END, START, StateGraph

from deerflow_saver import CachedHistorySaver, NonHeadWriteError
from guard.scenarios.env import finish
from guard.scenarios.kinds import say, state
from support.savers import CASES, Storage

__all__ = ["Spec", "graph_of", "serve", "turn_of"]

FREQUENCY = 25
"""Snapshots keep the audit of a long thread short."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a racer is told before it starts."""

    case: str
    """The name of a `SaverCase`."""
    folder: str
    postgres: str
    durability: Literal["sync", "async", "exit"] = "sync"
    guard: str = "refuse"
    clock_ahead: float = 0.0
    """Seconds that this host's clock is ahead."""


class Existing(Storage):
    """Storage that the parent process has made."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(Path(spec.folder), lambda: spec.postgres)
        self.__dict__["postgres_uri"] = spec.postgres


def _turn_text(values: Any) -> str:
    """The input of the turn under way: the last entry that no node said."""
    return str(next(text for text in reversed(values["ref"]) if text[0] not in "ab"))


def graph_of(saver: Any) -> Any:
    """Two nodes that repeat the turn's input, to a delta channel and to a plain one."""
    builder = StateGraph(state("mixed", FREQUENCY))
    builder.add_node("a", lambda s: say(f"a:{_turn_text(s)}"))
    builder.add_node("b", lambda s: say(f"b:{_turn_text(s)}"))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)
    return builder.compile(checkpointer=saver)


def turn_of(text: str) -> list[str]:
    """What a turn that landed whole leaves in the state."""
    return [text, f"a:{text}", f"b:{text}"]


def _set_clock_ahead(seconds: float) -> None:
    ahead = int(seconds * 1e9)
    ids.time = SimpleNamespace(time_ns=lambda: time.time_ns() + ahead)  # type: ignore[attr-defined]


def _die_in(saver: Any, method: str, when: str) -> None:
    """From now on kill this process at the start or the end of `method`, as a crash would."""
    cls = type(saver)
    original = getattr(cls, method)

    def before(*args: Any) -> None:
        delta = "writes" not in method or any(name == "log" for name, _ in args[2])
        if delta and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)

    if asyncio.iscoroutinefunction(original):

        @functools.wraps(original)
        async def adying(self: Any, *args: Any, **kwargs: Any) -> Any:
            before(self, *args)
            await original(self, *args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(cls, method, adying)
        return

    @functools.wraps(original)
    def dying(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self, *args)
        original(self, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(cls, method, dying)


async def _turn(run: Callable[[Any], Awaitable[Any]], text: str) -> dict[str, Any]:
    try:
        result = await run(say(text))
    except NonHeadWriteError as error:
        return {"text": text, "refused": error.reason}
    except Exception as error:  # noqa: BLE001 - the parent reports it
        return {"text": text, "error": f"{type(error).__name__}: {error}"}
    return {"text": text, "log": result["log"], "ref": result["ref"]}


async def _serve(spec: Spec, connection: Connection) -> None:
    case = next(case for case in CASES if case.name == spec.case)
    async with case.aopen(Existing(spec)) as inner:
        graph = graph_of(CachedHistorySaver(inner, guard=spec.guard))
        config = {"configurable": {"thread_id": "thread"}}

        async def run(value: Any) -> Any:
            if case.kind == "async":
                return await graph.ainvoke(value, config, durability=spec.durability)
            return graph.invoke(value, config, durability=spec.durability)

        connection.send("ready")
        while told := connection.recv():
            texts, death = told
            if death is not None:
                _die_in(inner, *death)
            connection.send([await _turn(run, text) for text in texts])


def serve(spec: Spec, connection: Connection) -> None:
    """Take turns until the other side says that it is over."""
    if spec.clock_ahead:
        _set_clock_ahead(spec.clock_ahead)
    serving = _serve(spec, connection)
    if spec.case.startswith("async"):
        asyncio.run(serving)
    else:
        finish(serving)
