"""Turns of a conversation, and the reads between them."""

from __future__ import annotations

from typing import Any

from deerflow_saver.bench.conversation import WRITES, Kind, Thread
from deerflow_saver.bench.scenarios.base import Scenario

__all__ = ["Agent", "Append"]

_DRIFT = 0.5
"""A thread grows by at most this part of the case's turns; then new ones are begun."""
_TURNS_A_ROUND = 2


class Agent(Scenario):
    """A turn, unmeasured, so that what was read before marks no figure; a turn; two reads.

    With several writers, each has a thread of its own, and a turn is all of theirs at once.
    """

    def prepare(self) -> None:
        """Begin the threads."""
        case = self.stage.case
        self._per_thread = max(1, int(case.turns * _DRIFT) // _TURNS_A_ROUND)
        self._threads: list[Thread] = []
        self._depth = 0

    def round(self, number: int, /) -> None:
        """The four steps."""
        if number % self._per_thread == 0:
            self._begin(number)
        recorder, stage = self.stage.recorder, self.stage
        self._turns()
        recorder.measure("turn", self._turns)
        first = self._threads[0]
        head = stage.head(first.config)
        stage.face.call(stage.saver, "get_tuple", head)  # LangGraph reads the row first
        recorder.measure("history", lambda: self._read(head))
        self.read_state("state", first.graph, first.config)

    def compare(self) -> None:
        """The heads of the threads."""
        self.stage.compare(self.kind, [thread.config for thread in self._threads])

    def finish(self) -> dict[str, Any]:
        """How many writes the last read collected, and what the row's turn is."""
        return {"depth": self._depth, "writes_per_turn": WRITES[self.kind]}

    def _begin(self, number: int) -> None:
        turns = max(0, self.stage.case.turns - _TURNS_A_ROUND)
        writers = range(self.stage.case.writers)
        self._threads = [
            self.stage.thread(self.kind, f"{number}-{writer}", turns) for writer in writers
        ]

    def _turns(self) -> None:
        self.stage.face.together([thread.ask() for thread in self._threads])

    def _read(self, head: Any) -> None:
        self._depth = len(self.stage.history(self.stage.saver, head)["writes"])


class Append(Agent):
    """The same with one message a turn."""

    kind: Kind = "append"
