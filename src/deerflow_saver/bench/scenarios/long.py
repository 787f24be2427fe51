"""One long thread, read at its old end and at its new one."""

from __future__ import annotations

from typing import Any

from deerflow_saver.bench.conversation import Kind
from deerflow_saver.bench.scenarios.base import Scenario

__all__ = ["Long"]

_TARGETS = 5
_COMPACTED_EVERY = 250
"""Nobody lets a model read ten thousand messages."""


class Long(Scenario):
    """Five checkpoints from the thread's first tenth, by turns, and the head; all read before."""

    kind: Kind = "append"

    def prepare(self) -> None:
        """Store the thread."""
        case = self.stage.case
        line = self.stage.stored_line("long", case.turns, _COMPACTED_EVERY)
        self._graph = self.stage.graph(self.kind)
        step = max(1, case.turns // 10 // _TARGETS)
        # Just before a snapshot, where a walk is longest.
        near = min(case.snapshot_frequency - 1, step)
        places = [min(step * number + near, case.turns) for number in range(_TARGETS)]
        self._old = [line.heads[place] for place in places]
        line.grow(near)  # the head is as deep as the old targets
        self._new = line.heads[-1]
        for config in (*self._old, self._new):
            self.stage.face.call(self._graph, "get_state", config)

    def round(self, number: int, /) -> None:
        """An old state, its history alone, and the newest state."""
        old = self._old[number % _TARGETS]
        self.read_state("old state", self._graph, old)
        self.stage.recorder.measure("old history", lambda: self._history(old))
        self.read_state("new state", self._graph, self._new)

    def compare(self) -> None:
        """All that was read."""
        self.stage.compare(self.kind, [*self._old, self._new])

    def finish(self) -> dict[str, Any]:
        """How deep the old targets are."""
        return {"depth": len(self.stage.history(self.stage.raw, self._old[0])["writes"])}

    def _history(self, config: Any) -> None:
        self.stage.history(self.stage.saver, config)
