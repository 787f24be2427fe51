"""Threads whose checkpoint ids are given, on either face of any saver, and the right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from support.savers import SaverCase

THREAD = {"thread_id": "thread", "checkpoint_ns": ""}


def config(checkpoint_id: str | None = None, **names: str) -> Any:
    found = {**THREAD, **names}
    return {"configurable": {**found, "checkpoint_id": checkpoint_id} if checkpoint_id else found}


class Face:
    """The face of a saver that works: every call is awaited."""

    def __init__(self, case: SaverCase, saver: Any) -> None:
        self.saver = saver
        self._prefix = "a" if case.kind == "async" else ""

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self.saver, self._prefix + method)(*args, **kwargs)
        return await answer if self._prefix else answer

    async def put(self, cid: str, parent: str | None, value: Any = None, **names: str) -> None:
        checkpoint = {**empty_checkpoint(), "id": cid, "channel_versions": {"log": cid}}
        if value is not None:
            checkpoint["channel_values"] = {"log": value}
        await self.call("put", config(parent, **names), checkpoint, {"step": 1}, {"log": cid})

    async def put_none(self, cid: str, parent: str | None) -> None:
        """A checkpoint that stores None for the channel."""
        checkpoint = {**empty_checkpoint(), "id": cid, "channel_versions": {"log": cid}}
        checkpoint["channel_values"] = {"log": None}
        await self.call("put", config(parent), checkpoint, {"step": 1}, {"log": cid})

    async def write(self, cid: str, value: Any, task: str = "task", path: str = "") -> None:
        await self.call("put_writes", config(cid), [("log", value)], task, path)

    async def store(self, line: Sequence[tuple[str, str | None]]) -> None:
        """Every checkpoint, each with one write of its own id."""
        for cid, parent in line:
            await self.put(cid, parent)
            await self.write(cid, cid)

    async def history(self, cid: str | None = None, channels: Sequence[str] = ("log",)) -> Any:
        return await self.call(
            "get_delta_channel_history", config=config(cid), channels=list(channels)
        )

    async def values(self, cid: str | None = None) -> list[Any]:
        return values((await self.history(cid))["log"])

    async def rows(self, *args: Any, **kwargs: Any) -> list[Any]:
        if self._prefix:
            return [row async for row in self.saver.alist(*args, **kwargs)]
        return list(self.saver.list(*args, **kwargs))

    async def right(self, cid: str | None = None, channels: Sequence[str] = ("log",)) -> Any:
        """The base class's walk over this saver's rows."""
        if self._prefix:
            walk: Any = BaseCheckpointSaver.aget_delta_channel_history
            return await walk(self.saver, config=config(cid), channels=list(channels))
        walk = BaseCheckpointSaver.get_delta_channel_history
        return walk(self.saver, config=config(cid), channels=list(channels))


def values(entry: Any) -> list[Any]:
    """What a reload applies: the seed if there is one, then the writes' values."""
    return [
        *([entry["seed"]] if "seed" in entry else []),
        *(value for _, _, value in entry["writes"]),
    ]
