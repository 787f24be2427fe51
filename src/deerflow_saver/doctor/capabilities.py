"""What a saver can do: read off its class, tried on one of its class in memory, or on itself."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from deerflow_saver._plan import adrive, drive
from deerflow_saver._probe import traits_of
from deerflow_saver.doctor.defects import Kind
from deerflow_saver.doctor.trial import Observed, trial
from deerflow_saver.guard.making import fence_of

__all__ = ["Capabilities", "Faces", "acalls", "calls", "capabilities", "faces", "of_class"]

Faces = Literal["sync", "async", "sync and async", "async, and sync from other threads"]
Source = Literal["its class", "a trial in memory", "a scratch thread", "nothing"]
_METHODS = ("put", "put_writes", "get_tuple", "delete_thread")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What is known of a saver.

    Attributes:
        source: where `observed` comes from.
        observed: None if it cannot be known without a scratch thread.
        faces: which of its methods work.
        fence: `"transaction"`: the guard holds against other processes; `"process"`: only
            against this one; None if it is not known here.

    """

    source: Source
    observed: Observed | None
    faces: Faces
    fence: Literal["transaction", "process"] | None


def capabilities(saver: Any, kind: Kind, seen: Observed | None) -> Capabilities:
    """Of the saver at the bottom of a stack; `seen` is what a scratch thread showed."""
    fence = fence_of(saver, storage=kind != "other").kind
    if seen is not None:
        return Capabilities("a scratch thread", seen, faces(saver), fence)
    source, observed = of_class(kind, asynchronous=faces(saver).startswith("async"))
    return Capabilities(source, observed, faces(saver), fence)


def of_class(kind: Kind, *, asynchronous: bool) -> tuple[Source, Observed | None]:
    """What LangGraph's own saver of a kind does, in the installed release."""
    if kind == "memory":
        return "a trial in memory", drive(trial("trial"), calls(InMemorySaver()))[0]
    if kind == "sqlite":
        tried = asyncio.run(_tried_async()) if asynchronous else _tried_sqlite()
        return "a trial in memory", tried
    if kind == "postgres":
        from langgraph.checkpoint.postgres import base

        order = hasattr(base, "writes_sort_key")
        known = Observed(
            parent_links=True,
            write_order="task path" if order else "task id",
            idempotent_writes=True,
            delta_history=True,
        )
        return "its class", known
    return "nothing", None


def faces(saver: Any) -> Faces:
    """Which face works, from where the methods are defined."""
    if traits_of(saver).kind == "storage":
        if isinstance(saver, InMemorySaver):
            return "sync and async"
        return "async, and sync from other threads" if hasattr(saver, "loop") else "sync"
    cls = type(saver)
    sync, asynchronous = (
        getattr(cls, name) is not getattr(BaseCheckpointSaver, name)
        for name in ("get_tuple", "aget_tuple")
    )
    if sync and asynchronous:
        return "sync and async"
    return "async" if asynchronous else "sync"


def calls(saver: Any) -> dict[str, Callable[[Any], Any]]:
    """How a plan's requests reach the sync face of a saver."""

    def calling(name: str) -> Callable[[Any], Any]:
        return lambda given: getattr(saver, name)(*given)

    return {
        **{name: calling(name) for name in _METHODS},
        "get_delta_channel_history": lambda given: saver.get_delta_channel_history(
            config=given[0], channels=given[1]
        ),
    }


def acalls(saver: Any) -> dict[str, Callable[[Any], Any]]:
    """The same on the async face."""

    def calling(name: str) -> Callable[[Any], Any]:
        return lambda given: getattr(saver, f"a{name}")(*given)

    return {
        **{name: calling(name) for name in _METHODS},
        "get_delta_channel_history": lambda given: saver.aget_delta_channel_history(
            config=given[0], channels=given[1]
        ),
    }


def _tried_sqlite() -> Observed:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with closing(sqlite3.connect(":memory:")) as connection:
        return drive(trial("trial"), calls(SqliteSaver(connection)))[0]


async def _tried_async() -> Observed:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        return (await adrive(trial("trial"), acalls(saver)))[0]
