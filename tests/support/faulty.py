"""A saver that fails at its nth call, before or after the call has done its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import wrapt

__all__ = ["CALLS", "Faulty"]

CALLS = (
    "get_tuple", "list", "get_delta_channel_history", "put", "put_writes", "delete_thread",
)  # fmt: skip


class Faulty(wrapt.BaseObjectProxy[Any]):
    """Passes calls on, and calls `fail` at number `at`, counted from 0."""

    _self_calls: list[str]

    def __init__(
        self, saver: Any, at: int, fail: Callable[[], Any], *, afterwards: bool = False
    ) -> None:
        """Fail before the call, or `afterwards`."""
        super().__init__(saver)
        self._self_calls = []
        self._self_at = at
        self._self_fail = fail
        self._self_afterwards = afterwards

    def _self_count(self, name: str) -> bool:
        self._self_calls.append(name)
        return len(self._self_calls) - 1 == self._self_at

    def _self_call(self, name: str, args: Any, kwargs: Any) -> Any:
        due = self._self_count(name)
        if due and not self._self_afterwards:
            self._self_fail()
        answer = getattr(self.__wrapped__, name)(*args, **kwargs)
        if name == "list":
            answer = iter(list(answer))
        if due:
            self._self_fail()
        return answer

    async def _self_acall(self, name: str, args: Any, kwargs: Any) -> Any:
        due = self._self_count(name)
        if due and not self._self_afterwards:
            self._self_fail()
            await asyncio.sleep(0)  # where a cancellation arrives
        answer = await getattr(self.__wrapped__, name)(*args, **kwargs)
        if due:
            self._self_fail()
            await asyncio.sleep(0)
        return answer

    async def alist(self, *args: Any, **kwargs: Any) -> Any:
        """Rows, all fetched first."""
        rows = [row async for row in self.__wrapped__.alist(*args, **kwargs)]
        due = self._self_count("alist")
        if due:
            self._self_fail()
            await asyncio.sleep(0)
        for row in rows:
            yield row


def _sync(name: str) -> Any:
    return lambda self, *args, **kwargs: self._self_call(name, args, kwargs)


def _async(name: str) -> Any:
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._self_acall(name, args, kwargs)

    return call


for _name in CALLS:
    setattr(Faulty, _name, _sync(_name))
    if _name != "list":
        setattr(Faulty, f"a{_name}", _async(f"a{_name}"))
