"""What the operations of the guard's plans do, on either face."""

from __future__ import annotations

import asyncio
import time
from asyncio import _get_running_loop
from collections.abc import Hashable
from functools import partial
from typing import Any, Literal

from deerflow_saver._plan import Operations
from deerflow_saver.channel_mode.gate import (
    aensure_checkpoint_mode_compatible,
    ensure_checkpoint_mode_compatible,
)
from deerflow_saver.guard.fence import Session
from deerflow_saver.guard.guard import Guard
from deerflow_saver.guard.state import GuardState

__all__ = ["Guarded"]

_PATIENCE = 5.0
"""Seconds a read waits for saves under way: a safety valve, not a deadline to plan with."""
_TURNS = 4
"""Turns of the loop in which a save that waited for another one begins."""


class Guarded:
    """A guard with its two tables of operations."""

    __slots__ = ("asynchronous", "guard", "sync")

    def __init__(
        self,
        guard: Guard,
        others: tuple[Operations, Operations],
    ) -> None:
        """`others` are the operations outside any fence: calls of the saver (`inner`), and more."""
        self.guard = guard
        self.sync = {**others[0], **_operations(guard)}
        self.asynchronous = {**others[1], **_aoperations(guard)}


def _operations(guard: Guard) -> Operations:
    """The blocking operations."""
    fence, state = guard.operations, guard.state

    def enter(key: Hashable) -> Session:
        return Session(key, state.locks.acquire(key), locks=state.locks)

    def leave(session: Session) -> None:
        try:
            fence.close(session)
        finally:
            session.unlock()

    def settle(key: Hashable) -> None:
        state.wait(key, _get_running_loop(), _PATIENCE)

    return {
        "enter": enter,
        "look": fence.look,
        "get_tuple": guard.saver.get_tuple,
        "history": lambda asked: guard.saver.get_delta_channel_history(**asked),
        "vet": lambda asked: ensure_checkpoint_mode_compatible(*_vetting(guard, *asked)),
        "store": fence.store,
        "attempt": fence.attempt,
        "leave": leave,
        "settle": settle,
    }


def _vetting(guard: Guard, session: Session, config: Any) -> tuple[Any, Any, Literal["full"]]:
    """What the gate is asked inside a session: the saver that sees its transaction."""
    return session.saver or guard.saver, config, "full"


def _aoperations(guard: Guard) -> Operations:
    """The awaited operations."""
    fence, state = guard.operations, guard.state

    async def enter(key: Hashable) -> Session:
        return Session(key, await state.locks.aacquire(key), locks=state.locks)

    async def close(session: Session) -> None:
        try:
            await fence.aclose(session)
        finally:
            session.unlock()

    async def leave(session: Session) -> None:
        if session.stack is None:
            session.unlock()
            return
        # Cleaning up goes on to its end, whoever cancels the call that asked for it
        await asyncio.shield(asyncio.ensure_future(close(session)))

    return {
        "enter": enter,
        "look": fence.alook,
        "get_tuple": guard.saver.aget_tuple,
        "history": lambda asked: guard.saver.aget_delta_channel_history(**asked),
        "vet": lambda asked: aensure_checkpoint_mode_compatible(*_vetting(guard, *asked)),
        "store": fence.astore,
        "attempt": fence.aattempt,
        "leave": leave,
        "settle": partial(_asettle, state),
    }


async def _asettle(state: GuardState, key: Hashable) -> None:
    """Wait for the saves under way, and for those that follow them."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    while True:
        landings, futures = state.landings(key), state.awaited(key, loop)
        if futures:
            await asyncio.wait(futures, timeout=_PATIENCE)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        # One may have begun, or even ended, in these turns: then others may follow that one
        if state.settled(key, landings) or time.monotonic() - began > _PATIENCE:
            return
