"""What every scenario offers."""

from __future__ import annotations

from typing import Any

from deerflow_saver.bench.conversation import Kind
from deerflow_saver.bench.stage import Stage

__all__ = ["Scenario"]


class Scenario:
    """One cell's work on its stage. Whatever it draws by chance follows from the case's seed."""

    kind: Kind = "agent"

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def prepare(self) -> None:
        """Store what the rounds read; not measured."""

    def round(self, _number: int, /) -> None:
        """One round; the samples go to the stage's recorder."""
        raise NotImplementedError

    def compare(self) -> None:
        """Compare what the side reads with what the raw saver reads.

        Raises:
            Mismatch: they differ.

        """
        raise NotImplementedError

    def finish(self) -> dict[str, Any]:
        """Further fields of the row."""
        return {}

    def read_state(self, metric: str, graph: Any, config: Any) -> None:
        """Measure a `get_state` whose answer is dropped, as a poller drops it."""
        self.stage.recorder.measure(
            metric, lambda: self.stage.face.call(graph, "get_state", config) and None
        )
