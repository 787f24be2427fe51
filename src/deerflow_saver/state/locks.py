"""One holder per thread: for a sequence of reads and writes that must not be interleaved.

`ProcessThreadLock` excludes the OS threads and tasks of one process, on any event loop;
`PostgresThreadLock` (`locks_postgres`) excludes other processes as well. Neither can be taken
again by whoever holds it: that raises instead of waiting for oneself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

from deerflow_saver._plan import Plan, adrive, drive
from deerflow_saver.guard.locks import KeyedLocks
from deerflow_saver.state.holds import Hold, ThreadLock
from deerflow_saver.state.lock_errors import (
    ThreadLockLostError,
    ThreadLockReentryError,
    ThreadLockTimeoutError,
)

__all__ = [
    "THREAD_LOCK",
    "Hold",
    "ProcessThreadLock",
    "ThreadLock",
    "aholding",
    "holding",
]

DEFAULT_TIMEOUT = 30.0
"""Seconds to wait for a lock: far longer than a rewrite takes, and not for ever."""


_held: ContextVar[tuple[Hold, ...]] = ContextVar("deerflow_thread_locks", default=())


class ProcessThreadLock:
    """Excludes everybody else in this process: OS threads, tasks, event loops.

    Whoever waited longest comes next. A thread's lock exists while somebody holds or awaits
    it. Different instances know nothing of each other.

    Args:
        timeout: seconds to wait for a lock, unless a call says otherwise; None: no end.

    """

    def __init__(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        self.timeout = timeout
        self._queue = KeyedLocks()
        self._holds: dict[str, Hold] = {}

    def __len__(self) -> int:
        """How many threads' locks are held or awaited."""
        return len(self._queue)

    @property
    def identity(self) -> Hashable:
        """Locks of one identity exclude each other."""
        return id(self)

    def holder(self, thread_id: str) -> Hold | None:
        """Who in this process holds a thread's lock now."""
        return self._holds.get(thread_id)

    @contextmanager
    def hold(
        self, thread_id: str, *, owner: str | None = None, timeout: float | None = -1
    ) -> Iterator[Hold]:
        """Hold the lock of a thread for a `with` block.

        Args:
            thread_id: the thread.
            owner: who takes it, for the error of those who wait in vain; by default the name
                of the task or OS thread.
            timeout: seconds to wait; None: no end; left out: the lock's own.

        Raises:
            ThreadLockTimeoutError: it was not to be had in time.
            ThreadLockReentryError: it is held by the caller itself, or by what called it.

        """
        hold = Hold(self, thread_id, owner)
        drive(self._enter(hold, self._patience(timeout)), self.calls())
        try:
            yield hold
        finally:
            drive(self._leave(hold), self.calls())

    @asynccontextmanager
    async def ahold(
        self,
        thread_id: str,
        *,
        owner: str | None = None,
        timeout: float | None = -1,  # noqa: ASYNC109 - as on the sync face
    ) -> AsyncIterator[Hold]:
        """`hold` for an `async with` block; waiting does not block the loop."""
        hold = Hold(self, thread_id, owner)
        await adrive(self._enter(hold, self._patience(timeout)), self.acalls())
        abandoned = False
        try:
            yield hold
        except GeneratorExit:  # its loop was closed before it ended, or its stream was
            abandoned = True
            raise
        finally:
            if abandoned:
                self._abandon(hold)
            else:
                # Letting go comes to its end, whoever cancels the block
                await asyncio.shield(asyncio.ensure_future(self._aleave(hold)))

    async def _aleave(self, hold: Hold) -> None:
        await adrive(self._leave(hold), self.acalls())

    def _patience(self, timeout: float | None) -> float | None:
        return self.timeout if timeout == -1 else timeout

    def _enter(self, hold: Hold, seconds: float | None) -> Plan[None]:
        self._refuse_reentry(hold)
        try:
            had = yield "queue", (hold.thread_id, seconds)
        except TimeoutError:
            raise self._too_late(hold, self.holder(hold.thread_id)) from None
        if not had:
            raise _reentry(hold, self.holder(hold.thread_id))
        try:
            yield from self.reaching(hold, seconds)
        except BaseException:
            self._queue.release(hold.thread_id)
            raise
        self._holds[hold.thread_id] = hold
        hold.begin()
        _held.set((*(h for h in _held.get() if h.active), hold))

    def _leave(self, hold: Hold) -> Plan[None]:
        hold.active = False
        try:
            yield from self.leaving(hold)
        finally:
            self._free(hold)

    def _abandon(self, hold: Hold) -> None:
        """Let go where nothing can be awaited any more."""
        hold.active = False
        try:
            self.abandoning(hold)
        finally:
            self._free(hold)

    def _free(self, hold: Hold) -> None:
        self._holds.pop(hold.thread_id, None)
        self._queue.release(hold.thread_id)

    def _refuse_reentry(self, hold: Hold) -> None:
        """Whatever runs in the context of a holder runs on its behalf."""
        for other in _held.get():
            same = getattr(other.lock, "identity", None) == self.identity
            if same and other.active and other.thread_id == hold.thread_id:
                raise _reentry(hold, other)

    def _too_late(self, hold: Hold, other: Hold | None) -> ThreadLockTimeoutError:
        owner = None if other is None else f"{other.owner}, for {other.seconds:.1f} s"
        return too_late(hold, owner)

    # -- for locks that reach further ------------------------------------------------------

    def reaching(self, _hold: Hold, _seconds: float | None) -> Plan[None]:
        """Take what is beyond the process, which is held already."""
        yield from ()

    def leaving(self, _hold: Hold) -> Plan[None]:
        """Give back what `reaching` took."""
        yield from ()

    def abandoning(self, _hold: Hold) -> None:
        """Give it back at once, without awaiting anything."""

    def checking(self, _hold: Hold) -> Plan[None]:
        """Within a process nothing gets lost."""
        yield from ()

    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        """What the plans' operations do, blocking."""
        return {"queue": lambda asked: self._queue.acquire(*asked)}

    def acalls(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """What the plans' operations do, awaited."""
        return {"queue": lambda asked: self._queue.aacquire(*asked)}


THREAD_LOCK = ProcessThreadLock()
"""The process's lock, used by whatever is given none."""


def _reentry(hold: Hold, other: Hold | None) -> ThreadLockReentryError:
    owner = None if other is None else other.owner
    msg = (
        f"thread {hold.thread_id!r}: the lock is held by {owner}, on whose behalf this call runs, "
        "so it would wait for itself. Pass the hold on (lock=hold) instead of taking the lock "
        "again, or start what may wait in a context of its own (contextvars.Context())"
    )
    return ThreadLockReentryError(msg, thread_id=hold.thread_id, owner=owner)


def too_late(hold: Hold, owner: str | None) -> ThreadLockTimeoutError:
    """The error that a lock was not to be had in time; `owner` has it."""
    msg = (
        f"thread {hold.thread_id!r}: the lock was not to be had within {hold.seconds:.1f} s. "
        f"It is held by {owner or 'somebody who has let go of it meanwhile'}. Nothing was "
        "done; try again, or allow a longer timeout"
    )
    return ThreadLockTimeoutError(msg, thread_id=hold.thread_id, owner=owner)


@contextmanager
def holding(
    lock: ThreadLock | Hold | None, thread_id: str, owner: str | None = None
) -> Iterator[Hold]:
    """Hold `lock` (None: the process's) for a block; a `Hold` of the thread is used as it is.

    Raises:
        ThreadLockLostError: the hold is of another thread, or its block is over.
        ThreadLockTimeoutError: the lock was not to be had in time.
        ThreadLockReentryError: the caller holds it, and did not pass the hold.

    """
    if isinstance(lock, Hold):
        _refuse_other(lock, thread_id)
        lock.check()
        yield lock
        return
    with (THREAD_LOCK if lock is None else lock).hold(thread_id, owner=owner) as hold:
        yield hold


@asynccontextmanager
async def aholding(
    lock: ThreadLock | Hold | None, thread_id: str, owner: str | None = None
) -> AsyncIterator[Hold]:
    """`holding` on the async face."""
    if isinstance(lock, Hold):
        _refuse_other(lock, thread_id)
        await lock.acheck()
        yield lock
        return
    async with (THREAD_LOCK if lock is None else lock).ahold(thread_id, owner=owner) as hold:
        yield hold


def _refuse_other(hold: Hold, thread_id: str) -> None:
    if hold.thread_id != thread_id:
        msg = (
            f"thread {thread_id!r}: the hold passed is of thread {hold.thread_id!r}; hold the lock "
            "of the thread that is written"
        )
        raise ThreadLockLostError(msg, thread_id=thread_id, owner=hold.owner)
