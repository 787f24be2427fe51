"""Many threads, some read much more often than others."""

from __future__ import annotations

import random
from typing import Any

from deerflow_saver.bench.conversation import Kind
from deerflow_saver.bench.scenarios.base import Scenario

__all__ = ["Threads"]

EXPONENT = 1.1
_READS = 25


class Threads(Scenario):
    """Heads read by zipf(1.1). Every thread is read once before, as active threads have been."""

    kind: Kind = "append"

    def prepare(self) -> None:
        """Store the threads."""
        case = self.stage.case
        self._chance = random.Random(case.seed)  # noqa: S311 - the same draws on every side
        lines = [self.stage.stored_line(number, case.turns) for number in range(case.threads)]
        self._configs = [line.config for line in lines]
        self._weights = [1 / rank**EXPONENT for rank in range(1, case.threads + 1)]
        self._graph = self.stage.graph(self.kind)
        for config in self._configs:
            self.stage.face.call(self._graph, "get_state", config)

    def round(self, _number: int, /) -> None:
        """Each draw is a sample."""
        for config in self._chance.choices(self._configs, self._weights, k=_READS):
            self.read_state("state", self._graph, config)

    def compare(self) -> None:
        """The ten threads read most, and the ten read least."""
        self.stage.compare(self.kind, [*self._configs[:10], *self._configs[-10:]])

    def finish(self) -> dict[str, Any]:
        """How deep each is."""
        return {"depth": min(self.stage.case.turns, self.stage.case.snapshot_frequency)}
