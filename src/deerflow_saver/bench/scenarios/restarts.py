"""The first read of a thread: by a new cache, and by a new process."""

from __future__ import annotations

from typing import Any

from deerflow_saver.bench.child import Child
from deerflow_saver.bench.scenarios.base import Scenario
from deerflow_saver.bench.scenarios.reading import PAGE

__all__ = ["Cold"]

_PROCESS_SECONDS = 120.0
_PROCESS_EVERY = 4
"""A process takes a second or two to start: only every fourth round has one."""


class Cold(Scenario):
    """A new connection and a new cache: a state, then ten states through another.

    Where another process can see the database, a new one reads the state as well.
    """

    def prepare(self) -> None:
        """Grow the thread."""
        self._thread = self.stage.thread("agent", "cold", self.stage.case.turns)
        head = self.stage.head(self._thread.config)
        self._depth = len(self.stage.history(self.stage.raw, head)["writes"])

    def round(self, number: int, /) -> None:
        """Three first reads."""
        config = self._thread.config
        with self.stage.reopened() as (saver, face):
            graph = self.stage.graph("agent", saver)
            self._warm(graph, face)
            self.stage.recorder.measure(
                "state", lambda: face.call(graph, "get_state", config) and None
            )
        with self.stage.reopened() as (saver, face):
            graph = self.stage.graph("agent", saver)
            self._warm(graph, face)
            self.stage.recorder.measure("page", lambda: self._page(graph, face))
        if self.stage.case.backend != "memory" and number % _PROCESS_EVERY == 0:
            self._in_new_process()

    def compare(self) -> None:
        """The head."""
        self.stage.compare("agent", [self._thread.config])

    def finish(self) -> dict[str, Any]:
        """How deep the head is."""
        return {"depth": self._depth}

    def _page(self, graph: Any, face: Any) -> None:
        face.collect(graph, "get_state_history", self._thread.config, limit=PAGE)

    @staticmethod
    def _warm(graph: Any, face: Any) -> None:
        """Use graph and connection for the first time, on a thread that has nothing to read."""
        face.call(graph, "get_state", {"configurable": {"thread_id": "nobody"}})

    def _in_new_process(self) -> None:
        with Child("reader", self.stage.cell, timeout=_PROCESS_SECONDS) as child:
            read = child.ask({"read": self._thread.config})
        self.stage.recorder.add("new process", read["wall"], read["cpu"])
