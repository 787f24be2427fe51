"""Threads written through the saver interface, for tests that need no graph."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

CHANNEL = "log"


@dataclass
class Line:
    """A line of checkpoints of one thread, whose delta channel is called `log`."""

    saver: Any
    thread_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    checkpoint_ns: str = ""
    ids: list[str] = field(default_factory=list)

    def config(self, checkpoint_id: str | None = None) -> dict[str, Any]:
        """The config of a checkpoint, by default the newest."""
        names = {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}
        cid = checkpoint_id or (self.ids[-1] if self.ids else None)
        return {"configurable": {**names, "checkpoint_id": cid} if cid else names}

    def put_arguments(self, *, snapshot: Any = None) -> tuple[Any, ...]:
        """Arguments that put the next checkpoint under the newest."""
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6())
        version = f"{len(self.ids) + 1:032}.0"
        checkpoint["channel_versions"] = {CHANNEL: version}
        metadata: dict[str, Any] = {"source": "loop", "step": len(self.ids) - 1}
        if snapshot is None:
            count = len(self.ids) + 1
            metadata["counters_since_delta_snapshot"] = {CHANNEL: (count, count)}
        else:
            checkpoint["channel_values"] = {CHANNEL: _DeltaSnapshot(snapshot)}
        return self.config(), checkpoint, metadata, {CHANNEL: version}

    def put(self, *, snapshot: Any = None) -> str:
        """Store the next checkpoint; gives its id."""
        arguments = self.put_arguments(snapshot=snapshot)
        self.saver.put(*arguments)
        self.ids.append(arguments[1]["id"])
        return self.ids[-1]

    async def aput(self, *, snapshot: Any = None) -> str:
        """`put` on the async face."""
        arguments = self.put_arguments(snapshot=snapshot)
        await self.saver.aput(*arguments)
        self.ids.append(arguments[1]["id"])
        return self.ids[-1]

    def write_arguments(self, *values: Any, checkpoint_id: str | None = None) -> tuple[Any, ...]:
        """Arguments that store own writes of a checkpoint, by default of the newest."""
        return self.config(checkpoint_id), [(CHANNEL, v) for v in values], str(uuid.uuid4()), "~p"

    def write(self, *values: Any, checkpoint_id: str | None = None) -> None:
        """Store own writes of a checkpoint, by default of the newest."""
        self.saver.put_writes(*self.write_arguments(*values, checkpoint_id=checkpoint_id))

    async def awrite(self, *values: Any, checkpoint_id: str | None = None) -> None:
        """`write` on the async face."""
        await self.saver.aput_writes(*self.write_arguments(*values, checkpoint_id=checkpoint_id))

    def grow(self, steps: int, *, value: Any = "w") -> None:
        """Store `steps` checkpoints, each but the first after one write on its parent."""
        for _ in range(steps):
            if self.ids:
                self.write([f"{value}{len(self.ids)}"])
            self.put()

    async def agrow(self, steps: int, *, value: Any = "w") -> None:
        """`grow` on the async face."""
        for _ in range(steps):
            if self.ids:
                await self.awrite([f"{value}{len(self.ids)}"])
            await self.aput()

    def history(self, saver: Any = None, checkpoint_id: str | None = None) -> Any:
        """The history of a checkpoint, by default of the newest, as `saver` answers."""
        reader = saver or self.saver
        return reader.get_delta_channel_history(
            config=self.config(checkpoint_id), channels=[CHANNEL]
        )

    async def ahistory(self, saver: Any = None, checkpoint_id: str | None = None) -> Any:
        """`history` on the async face."""
        reader = saver or self.saver
        return await reader.aget_delta_channel_history(
            config=self.config(checkpoint_id), channels=[CHANNEL]
        )
