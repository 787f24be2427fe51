"""Locks by key that threads and tasks of any event loop wait for side by side.

A lock exists while somebody holds or awaits it. Ownership is handed to whoever waited
longest, so a busy thread starves nobody, and a waiter that gives up passes it on.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Hashable
from typing import Any

__all__ = ["KeyedLocks", "locks_of"]


class _Waiter:
    __slots__ = ("event", "future", "given", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.given = False
        self.event = threading.Event()
        self.future: Any = None if loop is None else loop.create_future()

    def wait(self, seconds: float | None) -> None:
        """Block until it is handed over; raises TimeoutError if that takes too long."""
        if not self.event.wait(seconds):
            raise TimeoutError

    def wake(self) -> bool:
        """Hand over; False if the waiter's loop is gone."""
        if self.loop is None:
            self.event.set()
        else:
            try:
                self.loop.call_soon_threadsafe(_resolve, self.future)
            except RuntimeError:  # closed
                return False
        self.given = True
        return True


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Lock:
    __slots__ = ("loop", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        """The loop whose task holds the lock."""
        self.waiters: deque[_Waiter] = deque()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()  # noqa: SLF001 - the documented call raises without a loop


class KeyedLocks:
    """One lock per key."""

    def __init__(self) -> None:
        """Start with no lock."""
        self._mutex = threading.Lock()
        self._locks: dict[Hashable, _Lock] = {}

    def __len__(self) -> int:
        """How many keys are held or awaited."""
        return len(self._locks)

    def _take(self, key: Hashable, loop: Any, waiting_on: Any) -> _Waiter | bool:
        """True: taken. False: it can never be had. Else the place in the queue."""
        with self._mutex:
            lock = self._locks.get(key)
            if lock is None:
                self._locks[key] = _Lock(loop)
                return True
            if loop is None and waiting_on is not None and lock.loop is waiting_on:
                return False
            waiter = _Waiter(loop)
            # A blocked loop cannot take its tasks' turns: whoever blocks it goes first
            (lock.waiters.append if waiting_on is None or loop else lock.waiters.appendleft)(waiter)
            return waiter

    def acquire(self, key: Hashable, seconds: float | None = None) -> bool:
        """Wait for the key, blocking the thread.

        False if it can never be had: a task of the loop that runs on this very thread
        holds it, and cannot go on before this call returns.

        Raises:
            TimeoutError: it was not to be had within so many seconds (None: no end).

        """
        waiter = self._take(key, None, _running_loop())
        if isinstance(waiter, bool):
            return waiter
        try:
            waiter.wait(seconds)
        except BaseException:
            self._give_up(key, waiter)
            raise
        return True

    async def aacquire(self, key: Hashable, seconds: float | None = None) -> bool:
        """Wait for the key without blocking the loop; always True.

        Raises:
            TimeoutError: it was not to be had within so many seconds (None: no end).

        """
        loop = asyncio.get_running_loop()
        waiter = self._take(key, loop, None)
        if isinstance(waiter, bool):
            return waiter
        try:
            async with asyncio.timeout(seconds):
                await waiter.future
        except BaseException:
            self._give_up(key, waiter)
            raise
        return True

    def _give_up(self, key: Hashable, waiter: _Waiter) -> None:
        with self._mutex:
            if not waiter.given:
                lock = self._locks.get(key)
                if lock is not None and waiter in lock.waiters:
                    lock.waiters.remove(waiter)
                return
        self.release(key)

    def release(self, key: Hashable) -> None:
        """Hand the key to the next in the queue."""
        with self._mutex:
            lock = self._locks[key]
            while lock.waiters:
                waiter = lock.waiters.popleft()
                lock.loop = waiter.loop
                if waiter.wake():
                    return
            del self._locks[key]


_by_saver: weakref.WeakKeyDictionary[Any, KeyedLocks] = weakref.WeakKeyDictionary()
_by_saver_mutex = threading.Lock()


def locks_of(saver: Any) -> KeyedLocks:
    """The locks of everything that wraps `saver` in this process."""
    try:
        with _by_saver_mutex:
            return _by_saver.setdefault(saver, KeyedLocks())
    except TypeError:  # not hashable, or without weak references
        return KeyedLocks()
