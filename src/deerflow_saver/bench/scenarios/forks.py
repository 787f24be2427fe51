"""A thread with many branches, as threads have that were edited before anything refused it."""

from __future__ import annotations

from typing import Any

from deerflow_saver.bench.conversation import Kind
from deerflow_saver.bench.scenarios.base import Scenario

__all__ = ["Forks"]

BRANCHES = 8
_OWN_STEPS = 5


class Forks(Scenario):
    """Eight branches of five steps, from eight places of one line; their heads read by turns."""

    kind: Kind = "append"

    def prepare(self) -> None:
        """Store the line, then branch by branch."""
        case = self.stage.case
        line = self.stage.stored_line("forked", case.turns)
        self._heads = [line.heads[-1]]
        for branch in range(1, BRANCHES):
            fork = line.fork(max(1, case.turns * branch // BRANCHES))
            fork.grow(_OWN_STEPS, f"-{branch}")
            self._heads.append(fork.heads[-1])
        self._graph = self.stage.graph(self.kind)

    def round(self, _number: int, /) -> None:
        """Each head is a sample."""
        for head in self._heads:
            self.read_state("state", self._graph, head)

    def compare(self) -> None:
        """Every head."""
        self.stage.compare(self.kind, self._heads)

    def finish(self) -> dict[str, Any]:
        """How deep the line is."""
        return {"depth": len(self.stage.history(self.stage.raw, self._heads[0])["writes"])}
