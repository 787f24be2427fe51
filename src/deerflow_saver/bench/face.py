"""Calls on graphs and savers, on whichever face the saver has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["Face"]


class Face:
    """The sync face, or with a `runner` the async one, whose methods are named with an `a`."""

    def __init__(self, runner: asyncio.Runner | None = None) -> None:
        self._runner = runner

    def call(self, target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """`target.name(...)`, or what awaiting `target.aname(...)` gives."""
        if self._runner is None:
            return getattr(target, name)(*args, **kwargs)
        return self._runner.run(_awaited(getattr(target, f"a{name}")(*args, **kwargs)))

    def collect(self, target: Any, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """All items of an iterator method."""
        if self._runner is None:
            return list(getattr(target, name)(*args, **kwargs))
        return self._runner.run(_collected(getattr(target, f"a{name}")(*args, **kwargs)))

    def together(self, target_calls: Sequence[tuple[Any, str, tuple[Any, ...]]]) -> list[Any]:
        """Several calls at the same time: in threads, or as tasks of one loop."""
        if len(target_calls) == 1:
            target, name, args = target_calls[0]
            return [self.call(target, name, *args)]
        if self._runner is None:
            with ThreadPoolExecutor(len(target_calls)) as pool:
                found = [pool.submit(getattr(t, name), *args) for t, name, args in target_calls]
                return [future.result() for future in found]
        return self._runner.run(_gathered([_bound(*target_call) for target_call in target_calls]))


def _bound(target: Any, name: str, args: tuple[Any, ...]) -> Callable[[], Awaitable[Any]]:
    return lambda: getattr(target, f"a{name}")(*args)


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


async def _collected(found: Any) -> list[Any]:
    return [item async for item in found]


async def _gathered(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    return await asyncio.gather(*(call() for call in calls))
