"""Reads of one thread that nobody continues."""

from __future__ import annotations

from functools import partial
from typing import Any

from deerflow_saver.bench.held import held_bytes
from deerflow_saver.bench.scenarios.base import Scenario

__all__ = ["Paging", "Polling"]

PAGE = 10
_PAGES = 5


class Polling(Scenario):
    """`get_state` of a head that does not move; at the end, what the thread costs in memory."""

    def prepare(self) -> None:
        """Grow the thread."""
        self._thread = self.stage.thread("agent", "polled", self.stage.case.turns)

    def round(self, _number: int, /) -> None:
        """Two reads."""
        for _ in range(2):
            self.read_state("state", self._thread.graph, self._thread.config)

    def compare(self) -> None:
        """The head."""
        self.stage.compare("agent", [self._thread.config])

    def finish(self) -> dict[str, Any]:
        """Memory by `tracemalloc`, of a cache that answered three reads, or of the raw answer."""
        head = self.stage.head(self._thread.config)
        return {
            "depth": len(self.stage.history(self.stage.raw, head)["writes"]),
            "held_bytes": held_bytes(self.stage, head),
        }


class Paging(Scenario):
    """Pages of ten states, from the newest on, as a debugger shows them."""

    def prepare(self) -> None:
        """Grow the thread."""
        self._thread = self.stage.thread("agent", "paged", self.stage.case.turns)
        head = self.stage.head(self._thread.config)
        self._depth = len(self.stage.history(self.stage.raw, head)["writes"])

    def round(self, _number: int, /) -> None:
        """Each page is a sample."""
        before = None
        for _ in range(min(_PAGES, self.stage.case.turns * 5 // PAGE)):
            before = self.stage.recorder.measure("page", partial(self._page, before))

    def compare(self) -> None:
        """Every state of the first two pages."""
        graph = self.stage.graph("agent", self.stage.raw)
        rows = self.stage.face.collect(
            graph, "get_state_history", self._thread.config, limit=2 * PAGE
        )
        self.stage.compare("agent", [state.config for state in rows])

    def finish(self) -> dict[str, Any]:
        """How deep the head is."""
        return {"depth": self._depth}

    def _page(self, before: Any) -> Any:
        states = self.stage.face.collect(
            self._thread.graph,
            "get_state_history",
            self._thread.config,
            before=before,
            limit=PAGE,
        )
        return states[-1].config
