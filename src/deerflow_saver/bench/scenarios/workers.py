"""Two processes that take turns on one thread, each with a cache of its own."""

from __future__ import annotations

from typing import Any

from deerflow_saver.bench.child import Child
from deerflow_saver.bench.conversation import CHANNEL
from deerflow_saver.bench.scenarios.base import Scenario
from deerflow_saver.bench.stored_bytes import stored_write_bytes

__all__ = ["Workers"]

_TURN_SECONDS = 120.0


class Workers(Scenario):
    """The other takes a turn; this one reads the state for the first time, then takes a turn."""

    def prepare(self) -> None:
        """Grow the thread, and start the other worker."""
        self._thread = self.stage.thread("agent", "shared", self.stage.case.turns)
        self._other = Child("partner", self.stage.cell, timeout=_TURN_SECONDS)
        self._other.answer()  # it is ready
        self._other.ask({"thread": self._thread.config})

    def round(self, _number: int, /) -> None:
        """Hand over and back."""
        thread = self._thread
        thread.turns += 1
        self._other.ask({"turn": thread.turns})
        self.read_state("first read", thread.graph, thread.config)
        self.stage.recorder.measure("turn", lambda: thread.turn() and None)

    def compare(self) -> None:
        """The head, as this worker reads it after the other's last turn."""
        self._thread.turns += 1
        self._other.ask({"turn": self._thread.turns})
        self.stage.compare("agent", [self._thread.config])

    def finish(self) -> dict[str, Any]:
        """Depth, all the thread's writes as serialised, and the end of the other worker."""
        self._other.close()
        stage, config = self.stage, self._thread.config
        depth = len(stage.history(stage.raw, stage.head(config))["writes"])
        rows = stage.face.collect(stage.raw, "list", config)
        writes = [write for row in rows for write in row.pending_writes if write[1] == CHANNEL]
        size = stored_write_bytes(stage.raw.serde, writes)
        return {"depth": depth, "serialised_write_bytes": size}
