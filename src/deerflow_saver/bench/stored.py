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

from deerflow_saver.bench.conversation import CHANNEL, message
from deerflow_saver.bench.face import Face

__all__ = ["StoredLine"]

_TASKS = uuid.UUID("5ca1ab1e-0000-4000-8000-000000000000")


@dataclass
class StoredLine:
    """A line of checkpoints in one thread; a fork of it is another line."""

    face: Face
    saver: Any
    config: RunnableConfig
    frequency: int
    payload_bytes: int
    heads: list[RunnableConfig] = field(default_factory=list)
    """The line's own checkpoints, oldest first."""
    messages: list[AnyMessage] = field(default_factory=list)
    since: int = 0

    def grow(self, steps: int, branch: str = "") -> None:
        """Store that many supersteps; ids of messages and tasks follow from place and branch."""
        if not self.heads:
            self._put(None)
        for _ in range(steps):
            number = len(self.messages) + 1
            said = message(number, self.payload_bytes)
            said.id = f"{said.id}{branch}"
            task = str(uuid.uuid5(_TASKS, f"{number}{branch}"))
            head = self.heads[-1]
            self.face.call(self.saver, "put_writes", head, [(CHANNEL, [said])], task, "~pull")
            self.messages.append(said)
            self._put(head)

    def fork(self, at: int) -> StoredLine:
        """A line that leaves this one at its checkpoint `at`, where `at` messages were known."""
        return StoredLine(
            self.face,
            self.saver,
            self.config,
            self.frequency,
            self.payload_bytes,
            heads=[self.heads[at]],
            messages=self.messages[:at],
            since=at % self.frequency,
        )

    def _put(self, parent: RunnableConfig | None) -> None:
        step = len(self.messages)
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6())
        metadata: Any = {"source": "loop", "step": step - 1, "parents": {}}
        versions: ChannelVersions = {}
        if parent is not None:
            self.since += 1
            versions = {CHANNEL: f"{step:032}.0"}
            checkpoint["channel_versions"] = versions
            if self.since >= self.frequency:
                checkpoint["channel_values"] = {CHANNEL: _DeltaSnapshot(list(self.messages))}
                self.since = 0
            else:
                counters = {CHANNEL: (self.since, self.since)}
                metadata["counters_since_delta_snapshot"] = counters
        config = parent or self.config
        stored = self.face.call(self.saver, "put", config, checkpoint, metadata, versions)
        self.heads.append(stored)
