"""Raw saver, wrapper and alternative side by side: same process, same database, same work.

Each arm runs a thread of its own through the same saver object, so that each cache has
seen what it would see in service. One round of a cell is, for every arm before the next
step begins and in an order that rotates:

1. a turn, unmeasured: what was read in the round before leaves its mark on no figure;
2. a turn, measured; the calls it makes to the saver are counted;
3. the history of the head it left, measured: what the next turn will ask first;
4. the same history through a new cache, measured, after the `get_tuple` that LangGraph makes;
5. the ten newest states, measured; and the same through a new cache.

Garbage is collected between rounds, and not within one: a turn leaves reference cycles that
hold what it read, and the next read finds them as it would in service. The collector runs
as it likes, for all alike.
Every answer is compared with the raw saver's answer for the same thread: one that differs
ends the run. The first rounds are a warm-up and are dropped.
"""

from __future__ import annotations

import gc
import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from bench.alternative import AncestorCache
from bench.counting import calls_of
from bench.scenarios import CHANNEL, WRITES_PER_TURN, Start, Thread, agent, grow
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from deerflow_saver import CachedHistorySaver
from deerflow_saver.cli.comparing import settled

__all__ = ["ARMS", "METRICS", "Cell", "Mismatch", "Outcome", "measure"]

Saver = BaseCheckpointSaver[Any]
ARMS: dict[str, Callable[[Saver], Saver]] = {
    "raw": lambda saver: saver,
    "wrapped": lambda saver: cast("Saver", CachedHistorySaver(saver, guard="off")),
    "alternative": AncestorCache,
}
METRICS = ("turn", "read", "cold", "states", "states-cold")
_STATES = 10
_TURNS_A_ROUND = 2
_DRIFT = 0.5
"""A thread grows by at most this part of the cell's depth; then a new one is begun."""


class Mismatch(AssertionError):  # noqa: N818 - what is said of the answers
    """An arm gave another answer than the raw saver."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured: where the walk ends and how many writes it collects."""

    backend: str
    start: Start
    depth: int

    def __str__(self) -> str:
        """As in the progress line."""
        return f"{self.backend}/{self.start}/{self.depth}"


@dataclass(slots=True)
class Outcome:
    """A cell's figures: seconds per metric and arm, one a round, and calls per turn."""

    cell: Cell
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    calls: dict[str, dict[str, float]] = field(default_factory=dict)
    digest: str = ""

    def median(self, metric: str, arm: str) -> float:
        """Median seconds."""
        return statistics.median(self.seconds[metric][arm])

    def ratio(self, metric: str, arm: str) -> float:
        """Median over the raw saver's median."""
        return self.median(metric, arm) / self.median(metric, "raw")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(saver: Saver, cell: Cell, rounds: int, warm_up: int = 1) -> Outcome:
    """Measure `cell` on `saver`, which counts its calls; the first `warm_up` rounds are dropped.

    Raises:
        Mismatch: an arm's answer is not the raw saver's.

    """
    gc.collect()
    gc.freeze()  # what the imports left: no arm's collections have to look at it
    run = _Run(saver, cell, rounds + warm_up)
    for number in range(rounds + warm_up):
        if number == warm_up:
            run.drop_warm_up()
        run.round(number)
    return run.outcome()


class _Run:
    """One cell being measured."""

    def __init__(self, saver: Saver, cell: Cell, rounds: int) -> None:
        self._raw = saver
        self._cell = cell
        drifting = int(cell.depth * _DRIFT) // (_TURNS_A_ROUND * WRITES_PER_TURN)
        self._per_thread = min(max(1, drifting), rounds)
        self._seconds: dict[str, dict[str, list[float]]] = {}
        self._calls: dict[str, list[Counter[str]]] = {}
        self._threads: dict[str, Thread] = {}
        self._said = {arm: hashlib.sha256() for arm in ARMS}
        self.drop_warm_up()

    def drop_warm_up(self) -> None:
        """Begin the record."""
        self._seconds = {m: {arm: [] for arm in ARMS} for m in METRICS}
        self._calls = {arm: [] for arm in ARMS}

    def round(self, number: int) -> None:
        """The five steps."""
        if number % self._per_thread == 0:
            self._begin(number)
        gc.collect()
        arms = _rotated(list(ARMS), number)
        for arm in arms:
            self._threads[arm].turn()
        for arm in arms:
            self._turn(arm)
        for arm in arms:
            self._read(arm)
        for arm in arms:
            self._read_cold(arm)
        for arm in arms:
            self._states(arm)
        for arm in arms:
            self._states_cold(arm)

    def outcome(self) -> Outcome:
        """What was found."""
        calls = {
            arm: {
                name: sum(c[name] for c in counts) / len(counts) for name in sorted(_names(counts))
            }
            for arm, counts in self._calls.items()
        }
        digests = {said.hexdigest() for said in self._said.values()}
        if len(digests) > 1:
            msg = f"{self._cell}: the arms' threads do not say the same"
            raise Mismatch(msg)
        return Outcome(self._cell, self._seconds, calls, digests.pop())

    def _begin(self, number: int) -> None:
        """New threads, as deep as the measured turn will find them."""
        self._threads.clear()
        depth = self._cell.depth - _TURNS_A_ROUND * WRITES_PER_TURN
        room = _TURNS_A_ROUND * self._per_thread
        for arm, make in ARMS.items():
            name = f"{self._cell}/{number}/{arm}"
            saver = make(self._raw)
            grow(saver, f"{name}/before", "root", WRITES_PER_TURN, 1)  # a process is not new
            self._threads[arm] = grow(saver, name, self._cell.start, depth, room)

    def _clock(self, metric: str, arm: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = call()
        self._seconds[metric][arm].append(time.perf_counter() - began)
        return answer

    def _turn(self, arm: str) -> None:
        thread = self._threads[arm]
        calls_of(self._raw)
        state = self._clock("turn", arm, thread.turn)
        self._calls[arm].append(calls_of(self._raw))
        stored = agent(self._raw, 1).get_state(thread.config).values
        self._compare("turn", arm, settled(state), settled(stored))  # live against reloaded
        self._digest(arm, [state])

    def _read(self, arm: str) -> None:
        thread = self._threads[arm]
        self._read_by("read", arm, _saver_of(thread), _head(self._raw, thread))

    def _read_cold(self, arm: str) -> None:
        head = _head(self._raw, self._threads[arm])
        saver = ARMS[arm](self._raw)
        saver.get_tuple(head)
        self._read_by("cold", arm, saver, head)

    def _read_by(self, metric: str, arm: str, saver: Saver, head: RunnableConfig) -> None:
        def read(saver: Saver) -> Any:
            return saver.get_delta_channel_history(config=head, channels=[CHANNEL])

        answer = self._clock(metric, arm, lambda: read(saver))
        self._compare(metric, arm, answer, read(self._raw))
        if len(answer[CHANNEL]["writes"]) < self._cell.depth:
            msg = f"{self._cell}: the head is not as deep as it should be"
            raise Mismatch(msg)

    def _states(self, arm: str) -> None:
        self._states_by("states", arm, self._threads[arm])

    def _states_cold(self, arm: str) -> None:
        thread = self._threads[arm]
        fresh = agent(ARMS[arm](self._raw), 1)
        self._states_by("states-cold", arm, Thread(fresh, thread.config))

    def _states_by(self, metric: str, arm: str, thread: Thread) -> None:
        states = self._clock(metric, arm, lambda: thread.states(_STATES))
        raw = Thread(agent(self._raw, 1), thread.config).states(_STATES)
        self._compare(metric, arm, states, raw)
        self._digest(arm, [state.values for state in states])

    def _compare(self, metric: str, arm: str, answer: Any, raw: Any) -> None:
        if answer != raw:
            msg = f"{self._cell}: {metric} through {arm} differs from the raw saver's answer"
            raise Mismatch(msg)

    def _digest(self, arm: str, states: Iterable[Any]) -> None:
        """Take note of what was said, without what differs from thread to thread."""
        for state in states:
            for m in settled(state).get(CHANNEL, ()):
                said = (m.type, m.id, m.content, getattr(m, "tool_calls", ()))
                self._said[arm].update(repr(said).encode())


def _saver_of(thread: Thread) -> Saver:
    saver: Saver = thread.graph.checkpointer  # type: ignore[assignment]
    return saver


def _head(saver: Saver, thread: Thread) -> RunnableConfig:
    found = saver.get_tuple(thread.config)
    if found is None:
        msg = f"{thread.config} has no checkpoint"
        raise Mismatch(msg)
    return found.config


def _rotated(items: list[str], by: int) -> list[str]:
    by %= len(items)
    return items[by:] + items[:by]


def _names(counts: Iterable[Counter[str]]) -> set[str]:
    return set().union(*counts)
