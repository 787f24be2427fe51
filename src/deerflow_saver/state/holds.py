"""What it means to hold a thread's lock, and what a lock has to offer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.state.lock_errors import ThreadLockLostError

__all__ = ["Hold", "ThreadLock"]


class Hold:
    """A lock that is held: what the `with` block is given.

    Attributes:
        thread_id: the thread.
        owner: who holds it, for those who wait.
        active: whether the block is still running.

    """

    def __init__(self, lock: ThreadLock, thread_id: str, owner: str | None) -> None:
        """Not held yet."""
        self.lock = lock
        self.thread_id = thread_id
        self.owner = owner or _caller()
        self.active = False
        self.session: Any = None
        """What the lock keeps while it is held."""
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """For how long it is held, or was waited for."""
        return time.monotonic() - self._since

    def begin(self) -> None:
        """It is held from now on."""
        self._since = time.monotonic()
        self.active = True

    def check(self) -> None:
        """Make sure that the lock is still held, just before a write that relies on it.

        Raises:
            ThreadLockLostError: its block is over, or its database session has ended.

        """
        self._refuse_inactive()
        drive(self.lock.checking(self), self.lock.calls())

    async def acheck(self) -> None:
        """`check` on the async face."""
        self._refuse_inactive()
        await adrive(self.lock.checking(self), self.lock.acalls())

    def _refuse_inactive(self) -> None:
        if not self.active:
            msg = (
                f"thread {self.thread_id!r}: the lock is not held any more, its block has ended; "
                "take it again"
            )
            raise ThreadLockLostError(msg, thread_id=self.thread_id, owner=self.owner)

    def __repr__(self) -> str:
        """Name the thread and the owner."""
        state = "held" if self.active else "not held"
        return f"<Hold of thread {self.thread_id!r} by {self.owner}, {state}>"


class ThreadLock(Protocol):
    """A lock per thread id.

    The methods that give a plan are for `Hold` and for those who make locks.
    """

    def hold(
        self, thread_id: str, *, owner: str | None = None, timeout: float | None = ...
    ) -> AbstractContextManager[Hold]:
        """Hold the lock of a thread for a `with` block."""
        ...

    def ahold(
        self, thread_id: str, *, owner: str | None = None, timeout: float | None = ...
    ) -> AbstractAsyncContextManager[Hold]:
        """Hold the lock of a thread for an `async with` block."""
        ...

    def checking(self, hold: Hold) -> Plan[None]:
        """Raise `ThreadLockLostError` if `hold` is not what it was."""
        ...

    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """What the plans' operations do, blocking."""
        ...

    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """What the plans' operations do, awaited."""
        ...


def _caller() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        task = None
    return (
        f"thread {threading.current_thread().name}" if task is None else f"task {task.get_name()}"
    )
