"""Calls that are made only if a thread's head is the one that was read, in one step with it.

For what the guard's rule does not speak of: a fork of a full thread, and its deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, NoReturn

from langchain_core.runnables import RunnableConfig

from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.errors import NonHeadWriteError
from deerflow_saver.guard.calls import Target, target_of
from deerflow_saver.guard.driver import Guarded
from deerflow_saver.guard.fence import Call, Head, Look, Session
from deerflow_saver.guard.plans import fenced
from deerflow_saver.state.conditional import ConditionalSaver

__all__ = ["IfHead", "a_if_head", "if_head"]


class IfHead(NamedTuple):
    """A call, and the head it depends on."""

    config: RunnableConfig
    """Names the thread."""
    head_id: str | None
    call: Call
    """On the sync face."""
    child: str | None = None
    """The checkpoint being put, which has to be newer than the head."""


def if_head(saver: Any) -> Callable[[IfHead], Any]:
    """The operation `"if_head"` on a raw saver's sync face."""
    bound = ConditionalSaver(saver)
    guarded: Guarded = bound._self_guarded  # noqa: SLF001 - its fence, without its rule
    across = _across(guarded) if guarded.guard.bridged else None

    def call(asked: IfHead) -> Any:
        if across is not None:
            return asyncio.run_coroutine_threadsafe(across(asked), saver.loop).result()
        return drive(_made(asked, asked.call), guarded.sync)

    return call


def a_if_head(saver: Any) -> Callable[[IfHead], Awaitable[Any]]:
    """The operation `"if_head"` on a raw saver's async face."""
    bound = ConditionalSaver(saver)
    return _across(bound._self_guarded)  # noqa: SLF001 - as above


def _across(guarded: Guarded) -> Callable[[IfHead], Any]:
    async def call(asked: IfHead) -> Any:
        name, args, kwargs = asked.call
        plan = _made(asked, (f"a{name}", args, kwargs))
        return await adrive(plan, guarded.asynchronous)

    return call


def _made(asked: IfHead, call: Call) -> Plan[Any]:
    """Look and call inside one session of the thread's root namespace.

    Raises:
        NonHeadWriteError: the head is another.

    """
    target = target_of(asked.config)
    if target is None:
        msg = f"no thread is named by {asked.config!r}"
        raise ValueError(msg)
    look = Look(target.config, target.thread_id, "", None, child=asked.child)

    def body(session: Session) -> Plan[Any]:
        seen = yield "look", (session, look)
        _refuse_another(asked, target, call[0], seen.head)
        return (yield "store", (session, call))

    return (yield from fenced(target, body))


def _refuse_another(asked: IfHead, target: Target, name: str, head: Head | None) -> None:
    found = None if head is None else head.checkpoint_id
    if found != asked.head_id:
        _refuse(asked, target, name, found, "fork")
    if head is not None and asked.child is not None and head.child_place != "newer":
        _refuse(asked, target, name, found, "backwards")


def _refuse(asked: IfHead, target: Target, name: str, found: str | None, why: Any) -> NoReturn:
    raise NonHeadWriteError(
        thread_id=target.thread_id,
        checkpoint_ns="",
        checkpoint_id=asked.head_id,
        head_id=found,
        operation=name,
        channels=(),
        reason=why,
    )
