"""Long threads stored without running a graph: checkpoint by checkpoint, as a run would.

One message a superstep: a step's write on the checkpoint it started from, then the checkpoint
that applied it, with LangGraph's counters (`_put_checkpoint` in `langgraph.pregel._loop`) and a
snapshot of the channel at the cadence.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from deerflow_saver.bench.conversation import CHANNEL, message
from deerflow_saver.bench.face import Face

__all__ = ["StoredLine"]

_TASKS = uuid.UUID("5ca1ab1e-0000-4000-8000-000000000000")


@dataclass
class StoredLine:
    """A line of checkpoints in one thread; a fork of it is another line.

    Attributes:
        face: how the saver is called.
        saver: where the checkpoints go.
        config: names the thread.
        frequency: updates between two snapshots.
        payload_bytes: size of each message's text.
        compacted_every: after so many steps all messages give way to one, as in a thread that is
            summarised; 0 for never.
        heads: the line's checkpoints, oldest first.
        messages: what the newest of them knows.

    """

    face: Face
    saver: Any
    config: RunnableConfig
    frequency: int
    payload_bytes: int
    compacted_every: int = 0
    heads: list[RunnableConfig] = field(default_factory=list)
    messages: list[AnyMessage] = field(default_factory=list)
    _steps: int = 0
    _since: int = 0

    def grow(self, steps: int, branch: str = "") -> None:
        """Store that many supersteps; ids of messages and tasks follow from place and branch."""
        if not self.heads:
            self._put(None)
        for _ in range(steps):
            self._steps += 1
            said = message(self._steps, self.payload_bytes)
            said.id = f"{said.id}{branch}"
            task = str(uuid.uuid5(_TASKS, f"{self._steps}{branch}"))
            head = self.heads[-1]
            value: Any = [said]
            if self.compacted_every and self._steps % self.compacted_every == 0:
                value = Overwrite(value)
                self.messages.clear()
            self.face.call(self.saver, "put_writes", head, [(CHANNEL, value)], task, "~pull")
            self.messages.append(said)
            self._put(head)

    def fork(self, at: int) -> StoredLine:
        """A line that leaves this one, which was never compacted, at its checkpoint `at`."""
        return StoredLine(
            self.face,
            self.saver,
            self.config,
            self.frequency,
            self.payload_bytes,
            heads=[self.heads[at]],
            messages=self.messages[:at],
            _steps=at,
            _since=at % self.frequency,
        )

    def _put(self, parent: RunnableConfig | None) -> None:
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6())
        metadata: Any = {"source": "loop", "step": self._steps - 1, "parents": {}}
        versions: ChannelVersions = {}
        if parent is not None:
            self._since += 1
            versions = {CHANNEL: f"{self._steps:032}.0"}
            checkpoint["channel_versions"] = versions
            if self._since >= self.frequency:
                checkpoint["channel_values"] = {CHANNEL: _DeltaSnapshot(list(self.messages))}
                self._since = 0
            else:
                counters = {CHANNEL: (self._since, self._since)}
                metadata["counters_since_delta_snapshot"] = counters
        config = parent or self.config
        stored = self.face.call(self.saver, "put", config, checkpoint, metadata, versions)
        self.heads.append(stored)
