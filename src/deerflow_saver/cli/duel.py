"""The same turns through a raw and a wrapped saver, turn about, and every read compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from deerflow_saver.cli.backends import Place
from deerflow_saver.cli.comparing import alike, exact, first_difference
from deerflow_saver.cli.progress import Progress
from deerflow_saver.cli.restart import Restarted, digests, restart
from deerflow_saver.cli.sides import NAMES, Agent, Name, Side, newest_states, open_side
from deerflow_saver.events import CacheInfo

__all__ = ["Different", "Duel"]

_ROUNDS_OF_READS = 6


class Different(Exception):  # noqa: N818 - an outcome, and what ends the run
    """Raw and wrapped gave different things; the message says which and where."""


@dataclass
class Duel:
    """One backend's comparison; `run` raises at the first difference and keeps what it has."""

    backend: str
    agent: Agent
    turns: int
    compared: int = 0
    """States found equal."""
    finished: int = 0
    """Turns found equal."""
    sides: dict[Name, Side] = field(default_factory=dict)
    cache: CacheInfo = field(default_factory=CacheInfo)
    """The wrapper's counters over all turns and reads, before the restart."""

    def run(self, places: Mapping[Name, Place], progress: Progress) -> None:
        """Run all turns, then restart.

        Raises:
            Different: they did not give the same.

        """
        with ExitStack() as stack:
            for name in NAMES:
                opened = open_side(name, self.agent, places[name])
                self.sides[name] = stack.enter_context(opened)
            try:
                self._run_turns(progress)
            finally:
                self.cache = self.sides["wrapped"].saver.cache_info()
            live = {name: digests(self.sides[name]) for name in NAMES}
        progress.say("restarting")
        self._compare_restarted(live, restart(self.agent, places))

    def _run_turns(self, progress: Progress) -> None:
        every = max(1, self.turns // _ROUNDS_OF_READS)
        for turn in range(1, self.turns + 1):
            for side in self._in_turns(turn):
                side.run_turn(turn)
            # Nothing read here outlives its comparison: objects somebody holds are copied by
            # the wrapper, and the next run would pay for it.
            self._compare_states(turn)
            if turn % every == 0 or turn == self.turns:
                self._compare_delta_histories(turn, turn // every)
                self._compare_state_histories(turn, turn // every)
                self._compare_on_same_database(turn)
            self.finished = turn
            progress.step(turn)

    def _in_turns(self, number: int) -> Iterator[Side]:
        """Both sides; neither always goes first."""
        order = NAMES if number % 2 else reversed(NAMES)
        return (self.sides[name] for name in order)

    def _compare_states(self, turn: int) -> None:
        read = {side.name: side.settled(alike(side.state())) for side in self._in_turns(turn)}
        self._compare(f"turn {turn}, state", read["raw"], read["wrapped"])

    def _compare_delta_histories(self, turn: int, number: int) -> None:
        heads = {name: side.head() for name, side in self.sides.items()}
        read = {
            side.name: side.settled(_without_ids(side.delta_history(heads[side.name])))
            for side in self._in_turns(number)
        }
        self._compare(f"turn {turn}, delta history", read["raw"], read["wrapped"], states=0)

    def _compare_state_histories(self, turn: int, number: int) -> None:
        read = {
            side.name: [side.settled(alike(state)) for state in side.state_history()]
            for side in self._in_turns(number)
        }
        states = len(read["raw"])
        self._compare(f"turn {turn}, state history", read["raw"], read["wrapped"], states=states)

    def _compare_on_same_database(self, turn: int) -> None:
        """What the wrapper reads must be what its own saver reads, ids and times included."""
        side = self.sides["wrapped"]
        raw, wrapped = (
            [exact(state) for state in newest_states(graph)]
            for graph in (side.graph_on_inner, side.graph)
        )
        where = f"turn {turn}, same database"
        self._compare(where, raw, wrapped, states=len(raw))

    def _compare_restarted(
        self, live: Mapping[Name, list[str]], restarted: Mapping[Name, Restarted]
    ) -> None:
        for name in NAMES:
            where = f"{name} saver, after the restart"
            found = restarted[name].digests
            self._compare(where, live[name], found, states=len(found))
            self.sides[name].seconds["cold get_state"] = restarted[name].seconds

    def _compare(self, where: str, raw: Any, wrapped: Any, *, states: int = 1) -> None:
        difference = first_difference(raw, wrapped)
        if difference is not None:
            raise Different(f"{self.backend}, {where}: {difference}")
        self.compared += states


def _without_ids(history: Any) -> Any:
    """A delta history without the ids of tasks, which every run draws anew."""
    return {**history, "writes": [(channel, value) for _task, channel, value in history["writes"]]}
