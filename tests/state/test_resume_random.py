"""Random conversations that go back again and again: delta and full mode leave the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from deerflow_saver import CachedHistorySaver
from deerflow_saver.state import prepare_run
from deerflow_saver.state.fork_probe import forks_are_right
from support.agent_in_modes import Agent
from support.modes import thread

OPERATIONS = ("turn", "spread", "update", "back", "rerun")
if forks_are_right():
    # Releases with wrong forks also misread, with nobody going back, what follows a busy head
    OPERATIONS += ("ask", "both", "answer", "command")


class Pair:
    """The same conversation in both modes; checkpoints are told by a common number."""

    def __init__(self) -> None:
        self.saver = InMemorySaver()
        self.full = Agent("full", InMemorySaver())
        self.delta = Agent("delta", CachedHistorySaver(self.saver))
        self.places: list[tuple[Any, Any]] = []
        self._counts = [0, 0]

    def perform(self, name: str, number: int) -> None:
        getattr(self, f"_{name}")(number)
        self._note()

    def _run(self, given: Any) -> None:
        for agent in (self.full, self.delta):
            agent.graph.invoke(given, thread())

    def _turn(self, number: int) -> None:
        self._run({"log": [f"in {number}"], "do": "x"})

    def _ask(self, number: int) -> None:
        self._run({"log": [f"in {number}"], "do": "ask"})

    def _both(self, number: int) -> None:
        self._run({"log": [f"in {number}"], "do": "ask both"})

    def _spread(self, number: int) -> None:
        self._run({"log": [f"in {number}"], "do": "spread"})

    def _answer(self, number: int) -> None:
        if self.full.accessor.get(thread()).interrupts:
            self._run(Command(resume=f"answer {number}"))

    def _update(self, number: int) -> None:
        for agent in (self.full, self.delta):
            agent.accessor.update(
                thread(), {"log": [f"u {number}"], "facts": {"u": number}}, as_node="close"
            )

    def _command(self, number: int) -> None:
        if self.full.accessor.history(thread(), limit=1):
            self._run(Command(update={"log": [f"c {number}"]}, goto="work"))

    def _back(self, number: int) -> None:
        self._return(number, {"log": [f"back {number}"], "do": "x"})

    def _rerun(self, number: int) -> None:
        self._return(number, None)

    def _return(self, number: int, given: Any) -> None:
        places = self.places if given else [p for p in self.places if self._runs_on(p[0])]
        if places:
            full, delta = places[number % len(places)]
            self.full.graph.invoke(given, full)
            self.delta.graph.invoke(*prepare_run(self.delta.graph, delta, given))

    def _runs_on(self, config: Any) -> bool:
        return bool(self.full.graph.get_state(config).next)

    def _note(self) -> None:
        """Pair the checkpoints that an operation made, the newest with the newest."""
        states = [agent.accessor.history(thread()) for agent in (self.full, self.delta)]
        made = [h[: len(h) - count] for h, count in zip(states, self._counts, strict=True)]
        self._counts = [len(h) for h in states]
        for full, delta in zip(*made, strict=False):
            assert full.next == delta.next
            self.places.append((full.config, delta.config))

    def compare(self) -> None:
        assert self.delta.take_ran() == self.full.take_ran()
        seen = [shown(agent) for agent in (self.full, self.delta, Agent("delta", self.saver))]
        assert seen[0] == seen[1] == seen[2]


def shown(agent: Agent) -> Any:
    state = agent.accessor.get(thread())
    values = {name: value for name, value in state.values.items() if value not in ([], {}, None)}
    values["log"] = sorted(values.get("log", []))  # parallel writes come in no order of their own
    return values, sorted(state.next), sorted(str(asked.value) for asked in state.interrupts)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 30)), min_size=2, max_size=9))
def test_going_back_leaves_what_forks_leave_however_often(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    for name, number in [("turn", 0), *steps]:
        pair.perform(name, number)
        pair.compare()
