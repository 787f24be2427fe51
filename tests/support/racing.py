"""Locks that keep nobody out: their holder is overtaken, or has lost them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deerflow_saver._plan import Plan
from deerflow_saver.state import Hold, ProcessThreadLock, ThreadLockLostError

__all__ = ["Lost", "Racing"]


class Racing(ProcessThreadLock):
    """A lock whose holder is overtaken just before it writes."""

    def __init__(self, race: Callable[[], Any]) -> None:
        super().__init__()
        self._race = race

    def checking(self, _hold: Hold) -> Plan[None]:
        yield "race", None

    def calls(self) -> Mapping[str, Callable[[Any], Any]]:
        return {**super().calls(), "race": lambda _: self._race()}

    def acalls(self) -> Mapping[str, Any]:
        async def race(_: Any) -> None:
            await self._race()

        return {**super().acalls(), "race": race}


class Lost(ProcessThreadLock):
    """A lock that is gone when its holder wants to write."""

    def checking(self, hold: Hold) -> Plan[None]:
        yield from ()
        msg = "gone"
        raise ThreadLockLostError(msg, thread_id=hold.thread_id)
